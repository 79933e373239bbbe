"""The secrets of a session are nowhere but in its private files and in the memory of its own processes."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mongo_servers
import pytest
from conftest import pilot_description, processes_with, wait_until
from mongo_servers import Server

import radical.pilot as rp
from rp_api.transport import keys

LAYOUT = {'agents': {'agent_1': {'components': {'agent_executing': {'count': 1}}}},
          'components': {'agent_staging_output': {'target': 'process'}}}


def socket_inodes(pids: list[int]) -> set[str]:
    """The sockets that these processes have open."""
    found = set()
    for pid in pids:
        for entry in Path(f'/proc/{pid}/fd').iterdir():
            try:
                target = os.readlink(entry)
            except OSError:   # closed meanwhile
                continue
            if target.startswith('socket:['):
                found.add(target[8:-1])
    return found


OF_PYTEST = socket_inodes([os.getpid()])
"""What pytest and its plugins have open."""


@pytest.fixture(scope='module')
def secrets() -> Iterator[list[str]]:
    """Every secret key that this process makes from now on."""
    made: list[str] = []
    generate = keys.generate

    def note() -> keys.KeyPair:
        pair = generate()
        made.append(pair.secret.decode())
        return pair

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, 'generate', note)
        yield made


@pytest.fixture(scope='module')
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A MongoDB."""
    with mongo_servers.running('nx-27017', tmp_path_factory.mktemp('mongo')) as server:
        yield server


@pytest.fixture(scope='module', params=['hub', 'mongodb', 'mongodb in the environment'])
def worked(request: pytest.FixtureRequest, secrets: list[str], database: Server,
           tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A session that has run tasks with everything that writes something turned on, and that is still open.

    It has a hub, or a MongoDB whose URL has something secret in it.
    """
    base = tmp_path_factory.mktemp('secrets')
    options: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        for name, value in (('BASE', str(base)), ('PILOT_LOG_LVL', 'DEBUG'), ('PILOT_PROFILE', 'TRUE')):
            patch.setenv(f'RADICAL_{name}', value)
        if request.param != 'hub':
            secrets.append(f'canary{os.urandom(8).hex()}')
            url = f'{database.url}?appName={secrets[-1]}'
            if request.param == 'mongodb':
                options['dburl'] = url
            else:
                patch.setenv('RADICAL_PILOT_DBURL', url)
        with rp.Session(cfg={'base': str(base)}, **options) as session:
            yield work(session, base)


def work(session: rp.Session, base: Path) -> dict[str, Any]:
    """Have tasks run in several processes, one of which goes on."""
    pmgr, tmgr = rp.PilotManager(session=session), rp.TaskManager(session=session)
    pilot = pmgr.submit_pilots(pilot_description(base, _config=LAYOUT))
    tmgr.add_pilots(pilot)
    tasks = tmgr.submit_tasks([rp.TaskDescription(description) for description in (
        {'executable': '/usr/bin/env', 'uid': 'plain'},
        {'executable': '/bin/sh', 'arguments': ['-c', 'ls -l /proc/self/fd; env; false'], 'uid': 'fails'},
        {'executable': 'env', 'pre_exec': ['export A=1'], 'uid': 'script'},
        {'executable': 'sleep', 'arguments': ['100'], 'uid': 'lasts'})])
    tmgr.wait_tasks(['plain', 'fails', 'script'], timeout=30)
    tasks[3].wait(rp.AGENT_EXECUTING, timeout=30)
    assert [task.state for task in tasks[:3]] == [rp.DONE, rp.FAILED, rp.DONE], [task.exception for task in tasks]
    session.dump()
    own_hub = session._owner.engine.coordinator.agent_access['backend'] == 'hub'
    return {'session': session, 'pilot': pilot, 'tasks': tasks, 'base': base,
            'hub': ['rp_api.coordination.hub.main'] if own_hub else []}


def agents_secrets(pilot: rp.Pilot) -> list[str]:
    """The secrets that the agent's configuration holds."""
    access = json.loads((Path(pilot.pilot_sandbox) / 'agent_0.cfg').read_text())['coordination']
    return [access['secret']] if 'secret' in access else []


def processes(worked: dict[str, Any]) -> dict[int, str]:
    """The processes of the session: hub, agent, sub-agents, a task."""
    found = processes_with(str(worked['base']))
    for name in (*worked['hub'], 'rp_agent.cli', 'rp_agent.nodes.sub_agent', 'sleep'):
        assert any(name in line for line in found.values()), (name, found)
    return found


def test_no_process_shows_a_secret(worked: dict[str, Any], secrets: list[str]) -> None:
    """Command lines can be read by everybody, environments by the same user, and by tasks."""
    known = [secret.encode() for secret in secrets + agents_secrets(worked['pilot'])]
    assert known
    for pid in [os.getpid(), *processes(worked)]:
        for name in ('cmdline', 'environ', 'comm'):
            content = Path(f'/proc/{pid}/{name}').read_bytes()
            assert not [secret for secret in known if secret in content], (pid, name)


def test_only_private_files_hold_secrets(worked: dict[str, Any], secrets: list[str]) -> None:
    """Logs, traces, dumps, outputs, scripts: nothing but the two files that exist to hold the keys."""
    known = [secret.encode() for secret in secrets + agents_secrets(worked['pilot'])]
    holders = set()
    for path in worked['base'].rglob('*'):
        if path.is_file() and any(secret in path.read_bytes() for secret in known):
            holders.add(path.name)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
            assert path.stat().st_uid == os.geteuid()
    assert holders == {'agent_0.cfg', *(['hub.json'] if worked['hub'] else [])}


def test_tasks_get_no_secret(worked: dict[str, Any], secrets: list[str]) -> None:
    """Neither in their environment nor as an open file."""
    known = secrets + agents_secrets(worked['pilot'])
    outputs = [(Path(task.sandbox) / f'{task.uid}.out').read_text() for task in worked['tasks'][:3]]
    for output in outputs:
        assert 'RP_TASK_ID=' in output
        assert not [secret for secret in known if secret in output]
    listed = [line for line in outputs[1].splitlines() if ' -> ' in line]
    opened = {line.rpartition(' -> ')[2] for line in listed}
    assert len(listed) >= 3
    names = {os.path.basename(path) for path in opened}
    assert not {'agent_0.cfg', 'hub.json', 'hub.db'} & names
    assert not [name for name in names if name.startswith('socket:')]


def test_private_things_have_private_modes(worked: dict[str, Any]) -> None:
    """Whatever the umask of the user says."""
    session, pilot = worked['session'], worked['pilot']
    assert mode(Path(session.path)) == 0o700
    for path in Path(session.path).iterdir():
        assert path.name not in ('hub.json',) or mode(path) == 0o600
    assert mode(Path(pilot.pilot_sandbox) / 'agent_0.cfg') == 0o600
    listening = sockets_of([os.getpid(), *processes(worked)])
    assert listening
    for path in listening:
        # an application has bound its socket by the descriptor of the session's directory
        directory = Path(session.path) if path.name.startswith('owner.') else path.parent
        assert mode(directory) == 0o700, path


def test_nothing_listens_on_the_network(worked: dict[str, Any]) -> None:
    """Unless it is asked for; and on Unix sockets, only what the tests of this directory know."""
    pids = [os.getpid(), *processes(worked)]
    inodes = socket_inodes(pids) - OF_PYTEST
    for table in ('tcp', 'tcp6'):
        rows = [line.split() for line in Path(f'/proc/net/{table}').read_text().splitlines()[1:]]
        assert not [row for row in rows if row[3] == '0A' and row[9] in inodes]
    # that of the application for commands, that of the agent for its sub-agents, and the hub's
    assert len(sockets_of(pids)) == 2 + len(worked['hub'])


def test_the_keys_go_with_the_session(secrets: list[str], base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv('RADICAL_PILOT_DBURL', raising=False)
    before = len(secrets)
    with rp.Session(cfg={'base': str(base)}) as session:
        pilot = rp.PilotManager(session=session).submit_pilots(pilot_description(base))
        pilot.wait(rp.PMGR_ACTIVE, timeout=30)
        known = [secret.encode() for secret in secrets[before:] + agents_secrets(pilot)]
    assert len(known) > 3
    wait_until(lambda: not processes_with(str(base)))
    for directory in (base, Path(tempfile.gettempdir())):
        for path in directory.rglob('*'):
            if path.is_file():
                content = path.read_bytes()
                assert not [secret for secret in known if secret in content], path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def sockets_of(pids: list[int]) -> set[Path]:
    """The paths at which these processes listen."""
    inodes = socket_inodes(pids)
    rows = [line.split() for line in Path('/proc/net/unix').read_text().splitlines()[1:]]
    return {Path(row[7]) for row in rows if len(row) == 8 and row[3] == '00010000' and row[6] in inodes}
