"""An application dies while it opens a session: its hub ends at once, and the next one can have the directory."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from parties import TIMEOUT, Party

from rp_api.coordination.connections import hub_file
from rp_api.coordination.contract import ClientHandler
from rp_api.coordination.coordinator import Settings
from rp_api.coordination.hub.store import claim, release
from rp_api.coordination.hub_process import HubProcess
from rp_api.errors import CoordinationError
from rp_api.system.processes import process_table

pytestmark = pytest.mark.fault

# opens a session, and is killed at some moment; what it says first are the process id of its hub, and its directory
APPLICATION = '''
import json, os, signal, sys
from pathlib import Path
from rp_api.coordination.connections import hub_file
from rp_api.coordination import hub_process as process
from rp_api.coordination.coordinator import Settings
from rp_api.loop.event_loop import Loop

moment, directory = sys.argv[1:]
tell, save, replace = process.HubProcess._tell, hub_file.save, os.replace

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def say(child, config):
    print(json.dumps([child.pid, config['runtime_dir']]), flush=True)
    if moment == 'started':
        die()
    if moment == 'telling':
        child.stdin.write(json.dumps(config)[:100])
        child.stdin.flush()
        die()
    if moment == 'told':
        child.stdin.write(json.dumps(config) + '\\n')
        child.stdin.flush()
        die()
    return tell(child, config)

process.HubProcess._tell = staticmethod(say)
if moment == 'welcome':
    hub_file.save = die
if moment == 'saving':
    os.replace = die
hub = process.HubProcess('session', Path(directory), Settings())
hub.start()
if moment == 'served':
    die()
loop = Loop()
connection = hub.connect(loop)
hub.watch(loop)
if moment == 'open':
    hub.when_open(die)
loop.run()
'''

BEFORE = ['started', 'telling', 'told', 'served', 'welcome', 'saving']
"""The moments at which nobody could attach the session yet."""


def killed(moment: str, directory: Path) -> tuple[int, Path]:
    """Have an application killed at that moment; the process id of its hub, and the directory of its socket."""
    environment = os.environ | {'TMPDIR': str(directory.parent)}
    with subprocess.Popen([sys.executable, '-c', APPLICATION, moment, str(directory)], stdout=subprocess.PIPE,
                          env=environment) as process:
        assert process.stdout is not None
        pid, runtime_dir = json.loads(process.stdout.readline())
        assert process.wait(TIMEOUT) == -signal.SIGKILL
    return pid, Path(runtime_dir)


def until_gone(pid: int) -> None:
    """Wait until a process has ended that is no child of ours."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([pidfd], [], [], TIMEOUT / 2)[0], 'the hub still runs'
    finally:
        os.close(pidfd)


class Owner(Party, ClientHandler):
    """A client that opens the session, or attaches it."""

    def __init__(self, directory: Path) -> None:
        self.hub = HubProcess('session', directory, Settings())
        self.hub.start()
        super().__init__()
        self.do(self._connect)
        self.until_settled()

    def _connect(self) -> None:
        self.attach(self.hub.connect(self.loop))
        self.hub.watch(self.loop)
        self.connection.note('key', 'value')

    def end(self) -> None:
        """Close the session."""
        self.close()
        self.hub.stop(TIMEOUT)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / 'session'
    directory.mkdir(0o700)
    return directory


@pytest.mark.parametrize('moment', BEFORE)
def test_hub_ends_with_an_application_that_nobody_can_follow(directory: Path, moment: str) -> None:
    pid, runtime_dir = killed(moment, directory)
    until_gone(pid)
    assert not runtime_dir.exists()
    owner = Owner(directory)
    assert not owner.hub.attached
    owner.end()


@pytest.mark.parametrize('moment', BEFORE)
def test_next_application_need_not_wait_for_that_end(directory: Path, moment: str) -> None:
    """It opens the session however far the hub of the former one is."""
    killed(moment, directory)
    owner = Owner(directory)
    assert not owner.hub.attached
    owner.end()


def test_session_that_is_open_is_attached(directory: Path) -> None:
    pid, _ = killed('open', directory)
    owner = Owner(directory)
    assert owner.hub.attached
    owner.until(lambda: owner.hub.pid == pid)
    owner.end()
    until_gone(pid)


def test_directory_is_had_when_another_hub_ends(directory: Path) -> None:
    claimed = claim(str(directory))
    released = threading.Timer(1.0, release, [claimed])
    released.start()
    Owner(directory).end()
    released.join()


def children() -> set[int]:
    """The children of this process that have not ended."""
    return {process.pid for process in process_table().values() if process.parent == os.getpid() and process.alive}


def test_directory_of_a_hub_that_goes_on_is_not_had(directory: Path) -> None:
    before = children()
    claimed = claim(str(directory))
    hub_process = HubProcess('session', directory, Settings())
    with pytest.raises(CoordinationError, match=f'another session is active in {directory}: '):
        hub_process.start()
    release(claimed)
    assert children() <= before


@contextmanager
def starting(directory: Path) -> Iterator[list[BaseException]]:
    """Have a hub of a new session started that has to wait for the directory; gives what came of that at the end."""
    errors: list[BaseException] = []
    claimed = claim(str(directory))
    hub_process = HubProcess('session', directory, Settings())   # there is no session yet

    def start() -> None:
        try:
            hub_process.start()
        except CoordinationError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    yield errors
    release(claimed)
    thread.join(TIMEOUT)


def test_session_that_was_opened_meanwhile_is_not_replaced(directory: Path, tmp_path: Path) -> None:
    """Its application was faster; it is attached when that one is gone."""
    elsewhere = tmp_path / 'elsewhere'
    elsewhere.mkdir()
    owner = Owner(elsewhere)
    with starting(directory) as errors:
        for name in ('hub.db', 'hub.db-wal', 'hub.json'):
            shutil.copy(elsewhere / name, directory)
    owner.end()
    assert f'another application has just opened a session in {directory}' in str(errors[0])
    assert hub_file.exists(directory)


def test_claim_is_not_kept_by_a_fork(directory: Path) -> None:
    claimed = claim(str(directory))
    child = os.fork()
    if not child:
        signal.pause()
    try:
        release(claimed)
        release(claim(str(directory)))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_hub_of_a_process_with_a_number_that_was_used_again_ends(directory: Path) -> None:
    """The number of a starter that is gone may be another process's."""
    config = hub_file.new_config('session', directory, Settings())
    ended = subprocess.run([sys.executable, '-m', 'rp_api.coordination.hub.main'], capture_output=True, text=True,
                           input=json.dumps(config | {'fresh': True, 'starter': (os.getpid(), 1)}) + '\n',
                           timeout=TIMEOUT, check=False)
    assert ended.returncode == 1
    assert 'the application that started this hub died' in ended.stderr
    assert not hub_file.exists(directory)
