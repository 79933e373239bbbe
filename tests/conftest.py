"""What the tests that cross packages share: sessions in directories of their own, and proof that nothing is left."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

import radical.pilot as rp
from rp_api.coordination.hub_process import HubProcess
from rp_profiling.check import check_session
from rp_profiling.read.files import name_of, profiles_below, text_of


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


def hub_pid(session: rp.Session) -> int:
    """The process of the session's own hub."""
    return cast(HubProcess, session._owner.engine.coordinator).pid


def pilot_description(base: Path, **values: Any) -> rp.PilotDescription:
    """A pilot on the local machine whose sandbox is below `base`."""
    known = {'resource': 'local.exact', 'cores': 4, 'runtime': 10, 'sandbox': str(base)}
    return rp.PilotDescription(known | values)


@pytest.fixture(scope='session', autouse=True)
def own_temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Temporary files go to a directory of this run, so that what others do here is not taken for our leftovers."""
    tmp_path_factory.getbasetemp()   # which is not to be in it: it is kept
    with tempfile.TemporaryDirectory(prefix='rptests.') as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv('TMPDIR', directory)
        patch.setenv('XDG_STATE_HOME', f'{directory}/state')
        patch.setattr(tempfile, 'tempdir', directory)
        yield


@pytest.fixture(scope='session', autouse=True)
def interrupts() -> None:
    """Let SIGINT and SIGHUP end programs of tests that run in the background of a shell, or under nohup."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for one test: its working directory, with counters and sandboxes below it, and a user state."""
    monkeypatch.setenv('RADICAL_BASE', str(tmp_path))
    monkeypatch.setenv('XDG_STATE_HOME', f'{tempfile.gettempdir()}/states/{tmp_path.name}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def session(base: Path) -> Iterator[rp.Session]:
    """An open session, closed at the end; what it has left in traces has to be in order."""
    with rp.Session(cfg={'base': str(base)}) as opened:
        yield opened
    traces_in_order(opened.path)


@pytest.fixture
def run(session: rp.Session, base: Path) -> Run:
    """A session with an active pilot and a task manager."""
    return _started(session, base)


@pytest.fixture(scope='module')
def shared(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Run]:
    """What `run` gives, with two GPUs (faked) besides, for all tests of a module that leave it as they found it."""
    base = tmp_path_factory.mktemp('shared')
    with pytest.MonkeyPatch.context() as patch, _nothing_left(base):
        patch.setenv('RADICAL_BASE', str(base))
        patch.chdir(base)
        with rp.Session(cfg={'base': str(base)}) as opened:
            _SHARED[opened.uid] = base
            yield _started(opened, base, gpus=2)
            del _SHARED[opened.uid]
        if request.node.get_closest_marker('disorder') is None:
            traces_in_order(opened.path)


def _started(session: rp.Session, base: Path, **values: Any) -> Run:
    pmgr = rp.PilotManager(session=session)
    tmgr = rp.TaskManager(session=session)
    pilot = pmgr.submit_pilots(pilot_description(base, **values))
    tmgr.add_pilots(pilot)
    pilot.wait(rp.PMGR_ACTIVE, timeout=30)
    assert pilot.state == rp.PMGR_ACTIVE, (pilot.exception, pilot.stderr)
    return Run(session, pmgr, pilot, tmgr)


def traces_in_order(directory: str | Path, *sandboxes: str | Path) -> None:
    """Fail if the traces of a session, and of its pilots, contradict the event catalogue."""
    findings = check_session(directory, *sandboxes)
    assert not findings, str(findings)


@pytest.fixture(autouse=True)
def all_traces_in_order(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Hold the traces of all sessions that a test has had below its directory against the event catalogue.

    `@pytest.mark.disorder(reason)` is for tests whose traces cannot be in order.
    """
    yield
    if request.node.get_closest_marker('disorder') is None:
        for profile in profiles_below(tmp_path):
            if name_of(profile) == profile.parent.name and b'session_start' in b''.join(text_of(profile)):
                traces_in_order(profile.parent)


def wait_until(condition: Callable[[], Any], timeout: float = 30.0, what: str = '') -> Any:
    """The first true result of `condition()`; fails with the last one after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f'{what or "condition"} did not come true within {timeout} s, it is {result!r}')
        time.sleep(0.02)
    return result


def told(process: Path) -> bytes:
    """The environment and the command line of a process, which `process` stands for in /proc; empty if it is gone."""
    try:
        return (process / 'environ').read_bytes() + (process / 'cmdline').read_bytes()
    except OSError:   # or it is not ours
        return b''


def processes_with(*texts: str) -> dict[int, str]:
    """The command lines of all processes, but this one, that have a text in their environment or command line.

    A process that has not executed its program yet looks like its parent, whose memory it uses, and is left out.
    """
    found, wanted = {}, [text.encode() for text in texts]
    for path in Path('/proc').iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            try:
                content = told(path)
                if not any(text in content for text in wanted):
                    continue
                state, parent = (path / 'stat').read_text().rpartition(')')[2].split()[:2]
                if state != 'Z' and content != told(path.parent / parent):
                    found[int(path.name)] = (path / 'cmdline').read_bytes().replace(b'\0', b' ').decode()
            except OSError:   # it has ended, or is not ours
                continue
    return found


def processes_of(task: rp.Task, part: str = '') -> dict[int, str]:
    """The processes of a task, or a part of it, and not of tasks with the same uid in other sessions."""
    of_session = processes_with(f'RP_SESSION_ID={task.tmgr.session.uid}\0')
    return {pid: command for pid, command in processes_with(f'RP_TASK_ID={task.uid}{part}\0').items()
            if pid in of_session}


def _children() -> set[int]:
    found: set[int] = set()
    for task in Path('/proc/self/task').iterdir():
        with suppress(FileNotFoundError):   # the thread has ended
            found.update(map(int, (task / 'children').read_text().split()))
    return found


def _runtime_directories() -> set[str]:
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith('rp.')}


_SHARED: dict[str, Path] = {}
"""The sessions that several tests use, and their directories."""


def _threads() -> set[threading.Thread]:
    """All threads, but those that a shared session starts when it first needs them."""
    known = (*(f'{uid}.' for uid in _SHARED), *(['helper'] if _SHARED else []))
    return {thread for thread in threading.enumerate() if not (known and thread.name.startswith(known))}


@contextmanager
def _nothing_left(directory: Path) -> Iterator[None]:
    """Fail if something is left that was not there before: a child process, a thread, a runtime directory, a process
    that knows `directory` or belongs to a shared session.
    """
    known = [str(path) for path in (directory, *_SHARED.values())]
    threads, children, directories, before = _threads(), _children(), _runtime_directories(), processes_with(*known)

    def left() -> dict[str, Any]:
        found = {'threads': {thread for thread in _threads() if thread.is_alive()} - threads,
                 'children': _children() - children, 'directories': _runtime_directories() - directories,
                 'processes': {pid: line for pid, line in processes_with(*known).items() if pid not in before}}
        return {what: things for what, things in found.items() if things}

    yield
    deadline = time.monotonic() + 20
    while (things := left()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert things == {}, 'this was left'


@pytest.fixture(autouse=True)
def no_leftovers(tmp_path: Path) -> Iterator[None]:
    """Fail a test that leaves something running, or a runtime directory."""
    with _nothing_left(tmp_path):
        yield
