"""Whole sessions in a stand-alone hub, from the command line, through tunnels, and over the deaths of its processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from conftest import pilot_description, processes_with, wait_until
from ports import free_ports

import radical.pilot as rp
from rp_api.coordination.service import access as hub_access
from rp_api.errors import CoordinationError

TUNNEL = Path(__file__).with_name('tunnel.py')
SSHD = shutil.which('sshd', path=f'{os.environ.get("PATH", "")}:/usr/sbin')

Command = Callable[..., str]


@pytest.fixture
def command(base: Path) -> Iterator[Command]:
    """Runs `rp` with arguments, and gives what it says; all hubs are ended after the test."""
    def run(*arguments: str, code: int = 0) -> str:
        done = subprocess.run([sys.executable, '-m', 'rp_client.cli', *arguments], capture_output=True, text=True,
                              timeout=50)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    yield run
    for access in hub_access.all_known():
        run('hub', 'stop', '--force', access.url)


def start(command: Command, *options: str) -> str:
    """Start a hub; gives its URL."""
    return command('hub', 'start', *options).split()[0]


def kill(what: str, base: Path) -> None:
    """Kill the one process of this test with that in its command line, and wait for its end."""
    (pid,) = [pid for pid, line in processes_with(str(base)).items() if what in line]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pid not in processes_with(str(base)))


def test_a_new_session_attaches_to_nothing(command: Command, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the hub has an open one of the uid that comes next, from a directory that has other numbers."""
    url = start(command)
    rp.Session(uid='run.0000', proxy_url=url, cfg={'base': str(base / 'other')}).close(terminate=False)
    monkeypatch.setenv('RADICAL_PILOT_SID_BASE', 'run')
    with pytest.raises(CoordinationError, match=r"run\.0000 is open already: .* Session.uid='run\.0000'."):
        rp.Session(proxy_url=url)
    with rp.Session(proxy_url=url) as session:
        assert (session.uid, session.attached) == ('run.0001', False)
    with rp.Session(uid='run.0000', proxy_url=url) as session:
        assert session.attached


def run_tasks(session: rp.Session, base: Path, count: int = 20) -> tuple[rp.Pilot, rp.TaskManager]:
    """Have some tasks done by a new pilot."""
    pilot = rp.PilotManager(session).submit_pilots(pilot_description(base))
    tmgr = rp.TaskManager(session)
    tmgr.add_pilots(pilot)
    tmgr.submit_tasks([rp.TaskDescription({'executable': 'echo', 'arguments': [n]}) for n in range(count)])
    assert tmgr.wait_tasks(timeout=40) == [rp.DONE] * count
    return pilot, tmgr


def test_sessions_share_a_hub(command: Command, base: Path) -> None:
    url = start(command)
    with rp.Session(url, uid='one') as one, rp.Session(url, uid='two') as two:
        assert one.reg_addr != two.reg_addr
        run_tasks(one, base)
        run_tasks(two, base)
        assert 'sessions     2\n  one  serving' in command('hub', 'status')
        assert 'these sessions are open: one, two' in command('hub', 'stop', code=1)
        assert not (Path(one.path) / 'hub.db').exists()
    wait_until(lambda: not [line for line in processes_with(str(base)).values() if 'rp_agent' in line])
    wait_until(lambda: 'sessions     0' in command('hub', 'status'))
    where = str(hub_access.access_directory() / hub_access.short_name())
    assert command('session', 'list', '--base', where).count('closed') == 2
    assert 'has ended' in command('hub', 'stop')
    assert command('hub', 'list') == ''


def test_the_service_and_the_hub_die_while_tasks_run(command: Command, base: Path) -> None:
    url = start(command)
    with rp.Session(url) as session:
        _, tmgr = run_tasks(session, base, 2)
        go = base / 'go'
        tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/sh', 'arguments': [
            '-c', f'until [ -e {go} ]; do sleep 0.02; done']}) for _ in range(4)])
        tmgr.wait_tasks([task.uid for task in tasks], state=rp.AGENT_EXECUTING, timeout=30)
        kill('rp_api.coordination.service.main', base)
        kill('rp_api.coordination.hub.main', base)
        go.touch()
        assert start(command) == url
        assert tmgr.wait_tasks(timeout=40) == [rp.DONE] * 6


def test_reattach_to_a_served_session(command: Command, base: Path) -> None:
    url = start(command)
    session = rp.Session(url, uid='one')
    pilot, _ = run_tasks(session, base)
    session.close(terminate=False)
    assert pilot.state == rp.PMGR_ACTIVE
    assert 'tasks: 20 DONE' in command('session', 'attach', 'one', '--hub', url, '--wait')
    with rp.Session(url, uid='one') as again:
        assert again.attached
        assert again.get_task_managers('tmgr.0000').wait_tasks() == [rp.DONE] * 20


def test_attach_to_a_session_that_is_not_there(command: Command, base: Path) -> None:
    """Nothing is made of a name that is wrong."""
    url = start(command)
    before = sorted(base.iterdir())
    for uid in ('nope', '../nope'):
        assert uid in command('session', 'attach', uid, '--hub', url, code=1)
    assert 'sessions     0' in command('hub', 'status')
    assert sorted(base.iterdir()) == before
    where = str(hub_access.access_directory() / hub_access.short_name())
    assert command('session', 'list', '--base', where) == 'no sessions\n'


@contextmanager
def ended_with_the_test(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.communicate(timeout=30)


@contextmanager
def forwarder(pairs: list[tuple[int, int]]) -> Iterator[None]:
    """Ports at which others can be reached, while this is open."""
    process = subprocess.Popen([sys.executable, TUNNEL, *(f'{near}:{far}' for near, far in pairs)], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with ended_with_the_test(process):
        assert process.stdout is not None
        assert process.stdout.readline() == 'ready\n'
        yield


def test_agent_behind_a_tunnel(command: Command, base: Path) -> None:
    """It reaches the hub only where the user says."""
    session_port, agent_port = free_ports(2)
    url = start(command, '--ports', f'{session_port}-{session_port}')
    with forwarder([(agent_port, session_port)]), rp.Session(
            url, cfg={'hub': {'address': f'tcp://127.0.0.1:{agent_port}'}}) as session:
        pilot, _ = run_tasks(session, base)
        config = json.loads((Path(pilot.pilot_sandbox.removeprefix('file://localhost')) / 'agent_0.cfg').read_text())
        assert config['coordination']['endpoint'] == f'tcp://127.0.0.1:{agent_port}'


def test_client_behind_a_tunnel(command: Command, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a copy of the access file, and reaches the hub at another port."""
    control, session_port = free_ports(2)
    url = start(command, '--ports', f'{session_port}-{session_port}')
    access = hub_access.path_of(hub_access.short_name(), hub_access.split_url(url)[1])
    laptop = base / 'laptop'
    with monkeypatch.context() as patch:
        patch.setenv('RADICAL_BASE', str(laptop))
        copy = hub_access.path_of('localhost', control)
        copy.parent.mkdir(parents=True)
        shutil.copy(access, copy)
        with forwarder([(control, hub_access.split_url(url)[1])]), rp.Session(f'tcp://localhost:{control}') as session:
            assert session.reg_addr == f'tcp://localhost:{session_port}'
            run_tasks(session, base)


@pytest.mark.skipif(SSHD is None and 'CI' not in os.environ, reason='no sshd on this machine')
def test_agent_behind_ssh(command: Command, base: Path) -> None:
    """The same with a real tunnel."""
    assert SSHD is not None
    session_port, agent_port, ssh_port = free_ports(3)
    for key in ('host', 'user'):
        subprocess.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', base / key], check=True)
    shutil.copy(base / 'user.pub', base / 'authorized')
    with suppress(PermissionError):   # without it, sshd does not start for root
        Path('/run/sshd').mkdir(exist_ok=True)
    (base / 'sshd_config').write_text(
        f'Port {ssh_port}\nListenAddress 127.0.0.1\nHostKey {base}/host\nAuthorizedKeysFile {base}/authorized\n'
        f'PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n')
    sshd = subprocess.Popen([SSHD, '-D', '-e', '-f', str(base / 'sshd_config')], stderr=subprocess.PIPE, text=True)
    try:
        assert sshd.stderr is not None
        assert re.match('Server listening', sshd.stderr.readline())
        url = start(command, '--ports', f'{session_port}-{session_port}')
        tunnel = subprocess.Popen(
            ['ssh', '-F', '/dev/null', '-N', '-v', '-i', base / 'user', '-p', str(ssh_port), '-o', 'BatchMode=yes',
             '-o', 'StrictHostKeyChecking=no', '-o', 'UserKnownHostsFile=/dev/null', '-L',
             f'127.0.0.1:{agent_port}:127.0.0.1:{session_port}', '127.0.0.1'], stderr=subprocess.PIPE, text=True)
        try:
            assert tunnel.stderr is not None
            assert any('Entering interactive session' in line for line in tunnel.stderr)
            with rp.Session(url, cfg={'hub': {'address': f'tcp://127.0.0.1:{agent_port}'}}) as session:
                run_tasks(session, base)
        finally:
            tunnel.kill()
            tunnel.communicate()
    finally:
        sshd.kill()
        sshd.communicate()
