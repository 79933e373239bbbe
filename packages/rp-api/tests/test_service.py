"""Stand-alone hubs: real processes that serve several sessions, die, are started again, and let nobody else in."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hub_support import Agent, Client, P
from parties import TIMEOUT, Party

from rp_api.coordination import sessions
from rp_api.coordination.coordinator import Settings
from rp_api.coordination.service import access as hub_access
from rp_api.coordination.service import main
from rp_api.coordination.service import request as hub_request
from rp_api.coordination.service.client import ServedHub
from rp_api.coordination.service.request import ask
from rp_api.errors import CoordinationError
from rp_api.transport import keys
from rp_api.transport.access import Access
from rp_api.wire import codec

pytestmark = pytest.mark.fault


def end_of(pid: int) -> None:
    """Kill a process, and wait for its end; nothing for 0."""
    if not pid:
        return
    pidfd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        assert select.select([pidfd], [], [], TIMEOUT)[0]
    finally:
        os.close(pidfd)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


class Hub:
    """A stand-alone hub in the background."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.parties: list[Party] = []
        self.pid = 0
        self.url = ''

    def start(self, **config: Any) -> Hub:
        answer = main.start({'directory': str(self.directory), 'listen': '', 'ports': None} | config)
        self.pid, self.url = answer['pid'], answer['url']
        return self

    @property
    def access(self) -> hub_access.HubAccess:
        return hub_access.find(self.url)[0]

    def ask(self, operation: str, **arguments: Any) -> Any:
        return ask(self.access, self.url, operation, arguments)

    def session(self, uid: str, **settings: Any) -> ServedHub:
        served = ServedHub(uid, self.directory, Settings(hub_url=self.url, **settings))
        served.start()
        return served

    def client(self, served: ServedHub) -> Client:
        return self._add(Client(client_of(served)))

    def agent(self, served: ServedHub, pilot: str = 'p0') -> Agent:
        return self._add(Agent(address_of(served), pilot))

    def _add(self, party: P) -> P:
        self.parties.append(party)
        return party

    def pid_of(self, uid: str) -> int:
        """The process that serves a session."""
        return next(int(each['pid']) for each in self.ask('status')['sessions'] if each['uid'] == uid)

    def kill(self) -> None:
        end_of(self.pid)

    def close(self) -> None:
        try:
            for party in self.parties:
                party.close()
        finally:
            served = [sessions.summary(path).hub for path in sessions.find(self.directory)]
            for pid in [self.pid, *(each.pid for each in served if each and each.runs)]:
                with suppress(ProcessLookupError):
                    end_of(pid)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv('RADICAL_BASE', str(tmp_path))
    hub = Hub(tmp_path / 'hub')
    yield hub
    hub.close()


def client_of(served: ServedHub) -> Access:
    """What the client of the session uses."""
    assert served._address is not None
    return served._address


def address_of(served: ServedHub) -> Access:
    """What an agent of the session is told."""
    return Access(*(served.agent_access[name] for name in ('endpoint', 'server', 'public', 'secret')))


def run_task(client: Client, agent: Agent, uid: str) -> None:
    """Have a task go to the agent and its result come back."""
    client.submit('p0', [uid])
    agent.until(lambda: uid in agent.order)
    agent.report([uid], 'TMGR_STAGING_OUTPUT_PENDING', {'target_state': 'DONE'})
    client.until(lambda: uid in client.states())


def open_with_parties(hub: Hub, uid: str) -> tuple[ServedHub, Client, Agent]:
    served = hub.session(uid)
    client = hub.client(served)
    client.do(client.connection.insert_pilots, {'p0': {}})
    agent = hub.agent(served)
    run_task(client, agent, 'first')
    return served, client, agent


# sessions


def test_several_sessions_have_nothing_in_common(hub: Hub) -> None:
    hub.start()
    one, two = open_with_parties(hub, 'one'), open_with_parties(hub, 'two')
    for _, client, agent in (one, two):
        run_task(client, agent, 'same')
    assert len({one[0].endpoint, two[0].endpoint, hub.url}) == 3
    secrets = {secret for served, *_ in (one, two) for secret in (client_of(served).secret, address_of(served).secret)}
    assert len(secrets) == 4
    assert {each['uid']: each['state'] for each in hub.ask('status')['sessions']} == dict.fromkeys(
        ('one', 'two'), 'serving')


def test_a_session_is_attached_until_it_is_closed(hub: Hub) -> None:
    hub.start()
    served, client, _ = open_with_parties(hub, 'one')
    again = hub.session('one')
    assert (served.attached, again.attached) == (False, True)
    assert again.agent_access == served.agent_access
    pid = hub.pid_of('one')
    client.close()
    until_gone(pid)
    until_sessions(hub, [])
    assert not hub.session('one').attached


def test_the_key_of_one_session_does_not_open_another(hub: Hub) -> None:
    hub.start()
    one, two = hub.session('one'), hub.session('two')
    key = client_of(one)
    stranger = hub._add(Client(Access(two.endpoint, client_of(two).server, key.public, key.secret)))
    stranger.until(lambda: any(news.startswith('refused: ') for news in stranger.news))


def test_bad_uids_are_refused(hub: Hub) -> None:
    hub.start()
    for uid in ('', '..', 'a/b', '.hidden'):
        with pytest.raises(CoordinationError, match='not a valid session uid'):
            hub.session(uid)


# ends


def test_the_death_of_one_hub_does_not_concern_the_others(hub: Hub) -> None:
    hub.start()
    (served, client, agent), other = open_with_parties(hub, 'one'), open_with_parties(hub, 'two')
    end_of(hub.pid_of('one'))
    for party in (client, agent):
        party.until_news('found')
    run_task(client, agent, 'after')
    run_task(*other[1:], 'there')
    assert other[1].news.count('lost') == 0
    assert hub.session('one').endpoint == served.endpoint


def test_the_death_of_the_service_is_not_noticed_by_sessions(hub: Hub) -> None:
    hub.start()
    served, client, agent = open_with_parties(hub, 'one')
    url, pid = hub.url, hub.pid_of('one')
    hub.kill()
    run_task(client, agent, 'without')
    hub.start()
    assert (hub.url, hub.pid_of('one')) == (url, pid)
    assert hub.session('one').agent_access == served.agent_access
    end_of(pid)   # which is watched again
    client.until_news('found')
    run_task(client, agent, 'again')


def test_hubs_that_died_with_the_service_are_started_again(hub: Hub) -> None:
    hub.start()
    _, client, agent = open_with_parties(hub, 'one')
    pid = hub.pid_of('one')
    hub.kill()
    end_of(pid)
    client.until_news('lost')
    hub.start()
    client.until_news('found')
    run_task(client, agent, 'after')


def test_a_session_that_cannot_be_served_any_more_ends_with_the_reason(hub: Hub) -> None:
    hub.start()
    served, *_ = open_with_parties(hub, 'one')
    party = hub._add(Party())
    party.do(served.watch, party.loop)
    database = hub.directory / 'one' / 'hub.db'
    pid = hub.pid_of('one')
    for path in database.parent.glob('hub.db*'):
        path.unlink()
    database.write_text('no database ' * 1000)
    end_of(pid)
    with pytest.raises(CoordinationError, match='one is not served any more'):
        party.until(lambda: False)
    party.do = lambda *_: None   # type: ignore[method-assign,assignment]  # its loop has ended
    served.stop(0)
    assert [each['state'] for each in hub.ask('status')['sessions']] == ['failed']
    with pytest.raises(CoordinationError, match='one is not served'):
        hub.session('one')
    database.unlink()


def test_stop_is_refused_while_sessions_are_open(hub: Hub) -> None:
    hub.start()
    _, client, agent = open_with_parties(hub, 'one')
    path = hub_access.path_of(hub.access.host, hub_access.split_url(hub.url)[1])
    with pytest.raises(CoordinationError, match='these sessions are open: one'):
        hub.ask('stop', force=False)
    pid = hub.pid_of('one')
    assert hub.ask('stop', force=True) == ['one']
    for each in (pid, hub.pid):
        until_gone(each)
    assert not path.exists()
    hub.start()
    client.until_news('found')
    run_task(client, agent, 'after')


def test_stop_without_sessions(hub: Hub) -> None:
    hub.start()
    assert hub.ask('stop', force=False) == []
    until_gone(hub.pid)
    assert list(hub_access.all_known()) == []


def test_sigterm_ends_the_service_alone(hub: Hub) -> None:
    hub.start()
    _, client, agent = open_with_parties(hub, 'one')
    os.kill(hub.pid, signal.SIGTERM)
    until_gone(hub.pid)
    run_task(client, agent, 'without')


# who is let in


def test_another_key_is_refused(hub: Hub) -> None:
    hub.start()
    stranger = keys.generate()
    access = replace(hub.access, public=stranger.public.decode(), secret=stranger.secret.decode())
    with pytest.raises(CoordinationError, match='rejects the key of the access file'):
        ask(access, hub.url, 'status')


def test_another_server_is_not_trusted(hub: Hub) -> None:
    hub.start()
    access = replace(hub.access, server=keys.generate().public.decode())
    with pytest.raises(CoordinationError, match='is not the hub of the access file'):
        ask(access, hub.url, 'status', timeout=5)


def test_where_nothing_listens(hub: Hub) -> None:
    hub.start()
    access = hub.access
    hub.kill()
    with pytest.raises(CoordinationError, match='nothing answers at tcp://'):
        ask(access, hub.url, 'status', timeout=1)


def test_without_access_file(hub: Hub) -> None:
    with pytest.raises(CoordinationError, match=r'no access to a hub at tcp://login1:4242: there is no file .*login1-'):
        ServedHub('one', hub.directory, Settings(hub_url='tcp://login1:4242'))


def test_another_version_is_refused(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.start()
    monkeypatch.setattr(hub_request, 'PROTOCOL', 99)
    with pytest.raises(CoordinationError, match='this client 99: install the same major version'):
        hub.ask('status')


def test_what_is_not_a_request_is_dropped(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.start()
    for request in map(codec.pack, ([], [1], 'text', [1, 2, 'status'], [None, 2, 'status', {}])):
        monkeypatch.setattr(codec, 'pack', lambda _, data=request: data)
        with pytest.raises(CoordinationError, match='answer'):   # on a busy machine it may not even be connected
            ask(hub.access, hub.url, 'status', timeout=1)
        monkeypatch.undo()
        monkeypatch.setenv('RADICAL_BASE', str(hub.directory.parent))
    for operation, arguments in (('nope', {}), ('open', {}), ('open', {'session': 1, 'orphan_timeout': 0, 'lease': 1}),
                                 ('stop', {}), ('status', {'x': 1}), ('__init__', {})):
        with pytest.raises(CoordinationError):
            ask(hub.access, hub.url, operation, arguments)
    assert hub.ask('status')['sessions'] == []


def test_files_are_for_the_owner_alone(hub: Hub) -> None:
    hub.start()
    hub.session('one')
    path = hub_access.path_of(hub.access.host, hub_access.split_url(hub.url)[1])
    for file in (path, hub.directory / 'service.json', hub.directory / 'one' / 'hub.json'):
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700
    assert hub.access.secret not in repr(hub.access)
    for log in hub.directory.rglob('*.log'):
        assert hub.access.secret not in log.read_text()
    path.chmod(0o644)
    with pytest.raises(CoordinationError, match='others may use it'):
        hub.ask('status')


def test_no_secret_in_command_lines_and_environments(hub: Hub) -> None:
    hub.start()
    served = hub.session('one')
    secrets = [hub.access.secret, served.agent_access['secret'], json.loads(
        (hub.directory / 'service.json').read_text())['server']['secret']]
    for pid in (hub.pid, hub.pid_of('one')):
        told = Path(f'/proc/{pid}/cmdline').read_bytes() + Path(f'/proc/{pid}/environ').read_bytes()
        assert not any(secret.encode() in told for secret in secrets)


# where it listens


def test_one_hub_per_directory(hub: Hub) -> None:
    hub.start()
    with pytest.raises(CoordinationError, match='a hub runs already in'):
        main.start({'directory': str(hub.directory), 'listen': '', 'ports': None})
    assert hub.ask('status')['pid'] == hub.pid


def a_free_port() -> int:
    """A port at which nobody listens, and that the system does not give to anybody."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(('127.0.0.1', port))
            return port


def test_ports_of_sessions(hub: Hub) -> None:
    port = a_free_port()
    hub.start(ports=[port, port])
    assert hub.session('one').endpoint == f'tcp://127.0.0.1:{port}'
    with pytest.raises(CoordinationError, match=f'no port is free for another session: all of {port}-{port}'):
        hub.session('two')


@pytest.mark.parametrize('listen', ['tcp://0.0.0.0', 'ipc:///tmp/x', 'tcp://192.0.2.1:1', 'nonsense'])
def test_where_it_cannot_listen(hub: Hub, listen: str) -> None:
    with pytest.raises(CoordinationError, match='the hub did not start: cannot listen at'):
        hub.start(listen=listen)


def test_what_agents_are_told(hub: Hub) -> None:
    hub.start()
    port = hub_access.split_url(hub.session('one').endpoint)[1]
    for address, told in (('tcp://gate', f'tcp://gate:{port}'), ('tcp://gate:7', 'tcp://gate:7'), ('', None)):
        served = hub.session('one', address=address)
        assert served.agent_access['endpoint'] == (told or served.endpoint)


def until_gone(pid: int) -> None:
    """Wait for the end of a process, which may be our child."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([pidfd], [], [], TIMEOUT)[0]
    finally:
        os.close(pidfd)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def until_sessions(hub: Hub, uids: list[str]) -> None:
    """Wait until the hub knows no other sessions."""
    deadline = time.monotonic() + TIMEOUT
    while [each['uid'] for each in hub.ask('status')['sessions']] != uids:
        assert time.monotonic() < deadline
        time.sleep(0.02)
