"""Sessions of an ordinary user, from a virtual environment of the site that the user can only read."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from ordinary_users import Machine, User, machine

HERE = Path(__file__).parent


@pytest.fixture(scope='module')
def site() -> Iterator[tuple[Machine, User]]:
    """Its modules are not compiled, and no user can have them so."""
    with machine(compiled=False) as made:
        shutil.copy(HERE / 'site_application.py', made.place)
        user = made.add_user('alice')
        yield made, user
        assert list(made.site.rglob('__pycache__')) == []


@pytest.mark.parametrize('resource', ['local.exact', 'site.machine'])
def test_programs_and_functions(site: tuple[Machine, User], resource: str) -> None:
    """On a pilot that the application starts, and on one that its platform starts in the site's environment."""
    made, user = site
    directory = user.home / resource
    for path in (directory, user.home / '.radical' / 'pilot' / 'configs'):
        code, said = user.run('mkdir', '-p', path, cwd=user.home)
        assert code == 0, said
    configs = user.home / '.radical' / 'pilot' / 'configs' / 'resource_site.json'
    configs.write_text(json.dumps({'machine': platform(made, directory)}))
    code, said = user.run(made.python, made.place / 'site_application.py', resource, cwd=directory)
    assert code == 0, said
    told = json.loads(said.strip().rpartition('\n')[2])
    assert told['pilot'] == 'PMGR_ACTIVE', told
    assert told['tasks'] == [['DONE', f'in\n{user.name}\n', None]] * 3
    states, values, _ = zip(*told['calls'], strict=True)
    assert states == ('DONE', 'DONE', 'DONE'), told
    assert values[:2] == ('42', '1/3')
    assert Path(values[2]).is_relative_to(made.site)
    assert [(directory / f'output.{number}').read_text() for number in range(3)] == ['out\n'] * 3


def platform(made: Machine, directory: Path) -> dict[str, object]:
    """A platform whose pilots are started by a job, through the bootstrap, in the environment of the site."""
    return {
        'description': 'this host', 'default_schema': 'job', 'schemas': {'job': {
            'job_manager_endpoint': f'fork://{socket.gethostname()}/', 'filesystem_endpoint': 'file://localhost/'}},
        'resource_manager': 'FORK', 'agent_spawner': 'POPEN', 'default_remote_workdir': str(directory),
        'virtenv_mode': 'use', 'virtenv': str(made.site), 'rp_version': 'installed', 'cores_per_node': 4,
        'launch_methods': {'order': ['FORK', 'MPIEXEC'], 'FORK': {}, 'MPIEXEC': {}}}
