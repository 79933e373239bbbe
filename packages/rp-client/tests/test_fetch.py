"""Traces and logs of pilots are brought to the client: from here, and from hosts that are reached by ssh."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from client_support import a_pilot

from rp_api import states
from rp_client.core.pilot import PartitionRecord, PilotRecord
from rp_client.launcher.batch import transfer
from rp_client.stager.fetch import LOGS, PROFILES, fetch

TRACES = {'agent_0.prof', 'agent_executing.0000.prof.gz', 'bootstrap_0.prof', 'task.000000/task.000000.prof',
          'raptor.0000.0000/raptor.0000.0000.0.calls'}
OUTPUTS = {'agent_0.log', 'agent_0.out', 'bootstrap_0.err'}
OTHERS = {'agent_0.cfg', 'task.000000/task.000000.out', 'task.000000/data/other.prof'}

# brings the command of its last argument to a host whose files are those of this one
SSH = '''#!/bin/sh
for last; do host=$command command=$last; done
echo "$host" >>"$0.log"
echo Welcome!
eval "$last"
'''


class Site:
    """Pilots with directories, which are reached by an `ssh` whose script can be changed."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.ssh = base / 'bin' / 'ssh'
        self.ssh.parent.mkdir()
        self.use(SSH)
        self.target = base / 'target'

    def use(self, script: str) -> None:
        self.ssh.write_text(script)
        self.ssh.chmod(0o755)

    def pilot(self, uid: str, endpoint: str, *names: str) -> PilotRecord:
        """A pilot that was launched and has these files; each holds its pilot's uid and its name."""
        pilot = a_pilot(uid, self.base)
        pilot.launched = True
        pilot.directories = replace(pilot.directories, here=not endpoint, endpoint=endpoint)
        for name in names:
            self.put(pilot, name)
        return pilot

    def put(self, pilot: PilotRecord, name: str, text: str = '') -> None:
        path = Path(pilot.directories.pilot, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or f'{pilot.uid} {name}')

    def fetched(self, *pilots: PilotRecord, endings: tuple[str, ...] = (*PROFILES, *LOGS)) -> set[str]:
        """What was fetched, relative to the target."""
        found = fetch(pilots, endings, self.target)
        assert len(set(found)) == len(found)
        for path in found:
            uid, _, name = os.path.relpath(path, self.target).partition('/')
            assert Path(path).read_text() == f'{uid} {name}'
        return {os.path.relpath(path, self.target) for path in found}

    @property
    def connections(self) -> list[str]:
        """The hosts that were connected to."""
        log = self.ssh.with_name('ssh.log')
        return log.read_text().split() if log.exists() else []


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    found = Site(tmp_path)
    monkeypatch.setenv('PATH', f'{found.ssh.parent}{os.pathsep}{os.environ["PATH"]}')
    return found


@pytest.mark.parametrize(('endpoint', 'connections'), [('', []), ('sftp://far/', ['far'] * 3)])
def test_traces_and_logs_of_pilots(site: Site, endpoint: str, connections: list[str]) -> None:
    pilots = [site.pilot(f'pilot.000{number}', endpoint, *TRACES, *OUTPUTS, *OTHERS) for number in range(2)]

    def of_both(names: set[str]) -> set[str]:
        return {f'{pilot.uid}/{name}' for pilot in pilots for name in names}

    assert site.fetched(*pilots, endings=PROFILES) == of_both(TRACES)
    assert site.fetched(*pilots, endings=LOGS) == of_both(OUTPUTS)
    assert site.fetched(*pilots) == of_both(TRACES | OUTPUTS)
    assert site.connections == connections


@pytest.mark.parametrize('endpoint', ['', 'sftp://far/'])
def test_files_of_partitions(site: Site, endpoint: str) -> None:
    pilot = site.pilot('pilot.0000', endpoint)
    pilot.partitions.append(PartitionRecord(pilot, 0))
    names = {f'{name}.{ending}' for name in ('agent_0', 'pilot.0000.0000/agent_0') for ending in ('prof', 'log')}
    for name in (*names, 'pilot.0000.0001/agent_0.log'):   # the last one is a task's, which is called so
        site.put(pilot, name)
    assert site.fetched(pilot) == {f'pilot.0000/{name}' for name in names}


@pytest.mark.parametrize('endpoint', ['', 'sftp://far/'])
def test_a_pilot_without_files(site: Site, endpoint: str, caplog: pytest.LogCaptureFixture) -> None:
    assert site.fetched(site.pilot('pilot.0000', endpoint)) == set()
    assert not site.target.exists()
    assert caplog.messages == []


def test_nobody_asks_where_nothing_was_launched(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    pilot = site.pilot('pilot.0000', 'sftp://far/')
    pilot.launched = False
    assert site.fetched(pilot) == set()
    assert site.connections == []
    assert caplog.messages == []


@pytest.mark.parametrize(('state', 'asked'), [(states.PMGR_LAUNCHING, []), (states.PMGR_ACTIVE_PENDING, ['far']),
                                              (states.FAILED, ['far'])])
def test_a_pilot_of_a_session_that_is_taken_over(site: Site, state: str, asked: list[str]) -> None:
    pilot = a_pilot(base=site.base)
    pilot.directories = replace(pilot.directories, here=False, endpoint='sftp://far/')
    pilot.restore(state, None)
    site.fetched(pilot)
    assert site.connections == asked


def test_a_host_that_cannot_be_reached(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """It keeps nobody from having the files of the others, and is asked once."""
    near, far = site.pilot('pilot.0000', '', 'agent_0.log'), site.pilot('pilot.0003', 'sftp://far/', 'agent_0.log')
    lost = [site.pilot(f'pilot.000{number}', 'sftp://lost/', 'agent_0.log') for number in (1, 2)]
    site.use(SSH.replace('echo Welcome', 'test $host = far || { echo no route >&2; exit 255; }; echo Welcome'))
    assert site.fetched(near, *lost, far) == {'pilot.0000/agent_0.log', 'pilot.0003/agent_0.log'}
    assert site.connections == ['lost', 'far']
    assert caplog.messages == ['traces and logs of pilot.0001, pilot.0002 are missing: '
                               'files could not be fetched from lost: no route']


def test_a_host_that_no_files_can_be_had_from(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    pilot = site.pilot('pilot.0000', '', 'agent_0.log')
    pilot.directories = replace(pilot.directories, here=False)
    assert site.fetched(pilot) == set()
    (message,) = caplog.messages
    assert message.startswith('traces and logs of pilot.0000 are missing: the sandbox of pilot.0000 is on another host')


def test_what_came_before_a_connection_was_lost(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    pilot = site.pilot('pilot.0000', 'sftp://far/', 'a.log')
    site.put(pilot, 'b.log', 'x' * 100000)
    site.use(SSH.replace('eval "$last"', 'eval "$last" | head -c 20000; echo lost >&2; exit 255'))
    fetched = fetch([pilot], LOGS, site.target)
    assert f'{site.target}/pilot.0000/a.log' in fetched
    assert (site.target / 'pilot.0000' / 'a.log').read_text() == 'pilot.0000 a.log'
    assert caplog.messages == ['traces and logs of pilot.0000 are missing: files could not be fetched from far: lost']


def test_a_host_that_falls_silent(site: Site, caplog: pytest.LogCaptureFixture,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, 'CHECK_INTERVAL_S', 0.1)
    monkeypatch.setattr(transfer, 'SILENCE', 0.2)
    site.use(SSH.replace('eval "$last"', 'exec sleep 1000'))
    assert site.fetched(site.pilot('pilot.0000', 'sftp://far/', 'a.log')) == set()
    assert caplog.messages == ['traces and logs of pilot.0000 are missing: '
                               'files could not be fetched from far: no progress for 0.2 s']


def test_a_file_that_grows_meanwhile(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Of a pilot that runs: `tar` has an exit code of its own for it."""
    pilot = site.pilot('pilot.0000', 'sftp://far/', 'a.log')
    tar = site.ssh.with_name('tar')
    tar.write_text('#!/bin/sh\nPATH=${PATH#*:}\ntar "$@" || exit\ncase $1 in -c*) exit 1; esac\n')
    tar.chmod(0o755)
    assert site.fetched(pilot) == {'pilot.0000/a.log'}
    assert caplog.messages == []


def test_a_file_that_cannot_be_read(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Neither does it keep others from coming."""
    pilot = site.pilot('pilot.0000', 'sftp://far/', 'a.log', 'b.log', 'c.log')
    tar = site.ssh.with_name('tar')
    tar.write_text('#!/bin/sh\nPATH=${PATH#*:}\ntar --exclude=b.log "$@" || exit\n'
                   'case $1 in -cf) echo "b.log: Permission denied" >&2; exit 2; esac\n')
    tar.chmod(0o755)
    assert site.fetched(pilot) == {'pilot.0000/a.log', 'pilot.0000/c.log'}
    assert caplog.messages == ['traces and logs of pilot.0000 are missing: '
                               'files could not be fetched from far: b.log: Permission denied']
