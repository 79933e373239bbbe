"""What the tests of sessions without an application share: applications that go, what is left of their sessions, and
what coordinates them, for each test in turn.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mongo_servers
import pytest
from conftest import processes_with, wait_until
from leaver import COUNT

import radical.pilot as rp

APPLICATION = Path(__file__).with_name('leaver.py')
UIDS = [f'task.{number:06d}' for number in range(COUNT)]


@pytest.fixture(scope='module', params=['hub', 'stand-alone hub', 'nx-27017'])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The kind of coordination, or the address of a database server."""
    if request.param == 'nx-27017':
        with mongo_servers.running(request.param, tmp_path_factory.mktemp('server')) as running:
            yield running.url.rpartition('/')[0]
    else:
        yield request.param


@pytest.fixture
def backend(server: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What coordinates the sessions of the test, each test with a database or a stand-alone hub of its own."""
    if server == 'stand-alone hub':
        with stand_alone_hub() as url:
            monkeypatch.setenv('RADICAL_PILOT_PROXY_URL', url)
            yield
    else:
        if server != 'hub':
            monkeypatch.setenv('RADICAL_PILOT_DBURL', f'{server}/{base.name[-40:]}')
        yield


@contextmanager
def stand_alone_hub() -> Iterator[str]:
    """The address of a hub that nobody else uses."""
    hub = subprocess.Popen([sys.executable, '-m', 'rp_client.cli', 'hub', 'start', '--listen', 'tcp://127.0.0.1',
                            '--foreground'], stdout=subprocess.PIPE, text=True)
    try:
        assert hub.stdout is not None
        yield next(word for word in hub.stdout.readline().split() if word.startswith('tcp://'))
    finally:
        hub.send_signal(signal.SIGINT)
        hub.communicate(timeout=30)


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
