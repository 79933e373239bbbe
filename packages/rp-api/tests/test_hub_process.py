"""The hub's process as a coordinator: begun, found again, started again, left."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hub_support import Agent, Client
from parties import TIMEOUT, Party

from rp_api import states
from rp_api.coordination import hub_process as process
from rp_api.coordination import sessions
from rp_api.coordination.contract import PROTOCOL, ClientHandler
from rp_api.coordination.coordinator import Settings
from rp_api.coordination.hub_process import HubProcess
from rp_api.errors import CoordinationError, OwnershipError

pytestmark = pytest.mark.fault


class Owner(Party, ClientHandler):
    """A client that sees to its hub."""

    def __init__(self, directory: Path, **settings: float | str) -> None:
        super().__init__()
        self.hub = HubProcess('session', directory, Settings(**settings))   # type: ignore[arg-type]
        self.hub.start()
        self.do(self._begin)

    def _begin(self) -> None:
        self.attach(self.hub.connect(self.loop))
        self.hub.watch(self.loop)

    def insert(self, uid: str) -> None:
        """Have the hub accept a pilot."""
        self.do(self.connection.insert_pilots, {uid: {}})
        self.until_settled()

    def known(self) -> list[str]:
        """The pilots that the hub knows."""
        found: list[str] = []

        def take(page: object) -> None:
            found.extend(pilot.uid for pilot in page.pilots)   # type: ignore[attr-defined]
            self.note('page')

        self.do(self.connection.recover, take)
        self.until_news('page')
        return found

    def leave(self) -> None:
        """Go, and let the hub go on."""
        self.do(self.connection.detach)
        self.close()
        self.hub.stop(0, leave=True)

    def vanish(self) -> None:
        """Go without a word; the hub, if it can do anything at all, is killed."""
        self.loop.stop()
        self.until_stopped()
        self.hub.stop(0)
        self.connection.close()
        self.close()

    def stay(self) -> None:
        """Lose the hub, which is killed, and do nothing about it."""
        self.loop.stop()
        self.until_stopped()
        self.connection.close()
        self.close()
        os.kill(self.hub.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.hub.pid, os.WEXITED | os.WNOWAIT)

    def finish(self) -> None:
        """End the session, and wait until that is accepted."""
        self.do(self.hub.ending)
        self.do(self.connection.finish, lambda: self.note('finished'))
        self.until_news('finished')
        self.close()
        self.hub.stop(TIMEOUT)

    def end(self) -> None:
        """End the session."""
        self.do(self.connection.close)
        self.close()
        self.hub.stop(TIMEOUT)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    made = Owner(tmp_path)
    yield made
    made.close()
    made.hub.stop(0)


def config(directory: Path) -> Path:
    return directory / 'hub.json'


def test_configuration_is_kept_private_for_as_long_as_the_session_is_open(tmp_path: Path, owner: Owner) -> None:
    owner.insert('pilot.0000')
    assert stat.S_IMODE(config(tmp_path).stat().st_mode) == 0o600
    known = json.loads(config(tmp_path).read_text())
    assert (known['session'], known['protocol']) == ('session', PROTOCOL)
    assert known['secrets'].keys() == known['peers'].keys() == {'client', 'agent'}
    owner.end()
    assert not config(tmp_path).exists()


@pytest.mark.parametrize('hub', ['lives', 'has died'])
def test_session_that_was_left_is_found(tmp_path: Path, owner: Owner, hub: str) -> None:
    """At the same place, with the same keys, and with what is in it."""
    owner.insert('pilot.0000')
    pid = owner.hub.pid
    if hub == 'lives':
        owner.leave()
    else:
        owner.vanish()
    second = Owner(tmp_path)
    try:
        assert second.hub.attached
        assert second.known() == ['pilot.0000']
        assert (second.hub.pid == pid) is (hub == 'lives')
        assert second.hub.agent_access == owner.hub.agent_access
        second.insert('pilot.0001')
    finally:
        second.end()
    assert not config(tmp_path).exists()


@pytest.mark.parametrize('times', [1, 2])
def test_hub_that_was_found_is_started_again(tmp_path: Path, owner: Owner, times: int) -> None:
    owner.insert('pilot.0000')
    owner.leave()
    second = Owner(tmp_path)
    try:
        second.insert('pilot.0001')
        for number in range(times):
            os.kill(second.hub.pid, signal.SIGKILL)
            second.until(partial(lambda number: second.news.count('found') > number, number))
        assert second.known() == ['pilot.0000', 'pilot.0001']
    finally:
        second.end()


@pytest.mark.parametrize('found', [False, True])
def test_hub_that_is_told_the_end_is_not_started_again(tmp_path: Path, owner: Owner, found: bool) -> None:
    if found:
        owner.insert('pilot.first')   # it can be found when it has met its client
        owner.leave()
        owner = Owner(tmp_path)
    owner.insert('pilot.0000')
    pid = owner.hub.pid
    owner.finish()
    assert owner.hub.pid == pid
    assert sessions.summary(tmp_path).state == sessions.CLOSED
    assert not config(tmp_path).exists()


@pytest.mark.parametrize('found', [False, True])
def test_hub_that_dies_before_it_has_heard_the_end_is_started_again(tmp_path: Path, owner: Owner, found: bool) -> None:
    """Otherwise the session would stay open."""
    if found:
        owner.insert('pilot.first')   # it can be found when it has met its client
        owner.leave()
        owner = Owner(tmp_path)
    owner.insert('pilot.0000')
    os.kill(owner.hub.pid, signal.SIGSTOP)
    os.kill(owner.hub.pid, signal.SIGKILL)
    owner.finish()
    assert sessions.summary(tmp_path).state == sessions.CLOSED
    assert not config(tmp_path).exists()


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The next hubs that are started can write nothing but a little log; afterwards, those that live can."""
    limited = ('import resource; from rp_api.coordination.hub import main as hub; serve = hub.serve; '
               # after its own look
               'hub.serve = lambda *rest: (resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY)), '
               'serve(*rest)); raise SystemExit(hub.main())')
    started: list[int] = []
    popen = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[str]:
        process = popen(*arguments, **options)
        started.append(process.pid)
        return process

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, 'Popen', start)
        patch.setattr(process, 'python_program', lambda module: [sys.executable, '-c', limited])
        yield
    for pid in started:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_a_hub_that_cannot_be_started_again_is_given_up(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it has run."""
    def no_process(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    owner.stay()
    monkeypatch.setattr(owner.hub, '_started', time.monotonic() - 2 * process.STEADY_S)
    monkeypatch.setattr(subprocess, 'Popen', no_process)
    with pytest.raises(CoordinationError, match=rf'{os.strerror(errno.EAGAIN)}, {process.MAX_RESTARTS + 1} times; end'):
        owner.hub._died()


def test_the_directory_of_a_hub_that_was_killed_while_it_started_is_removed(tmp_path: Path, owner: Owner) -> None:
    """Its client has not saved the path."""
    former = owner.hub._config['runtime_dir']
    owner.stay()
    assert Path(former).is_dir()
    config(tmp_path).unlink(missing_ok=True)
    second = Owner(tmp_path)
    try:
        assert not Path(former).exists()
    finally:
        second.finish()
    assert not (tmp_path / 'hub.dir').exists()


def test_hub_on_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = HubProcess('session', tmp_path, Settings())
    with full_disk(monkeypatch), pytest.raises(CoordinationError, match=r'start: .*/hub.db cannot be written: '):
        hub.start()
    assert not Path(hub.address.address.removeprefix('ipc://')).parent.exists()


def test_session_on_a_full_disk_is_not_attached(tmp_path: Path, owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    owner.insert('pilot.0000')
    owner.vanish()
    hub = HubProcess('session', tmp_path, Settings())
    with full_disk(monkeypatch), pytest.raises(CoordinationError, match=r'start: .*/hub.db cannot be written: '):
        hub.start()
    second = Owner(tmp_path)
    try:
        assert second.known() == ['pilot.0000']
    finally:
        second.end()


def test_hub_that_is_started_again_waits_for_room(tmp_path: Path, owner: Owner,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    owner.insert('pilot.0000')
    handlers = owner.connection._handlers
    welcomed = handlers['welcome']

    def on_welcome(hub: Any) -> None:
        welcomed(hub)
        owner.note('welcome')

    monkeypatch.setitem(handlers, 'welcome', on_welcome)
    with full_disk(monkeypatch):
        pid = owner.hub.pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: 'the hub waits until it can' in (tmp_path / 'hub.log').read_text())
        owner.do(owner.connection.insert_pilots, {'pilot.0001': {}})
        assert owner.hub.pid != pid
        assert 'welcome' not in owner.news
    owner.until_settled()
    assert owner.known() == ['pilot.0000', 'pilot.0001']
    owner.end()


def until(reached: Callable[[], bool]) -> None:
    """Wait for what nobody tells."""
    deadline = time.monotonic() + TIMEOUT
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_hub_that_dies_before_it_has_answered(tmp_path: Path, owner: Owner) -> None:
    """Nobody knows its process id, and yet it is started again."""
    owner.insert('pilot.0000')
    pid = owner.hub.pid
    owner.leave()
    os.kill(pid, signal.SIGSTOP)
    second = Owner(tmp_path)
    try:
        os.kill(pid, signal.SIGKILL)
        assert second.known() == ['pilot.0000']
        assert second.hub.pid != pid
    finally:
        second.end()


def test_session_that_was_closed_is_not_found(tmp_path: Path, owner: Owner) -> None:
    """Even if its keys are still there."""
    owner.insert('pilot.0000')
    saved = config(tmp_path).read_text()
    owner.end()
    config(tmp_path).write_text(saved)
    second = Owner(tmp_path)
    assert not second.hub.attached
    assert second.hub.agent_access != owner.hub.agent_access
    second.end()


def test_directory_with_the_files_of_another_session(tmp_path: Path, owner: Owner) -> None:
    """They are not lost, and not taken for those of this one."""
    owner.insert('pilot.0000')
    owner.leave()
    with pytest.raises(CoordinationError, match=f'{tmp_path} has the files of session session, .* attach that one, or'):
        HubProcess('another', tmp_path, Settings())
    second = Owner(tmp_path)
    assert second.known() == ['pilot.0000']
    second.end()


@pytest.mark.parametrize('which', ['directory', 'hub.json', 'hub.db', 'socket', 'link'])
def test_session_is_attached_only_if_all_of_it_is_ours_alone(tmp_path: Path, owner: Owner, which: str) -> None:
    """A hub of another user may wait there, with tasks for us."""
    owner.insert('pilot.0000')
    owner.leave()
    socket = Path(json.loads(config(tmp_path).read_text())['runtime_dir'])
    path, bits = {'directory': (tmp_path, 0o770), 'hub.json': (config(tmp_path), 0o644), 'socket': (socket, 0o755),
                  'hub.db': (tmp_path / 'hub.db', 0o666), 'link': (config(tmp_path), 0o600)}[which]
    before = stat.S_IMODE(path.stat().st_mode)
    path.chmod(bits)
    if which == 'link':
        path.rename(tmp_path / 'moved')
        path.symlink_to('moved')
    with pytest.raises(OwnershipError, match=f'{path} is not ours alone: '):
        HubProcess('session', tmp_path, Settings()).start()
    if which == 'link':
        (tmp_path / 'moved').rename(path)
    path.chmod(before)
    second = Owner(tmp_path)
    assert second.known() == ['pilot.0000']
    second.end()


def test_files_of_a_hub_are_private_whatever_the_umask(tmp_path: Path, owner: Owner) -> None:
    """Also if their owner lets others into the directory."""
    owner.insert('pilot.0000')
    for name in ('hub.db', 'hub.json'):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    owner.end()


def test_directory_of_the_socket_is_taken_by_somebody_else(tmp_path: Path, owner: Owner) -> None:
    owner.insert('pilot.0000')
    owner.vanish()
    runtime_dir = Path(json.loads(config(tmp_path).read_text())['runtime_dir'])
    runtime_dir.mkdir()
    runtime_dir.chmod(0o777)
    hub = HubProcess('session', tmp_path, Settings())
    with pytest.raises(CoordinationError, match='not ours alone'):
        hub.start()
    hub.stop(0)


def test_hub_of_another_host_cannot_be_reached(tmp_path: Path, owner: Owner) -> None:
    """Unless it listens at a network interface."""
    owner.insert('pilot.0000')
    owner.leave()
    known = json.loads(config(tmp_path).read_text())
    config(tmp_path).write_text(json.dumps(known | {'host': 'elsewhere', 'node': 'node7'}))
    with pytest.raises(CoordinationError, match='on node7, which does not accept'):
        HubProcess('session', tmp_path, Settings())
    config(tmp_path).write_text(json.dumps(known | {
        'host': 'elsewhere', 'endpoints': [*known['endpoints'], 'tcp://node7:1234']}))
    assert HubProcess('session', tmp_path, Settings()).endpoint == 'tcp://node7:1234'
    config(tmp_path).write_text(json.dumps(known))
    Owner(tmp_path).end()


@pytest.mark.parametrize('address', ['', 'tcp://gateway:4711'])
def test_agents_come_from_other_hosts(tmp_path: Path, address: str) -> None:
    """To the port that the hub has got, or to where they are told."""
    owner = Owner(tmp_path, listen='tcp://127.0.0.1:*', address=address)
    access = dict(owner.hub.agent_access)
    try:
        assert access['endpoint'].startswith(address or 'tcp://127.0.0.1:')
        assert not access['endpoint'].endswith('*')
        assert owner.hub.endpoint.startswith('ipc://')
        owner.insert('pilot.0000')
        os.kill(owner.hub.pid, signal.SIGKILL)
        owner.until_news('found')
        assert owner.hub.agent_access == access
    finally:
        owner.end()


def listened(owner: Owner, address: str) -> str:
    """What came of having the hub listen there; empty if nothing went wrong."""
    errors: list[str] = []

    def note(error: str) -> None:
        errors.append(error)
        owner.note('listens')

    owner.do(owner.hub.listen, address, note)
    owner.until(lambda: errors)
    return errors[0]


def test_listening_later(tmp_path: Path, owner: Owner) -> None:
    """When the first pilot on another host is there; the port stays, whatever happens to the hub."""
    owner.insert('pilot.0000')
    assert not owner.hub.reachable
    assert owner.hub.agent_access['endpoint'].startswith('ipc://')
    assert (listened(owner, 'tcp://127.0.0.1:*'), owner.hub.reachable) == ('', True)
    access = dict(owner.hub.agent_access)
    assert access['endpoint'].startswith('tcp://127.0.0.1:')
    assert json.loads(config(tmp_path).read_text())['endpoints'] == [owner.hub.endpoint, access['endpoint']]
    assert listened(owner, 'tcp://127.0.0.1:*') == ''
    assert owner.hub.agent_access == access
    os.kill(owner.hub.pid, signal.SIGKILL)
    owner.until_news('found')
    agent = Agent(owner.hub.agent_address, 'pilot.0000')
    try:
        agent.report_pilot(states.PMGR_ACTIVE)
        agent.until_settled()
    finally:
        agent.close()
    owner.end()


@pytest.mark.parametrize('address', ['tcp://192.0.2.1:*', 'tcp://nonsense', 'ipc:///tmp/x'])
def test_address_to_listen_at_is_not_ours(owner: Owner, address: str) -> None:
    assert listened(owner, address).startswith(f'the hub cannot listen at {address}: ')
    assert not owner.hub.reachable
    assert listened(owner, 'tcp://127.0.0.1:*') == ''


def test_one_client_at_a_time(tmp_path: Path, owner: Owner) -> None:
    owner.insert('pilot.0000')
    hub = HubProcess('session', tmp_path, Settings())
    hub.start()
    second = Client(hub.address)
    second.until(lambda: [news for news in second.news if news.startswith('refused') and str(os.getpid()) in news])
    second.close()
    hub.stop(0, leave=True)
    owner.insert('pilot.0001')
