"""What the tests of sessions without an application share: applications that go, and what is left of their sessions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import processes_with, wait_until
from leaver import COUNT

import radical.pilot as rp

APPLICATION = Path(__file__).with_name('leaver.py')
UIDS = [f'task.{number:06d}' for number in range(COUNT)]


@contextmanager
def application(how: str, program: Path = APPLICATION) -> Iterator[subprocess.Popen[str]]:
    """An application that has come to the moment at which it goes, or waits there."""
    process = subprocess.Popen([sys.executable, program, 'session', how], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == how
        yield process
    finally:
        process.communicate('\n', timeout=30)


@contextmanager
def teller(how: str) -> Iterator[subprocess.Popen[str]]:
    """The same with `teller.py`, which waits until it is killed."""
    with application(how, APPLICATION.with_name('teller.py')) as process:
        yield process


def left(how: str) -> None:
    """Have an application begin a session and go."""
    with application(how) as process:
        process.wait(30)


def kill_process(what: str, base: Path) -> None:
    """Kill the one process with this in its command line that belongs to the session."""
    (pid,) = [pid for pid, command in processes_with(str(base)).items() if what in command]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pid not in processes_with(str(base)))


def go(base: Path) -> None:
    """Let the tasks end."""
    (base / 'go').touch()


def collect(session: rp.Session) -> list[rp.Task]:
    """The tasks of the session, which have all done what they should."""
    tmgr = session.get_task_managers('tmgr.0000')
    assert tmgr.list_tasks() == UIDS
    assert tmgr.wait_tasks(timeout=40) == [rp.DONE] * COUNT
    tasks = tmgr.get_tasks()
    assert [task.stdout for task in tasks] == [f'{uid}\n' for uid in UIDS]
    assert {task.attempts for task in tasks} == {1}
    return tasks   # type: ignore[no-any-return]
