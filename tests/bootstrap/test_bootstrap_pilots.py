"""Whole pilots that start with stage 0: what they leave, what tasks see, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import pilot_description
from mongo_servers import running
from ports import free_ports

import radical.pilot as rp
from bootstrap.jobs_of_pilots import eventually, program
from rp_api.system.processes import process_table
from rp_client.bootstrap import read_failure
from rp_client.launcher import local
from rp_profiling.read.profile import read_profile

PROGRAM = Path(__file__).with_name('through_stage_0.py')

Start = Callable[..., tuple[rp.Pilot, rp.TaskManager]]


@pytest.fixture
def start(base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a pilot, on a platform with these values, in a session with this configuration."""
    sessions = []

    def begin(cfg: dict[str, Any] | None = None, **values: Any) -> tuple[rp.Pilot, rp.TaskManager]:
        monkeypatch.setattr(local, 'python_program',
                            lambda module: [sys.executable, str(PROGRAM), json.dumps(values)])
        session = rp.Session(cfg={'base': str(base), **(cfg or {})})
        sessions.append(session)
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        pilot = pmgr.submit_pilots(pilot_description(base))
        tmgr.add_pilots(pilot)
        assert pilot.wait(rp.PMGR_ACTIVE, timeout=30) == rp.PMGR_ACTIVE, (pilot.exception, pilot.stderr)
        return pilot, tmgr

    yield begin
    for session in sessions:
        session.close()


def process_of(pilot: rp.Pilot, program: str) -> int:
    """The process that has this file of the sandbox on its command line."""
    wanted = os.fsencode(f'{pilot.pilot_sandbox}/{program}')
    for pid in process_table():
        try:
            if wanted in Path('/proc', str(pid), 'cmdline').read_bytes().split(b'\0'):
                return pid
        except OSError:   # it has ended
            continue
    raise AssertionError(f'nothing runs with {program}')


def test_a_pilot(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few files, its events, and tasks in the environment that the job came with."""
    mask = os.umask(0)
    os.umask(mask)
    ve = os.path.dirname(os.path.dirname(sys.executable))
    monkeypatch.setenv('OF_THE_JOB', "it's\nmine")
    monkeypatch.setenv('VIRTUAL_ENV', ve)
    monkeypatch.setenv('PATH', f'{ve}/bin:/of/the/job:/usr/bin:/bin')
    pilot, tmgr = start(pre_bootstrap_0=['export OF_THE_AGENT=yes'])
    sandbox = Path(pilot.pilot_sandbox)
    files = [path for path in sandbox.rglob('*') if path.is_file()]
    assert len(files) <= 15, files
    assert {oct(path.stat().st_mode & 0o077) for path in files if path.suffix in ('.cfg', '.sh')} <= {'0o0', '0o44'}
    task = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/sh', 'arguments': [
        '-c', 'env -0 | grep -z -E "^(OF_|VIRTUAL_ENV|PATH|RP_PILOT_ID)" | tr "\\0" "|"; umask']}))
    assert task.wait(timeout=30) == rp.DONE
    assert sorted(filter(None, task.stdout.split('|'))) == [
        f'{mask:04o}\n', "OF_THE_JOB=it's\nmine", 'PATH=/of/the/job:/usr/bin:/bin', f'RP_PILOT_ID={pilot.uid}']
    pilot.cancel()
    assert pilot.state == rp.CANCELED
    assert not (sandbox / 'bootstrap_0.failed').exists()
    eventually(lambda: 'END' in (sandbox / 'bootstrap_0.prof').read_text())
    events = [row.event for row in read_profile(sandbox / 'bootstrap_0.prof')]
    assert [event for event in events if not event.startswith('ve_')] == [
        'sync_abs', 'bootstrap_0_start', 'pre_bootstrap_0_start', 'pre_bootstrap_0_stop', 'bootstrap_0_ok',
        'agent_gone', 'bootstrap_0_stop', 'END']


def test_raptor(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masters run in the agent's environment, other than tasks, and so their programs are found."""
    monkeypatch.setenv('PATH', '/usr/bin:/bin')
    pilot, _ = start()
    raptor = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER, 'ranks': 1}))[0]
    assert eventually(lambda: raptor.state in (rp.AGENT_EXECUTING, rp.FAILED))
    assert raptor.state == rp.AGENT_EXECUTING, raptor.exception


def test_stage_0_is_told_to_end(start: Start) -> None:
    """The batch system ends the job: the agent says so before it goes."""
    pilot, _ = start()
    os.kill(process_of(pilot, 'bootstrap_0.sh'), signal.SIGTERM)
    assert pilot.wait(timeout=30) == rp.CANCELED
    profile = Path(pilot.pilot_sandbox) / 'bootstrap_0.prof'
    eventually(lambda: 'END' in profile.read_text())
    events = [row.event for row in read_profile(profile)]
    assert events[events.index('killme'):] == ['killme', 'sigterm', 'agent_gone', 'bootstrap_0_stop', 'END']


def test_stage_0_is_killed(start: Start) -> None:
    """Nothing outlives it."""
    pilot, tmgr = start()
    task = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/sleep', 'arguments': ['1000']}))
    assert task.wait(rp.AGENT_EXECUTING, timeout=30) == rp.AGENT_EXECUTING
    os.kill(process_of(pilot, 'bootstrap_0.sh'), signal.SIGKILL)
    assert pilot.wait(timeout=30) == rp.FAILED


def test_agent_is_killed(start: Start) -> None:
    """The job ends, and says why."""
    pilot, _ = start()
    os.kill(process_of(pilot, 'agent_0.cfg'), signal.SIGKILL)
    assert pilot.wait(timeout=30) == rp.FAILED
    failure = read_failure((Path(pilot.pilot_sandbox) / 'bootstrap_0.failed').read_bytes())
    assert failure is not None
    assert (failure.stage, failure.exit_code) == (1, 30)
    assert failure.sentence == 'agent_0 was killed by signal 9 (SIGKILL)'


@pytest.fixture
def ssh(base: Path) -> Iterator[Path]:
    """A directory with a program `ssh` that reaches a real server on this host as `login`."""
    directory = base / 'ssh'
    directory.mkdir(mode=0o700)
    for name in ('host', 'user'):
        subprocess.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', directory / name], check=True)
    (directory / 'authorized').write_text((directory / 'user.pub').read_text())
    os.makedirs('/run/sshd', exist_ok=True)
    (port,) = free_ports(1)
    (directory / 'sshd_config').write_text(
        f'Port {port}\nListenAddress 127.0.0.1\nHostKey {directory}/host\nAuthorizedKeysFile {directory}/authorized\n'
        'PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n')
    (directory / 'ssh_config').write_text(
        f'Host login\n Hostname 127.0.0.1\n Port {port}\n IdentityFile {directory}/user\n IdentitiesOnly yes\n'
        ' StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n')
    program(directory / 'bin' / 'ssh', f'exec /usr/bin/ssh -F {directory}/ssh_config "$@"')
    server = subprocess.Popen(['/usr/sbin/sshd', '-D', '-e', '-f', directory / 'sshd_config'],
                              stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert server.stderr is not None
    assert b'listening' in server.stderr.readline()
    yield directory / 'bin'
    server.terminate()
    server.communicate()


def test_tunnel(start: Start, ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent reaches the hub through ssh alone, and the tunnel ends after it."""
    monkeypatch.setenv('PATH', f'{ssh}:/usr/bin:/bin')
    pilot, tmgr = start({'hub': {'listen': 'tcp://127.0.0.1'}}, forward_tunnel_endpoint='login')
    config = json.loads((Path(pilot.pilot_sandbox) / 'agent_0.cfg').read_text())
    assert config['coordination']['endpoint'].startswith('ipc:///tmp/rp.tunnel.')
    task = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/echo', 'arguments': ['through']}))
    assert (task.wait(timeout=30), task.stdout.strip()) == (rp.DONE, 'through')
    pilot.cancel()
    assert pilot.state == rp.CANCELED
    directory = os.path.dirname(config['coordination']['endpoint'].removeprefix('ipc://'))
    eventually(lambda: not os.path.exists(directory))


def test_tunnel_to_a_database(start: Start, ssh: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent has no other way to it than the socket."""
    monkeypatch.setenv('PATH', f'{ssh}:/usr/bin:/bin')
    (base / 'mongodb').mkdir()
    with running('nx-27017', base / 'mongodb') as server:
        monkeypatch.setenv('RADICAL_PILOT_DBURL', server.url)
        pilot, tmgr = start(forward_tunnel_endpoint='login')
        config = json.loads((Path(pilot.pilot_sandbox) / 'agent_0.cfg').read_text())
        assert config['coordination']['url'].startswith('mongodb://%2Ftmp%2Frp.tunnel.')
        task = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/echo', 'arguments': ['through']}))
        assert (task.wait(timeout=30), task.stdout.strip()) == (rp.DONE, 'through')
        pilot.session.close()
