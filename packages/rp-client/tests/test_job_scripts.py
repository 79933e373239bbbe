"""The scripts with which pilots are submitted, for each batch system and for each platform, as files to look at.

`RP_WRITE_SCRIPTS=1 pytest test_job_scripts.py` writes them anew.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from job_cases import ADAPTED, CASES, SANDBOX, requested

from rp_api.description.pilot import PilotDescription
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.load import filled, get_platform, list_platforms
from rp_client.launcher.batch.job import job_request
from rp_client.launcher.batch.systems.base import Scripted
from rp_client.launcher.batch.systems.registry import batch_system
from rp_client.launcher.batch.systems.request import JobRequest

GOLDEN = Path(__file__).parent / 'golden'
SCRIPTED = [name for name in CASES if name not in ADAPTED]


def batch_schemas(label: str) -> list[str]:
    """The access schemas of a platform that lead to a batch system whose job scripts we write."""
    schemas = get_platform(label).schemas
    return [name for name, access in schemas.items()
            if isinstance(batch_system(access.job_manager_endpoint), Scripted)]


PLATFORMS = [label for label in list_platforms(retired=True) if batch_schemas(label)]


def compare(path: Path, text: str) -> None:
    if os.environ.get('RP_WRITE_SCRIPTS'):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize('name', SCRIPTED)
def test_script_of_a_batch_system(name: str) -> None:
    url, request = requested(name)
    system = batch_system(url)
    assert isinstance(system, Scripted)
    compare(GOLDEN / 'cases' / f'{name}.sh', system.render(request))


@pytest.mark.parametrize('name', SCRIPTED)
def test_nothing_in_the_environment_of_the_submitter_overrides_what_is_said(name: str, tmp_path: Path) -> None:
    """What is not said is left to the user and the site."""
    url, request = requested(name)
    system = batch_system(url)
    assert isinstance(system, Scripted)
    shows = tmp_path / system.submitter.split()[0]
    shows.write_text('#!/bin/sh\nexec env\n')
    shows.chmod(0o755)
    variables = [name for names in system.overriding.values() for name in names.split()]
    environ = {'PATH': f'{tmp_path}:/usr/bin:/bin', 'SBATCH_DEPENDENCY': 'x', **dict.fromkeys(variables, 'x')}

    def kept(request: JobRequest) -> set[str]:
        script = system.submit(request._replace(directory=str(tmp_path)))
        done = subprocess.run(['/bin/sh', '-c', script], env=environ, capture_output=True, text=True, check=True)
        return {line.partition('=')[0] for line in done.stdout.splitlines()} & environ.keys()

    bare = request._replace(queue='', qos='', account='', reservation='', options=(), gpus=0, memory=0, exclusive=False,
                            threads_per_core=0, reserved_cores=None)
    always = set(system.overriding.get('', '').split())
    assert kept(bare) == environ.keys() - always
    assert 'SBATCH_DEPENDENCY' in kept(request)
    said = bare._replace(queue='q', account='a', reserved_cores=0)
    gone = [system.overriding.get(field, '').split() for field in ('', 'queue', 'account', 'reserved_cores')]
    assert kept(said) == environ.keys() - {name for names in gone for name in names}


@pytest.mark.parametrize('label', PLATFORMS)
def test_script_of_a_platform(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same through all access schemas: nothing depends on the host that a URL names."""
    monkeypatch.setenv('RADICAL_CONFIG_USER_DIR', '/nowhere')
    scripts = {schema: of_platform(get_platform(label, schema)) for schema in batch_schemas(label)}
    assert len(set(scripts.values())) == 1
    compare(GOLDEN / 'platforms' / f'{label}.sh', next(iter(scripts.values())))


def of_platform(platform: ResourceConfig) -> str:
    """The script for two nodes of a platform, or for twelve cores if it does not say how large nodes are."""
    size: Mapping[str, Any] = {'nodes': 2} if platform.cores_per_node else {'cores': 12}
    description = PilotDescription({'resource': platform.label, 'uid': 'pilot.0000', 'runtime': 90, 'project': 'abc',
                                    **size})
    description.verify()
    platform = filled(platform, description)
    system = batch_system(platform.job_manager_endpoint)
    assert isinstance(system, Scripted)
    request = job_request(description, platform, SANDBOX, ['/bin/sh', f'{SANDBOX}/bootstrap_0.sh'],
                          {'RP_PILOT_SANDBOX': SANDBOX})
    return system.render(request)


def left_over() -> Iterator[Path]:
    known = {'cases': set(SCRIPTED), 'platforms': set(PLATFORMS)}
    for directory, names in known.items():
        yield from (path for path in (GOLDEN / directory).iterdir() if path.name.removesuffix('.sh') not in names)


def test_no_script_is_left_over() -> None:
    assert list(left_over()) == []


def test_a_pilot_on_perlmutter_is_submitted_from_its_login_node() -> None:
    """A queue is a QOS there, whatever the host of the URL is called."""
    script = of_platform(get_platform('nersc.perlmutter', 'local'))
    assert '--qos=regular' in script
    assert '--constraint=cpu' in script
    assert '--account=abc' in script
    assert '--partition' not in script
