"""`rp session` on sessions in directories: those that are open, left, killed and closed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import pilot_description, processes_with, wait_until
from leaver import COUNT

import radical.pilot as rp

APPLICATION = Path(__file__).with_name('leaver.py')
UIDS = [f'task.{number:06d}' for number in range(COUNT)]

Command = Callable[..., str]


@pytest.fixture
def command(base: Path) -> Command:
    """Runs `rp session` with arguments, and gives what it says."""
    def run(*arguments: str, code: int = 0, **environ: str) -> str:
        done = subprocess.run([sys.executable, '-m', 'rp_client.cli', 'session', *arguments], capture_output=True,
                              text=True, timeout=50, env=os.environ | environ)
        assert done.returncode == code, done.stderr
        assert 'Traceback' not in done.stderr
        return done.stdout + done.stderr if code else done.stdout

    return run


def leave(how: str) -> None:
    """Have an application begin a session with tasks that wait for the file `go`, and go."""
    subprocess.run([sys.executable, APPLICATION, 'session', how], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   timeout=50)


def finish(base: Path, command: Command) -> None:
    """Let the tasks end, and end the session."""
    (base / 'go').touch()
    command('attach', 'session')
    command('attach', 'session', '--cancel')


def listed(command: Command, *arguments: str, **environ: str) -> dict[str, dict[str, Any]]:
    return {each['uid']: each for each in json.loads(command('list', '--json', *arguments, **environ))}


@pytest.fixture
def closed(base: Path) -> rp.Session:
    """A session that is over."""
    with rp.Session(uid='done') as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
        tmgr.submit_tasks([
            rp.TaskDescription({'executable': 'echo', 'arguments': ['hello'], 'environment': {'A': 'b'}}),
            rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', 'exit 3']})])
        tmgr.wait_tasks(timeout=40)
    return session


def test_a_closed_session(closed: rp.Session, command: Command) -> None:
    (line,) = command('list').splitlines()[1:]
    uid, *_, size, unit = line.split()
    assert (uid, line.split()[3:8]) == ('done', ['closed', '1', '2', '1', '1'])
    assert (float(size) > 0, unit) == (True, 'KB')
    text = command('show', 'done', '--tasks')
    assert 'state    closed' in text
    assert 'tasks    1 DONE, 1 FAILED' in text
    assert 'pilot.0000  CANCELED' in text
    first, second = (line.split() for line in text.splitlines()[-2:])
    assert (first[:4], second[:4]) == (['task.000000', 'pilot.0000', 'DONE', '0'],
                                       ['task.000001', 'pilot.0000', 'FAILED', '3'])
    shown = json.loads(command('show', 'done', '--json', '--tasks'))
    assert [task['uid'] for task in shown['task_list']] == ['task.000000', 'task.000001']


def test_export(closed: rp.Session, command: Command, base: Path) -> None:
    records = [json.loads(line) for line in command('export', 'done').splitlines()]
    assert Counter(record['type'] for record in records) == {'session': 1, 'pilot': 1, 'task': 2}
    task = records[-2]
    assert (task['uid'], task['state'], task['stdout']) == ('task.000000', 'DONE', 'hello\n')
    assert task['description']['environment'] == {'A': 'b'}
    assert command('export', 'done', '-o', 'file') == ''
    assert (base / 'file').read_text() == command('export', 'done')
    assert 'file' in command('export', 'done', '-o', 'file', code=1)


def test_where_sessions_are(closed: rp.Session, command: Command, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = base / 'elsewhere'
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert listed(command, '--base', '.') == {}
    assert list(listed(command, '--base', str(base))) == ['done']
    assert list(listed(command)) == ['done']   # by the index of the user's sessions
    assert f'where    {closed.path}' in command('show', 'done')
    assert command('purge', '--all-closed') == ''   # of this directory
    monkeypatch.setenv('XDG_STATE_HOME', str(elsewhere))   # the index is lost
    assert listed(command) == {}
    assert list(listed(command, RADICAL_PILOT_BASE=str(base))) == ['done']


def test_a_closed_session_is_not_attached_but_removed(closed: rp.Session, command: Command, base: Path) -> None:
    assert 'done is closed' in command('attach', 'done', code=1)
    assert command('purge', '--all-closed', '--older-than', '1') == ''
    assert command('purge', 'done') == 'done is removed\n'
    assert not (base / 'done').exists()
    assert 'there is no session done' in command('show', 'done', code=1)


def test_an_open_session(session: rp.Session, command: Command) -> None:
    assert f'open (pid {os.getpid()} on ' in command('list')
    assert f'{session.uid} is in use: open' in command('purge', session.uid, code=3)
    assert str(os.getpid()) in command('attach', session.uid, code=1)
    assert not session.closed


def test_a_session_that_was_left(base: Path, command: Command) -> None:
    leave('left')
    assert listed(command)['session']['state'] == 'orphaned'
    assert 'session is in use: orphaned' in command('purge', 'session', code=3)
    (base / 'go').touch()
    text = command('attach', 'session', '--wait')
    assert f'tasks: {COUNT} DONE' in text
    assert 'session stays open, with pilot.0000' in text
    command('attach', 'session', '--cancel')
    wait_until(lambda: not processes_with(str(base)))
    assert listed(command)['session'] | {'tasks': {'DONE': COUNT}, 'state': 'closed'} == listed(command)['session']
    assert command('purge', '--all-closed') == 'session is removed\n'


def test_a_session_whose_processes_were_killed(base: Path, command: Command) -> None:
    leave('running')
    (hub,) = [pid for pid, line in processes_with(str(base)).items() if 'coordination.hub' in line]
    os.kill(hub, signal.SIGKILL)
    wait_until(lambda: listed(command)['session']['state'] == 'crashed')
    finish(base, command)
    assert listed(command)['session']['tasks'] == {'DONE': COUNT}


def test_failed_tasks_make_the_exit_code(base: Path, command: Command) -> None:
    leave('left')
    with rp.Session(uid='session') as session:
        task = session.get_task_managers('tmgr.0000').submit_tasks(rp.TaskDescription({'executable': '/bin/false'}))
        (base / 'go').touch()
        task.wait(rp.FINAL, timeout=30)
        session.close(terminate=False)
    assert f'tasks: {COUNT} DONE, 1 FAILED' in command('attach', 'session', '--wait', code=1)
    assert '1 FAILED' in command('attach', 'session')
    command('attach', 'session', '--cancel')


def test_ctrl_c_leaves_the_session_running(base: Path, command: Command) -> None:
    leave('left')
    process = subprocess.Popen([sys.executable, '-m', 'rp_client.cli', 'session', 'attach', 'session'], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    assert process.stderr.readline() == f'session: {COUNT} tasks, {COUNT} of them have not ended yet\n'
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert 'session stays open, with pilot.0000' in said
    assert [line for line in processes_with(str(base)).values() if 'rp_agent' in line]
    finish(base, command)
