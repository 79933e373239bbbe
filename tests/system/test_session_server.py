"""`rp session serve`: a session goes on without its application, and is handed over to the next one at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import pilot_description, processes_with, wait_until
from leaver import COUNT

import radical.pilot as rp

TIMEOUT = 40.0
APPLICATION = Path(__file__).with_name('leaver.py')


@contextmanager
def serving(uid: str) -> Iterator[subprocess.Popen[str]]:
    """`rp session serve` in a process of its own, which serves the session."""
    with subprocess.Popen([sys.executable, '-m', 'rp_client.cli', 'session', 'serve', uid], stderr=subprocess.PIPE,
                          text=True) as server:
        try:
            yield server
        finally:
            server.kill()


def end_of(server: subprocess.Popen[str]) -> str:
    """What a server says at its end, which is regular."""
    text = server.communicate(timeout=TIMEOUT)[1]
    assert server.returncode == 0, text
    return text.splitlines()[-1]


@pytest.mark.parametrize('how', ['files', 'left'])
def test_a_session_without_its_application(base: Path, how: str) -> None:
    subprocess.run([sys.executable, APPLICATION, 'session', how], stdin=subprocess.DEVNULL, timeout=50)
    (base / 'go').touch()
    with serving('session') as server:
        if how == 'files':   # staged to where the application was
            wait_until(lambda: all((base / f'out.{number}').exists() for number in range(COUNT)))
        else:
            wait_until((base / 'session' / 'served').exists)
        with rp.Session(uid='session') as session:   # while it is served
            assert end_of(server) == 'session is left: an application attaches to it'
            tmgr, = session.get_task_managers()
            assert set(tmgr.wait_tasks(timeout=TIMEOUT)) == {rp.DONE}
            assert [task.stdout.strip() for task in tmgr.get_tasks()] == tmgr.list_tasks()
            pmgr, = session.get_pilot_managers()
            pmgr.cancel_pilots()
            late = rp.TaskManager(session, scheduler='backfilling')
            late.add_pilots(pmgr.submit_pilots(pilot_description(base)))
            late.submit_tasks([rp.TaskDescription({'executable': 'touch', 'arguments': [f'{base}/late']})])
            session.close(terminate=False)   # the task is not bound yet
    with serving('session') as server:
        wait_until((base / 'late').exists)
        with rp.Session(uid='session') as session:
            session.get_pilot_managers()[0].cancel_pilots()
            session.close(terminate=False)
        end_of(server)
    with serving('session') as server:
        assert end_of(server) == 'session is left: all its tasks and pilots have ended'
    with rp.Session(uid='session') as session:   # after the server has ended
        assert [set(tmgr.wait_tasks(timeout=TIMEOUT)) for tmgr in session.get_task_managers()] == [{rp.DONE}, {rp.DONE}]
    wait_until(lambda: not processes_with(str(base)))


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_end_of_the_server(base: Path, number: int) -> None:
    """The session goes on as if its application had left, or died."""
    subprocess.run([sys.executable, APPLICATION, 'session', 'left'], stdin=subprocess.DEVNULL, timeout=50)
    with serving('session') as server:
        wait_until((base / 'session' / 'served').exists)
        os.kill(server.pid, number)
        server.wait(TIMEOUT)
    (base / 'go').touch()
    with rp.Session(uid='session') as session:
        assert set(session.get_task_managers()[0].wait_tasks(timeout=TIMEOUT)) == {rp.DONE}
    assert not (base / 'session' / 'served').exists()
