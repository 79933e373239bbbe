"""What the tests that cross packages share: sessions in directories of their own, and proof that nothing is left."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import radical.pilot as rp


class Run(NamedTuple):
    """A session with an active pilot of four (faked) cores and a task manager that uses it."""

    session: rp.Session
    pmgr: rp.PilotManager
    pilot: rp.Pilot
    tmgr: rp.TaskManager

    def one(self, **description: Any) -> rp.Task:
        """The task of that description, when it is final."""
        task = self.tmgr.submit_tasks(rp.TaskDescription(description))
        task.wait(timeout=30)
        return task


def pilot_description(base: Path, **values: Any) -> rp.PilotDescription:
    """A pilot on the local machine whose sandbox is below `base`."""
    return rp.PilotDescription({'resource': 'local.localhost', 'cores': 4, 'runtime': 10, 'sandbox': str(base)} | values)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for one test: its working directory, with counters and sandboxes below it."""
    monkeypatch.setenv('RADICAL_BASE', str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def session(base: Path) -> Iterator[rp.Session]:
    """An open session, closed at the end."""
    with rp.Session(cfg={'base': str(base)}) as opened:
        yield opened


@pytest.fixture
def run(session: rp.Session, base: Path) -> Run:
    """A session with an active pilot and a task manager."""
    pmgr = rp.PilotManager(session=session)
    tmgr = rp.TaskManager(session=session)
    pilot = pmgr.submit_pilots(pilot_description(base))
    tmgr.add_pilots(pilot)
    pilot.wait(rp.PMGR_ACTIVE, timeout=20)
    assert pilot.state == rp.PMGR_ACTIVE, (pilot.exception, pilot.stderr)
    return Run(session, pmgr, pilot, tmgr)


def wait_until(condition: Callable[[], Any], timeout: float = 10.0, what: str = '') -> Any:
    """The first true result of `condition()`; fails with the last one after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f'{what or "condition"} did not come true within {timeout} s, it is {result!r}')
        time.sleep(0.02)
    return result


def processes_with(text: str) -> dict[int, str]:
    """The command lines of all processes, but this one, that have `text` in their environment or command line."""
    found = {}
    for path in Path('/proc').iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            try:
                if (path / 'stat').read_text().rpartition(')')[2].split()[0] == 'Z':
                    continue
                content = (path / 'environ').read_bytes() + (path / 'cmdline').read_bytes()
                if text.encode() in content:
                    found[int(path.name)] = (path / 'cmdline').read_bytes().replace(b'\0', b' ').decode()
            except OSError:   # it has ended, or is not ours
                continue
    return found


def _children() -> set[int]:
    return {int(child) for task in Path('/proc/self/task').iterdir()
            for child in (task / 'children').read_text().split()}


def _runtime_directories() -> set[str]:
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith('rp.')}


@pytest.fixture(autouse=True)
def no_leftovers(tmp_path: Path) -> Iterator[None]:
    """Fail a test that leaves a child process, a thread, a process that knows its directory, or a runtime directory."""
    threads, children, directories = set(threading.enumerate()), _children(), _runtime_directories()
    yield
    wait_until(lambda: not {thread for thread in threading.enumerate() if thread.is_alive()} - threads,
               5, 'end of all threads')
    wait_until(lambda: _children() <= children, 5, 'end of all children')
    wait_until(lambda: not processes_with(str(tmp_path)), 5, f'end of {processes_with(str(tmp_path))}')
    wait_until(lambda: _runtime_directories() <= directories, 5, 'removal of runtime directories')
