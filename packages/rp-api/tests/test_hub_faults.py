"""What breaks does not hurt: hubs, clients and agents are killed, connections cut, and strangers turned away."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zmq
from hub_support import Client, HubHere, MakeSite, Proxy, Site, sites, uids
from parties import TIMEOUT

from rp_api import states
from rp_api.batch import Batch
from rp_api.coordination import sessions
from rp_api.coordination.connections import hub_connection
from rp_api.coordination.contract import PROTOCOL, Update
from rp_api.coordination.hub import peers
from rp_api.coordination.hub.store import Store
from rp_api.transport import keys
from rp_api.transport.access import Access
from rp_api.wire import codec

pytestmark = pytest.mark.fault

# A peer in a process of its own, that can be killed: reads what to do, says when the hub has it, and stays.
PEER = '''
import json, sys
from rp_api.coordination.connections import embedded
from rp_api.batch import Batch
from rp_api.coordination.contract import AgentHandler, ClientHandler, Update
from rp_api.loop.event_loop import Loop
from rp_api.transport.access import Access

orders = json.loads(sys.stdin.readline())
address = Access(**orders['address'])
loop = Loop()
if orders['role'] == 'client':
    connection = embedded.HubClientConnection(loop, address, 'session')
    connection.insert_pilots({pilot: {} for pilot in orders['tasks']})
    connection.note('tmgr.0000', {'scheduler': 'x'})
    for pilot, uids in orders['tasks'].items():
        if uids:
            tasks = [(uid, {'executable': f'/bin/{uid}'}) for uid in uids]
            connection.insert_batch(pilot, Batch.of(tasks), 'tmgr.0000')
else:
    connection = embedded.HubAgentConnection(loop, address, orders['pilot'])
    connection.update_pilots([Update(orders['pilot'], 'PMGR_ACTIVE')])

class Handler(ClientHandler if orders['role'] == 'client' else AgentHandler):
    def on_room(self):
        if connection.settled:
            print('settled', flush=True)

connection.open(Handler())
loop.run()
'''


class Victim:
    """A peer in a process of its own."""

    def __init__(self, address: Access, **orders: Any) -> None:
        self._process = subprocess.Popen([sys.executable, '-c', PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._process.stdin as pipe:
            pipe.write(json.dumps({'address': address.as_dict(), **orders}) + '\n')
        assert self._process.stdout.readline() == 'settled\n'

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[MakeSite]:
    with sites(tmp_path) as make:
        yield make


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    return make_site().start()


@pytest.fixture
def victims() -> Iterator[list[Victim]]:
    victims: list[Victim] = []
    yield victims
    for victim in victims:
        victim.kill()


def restart(site: Site) -> None:
    """Kill the hub and start it again, as its owner does."""
    os.kill(site.hub.pid, signal.SIGKILL)
    assert site.until_ended() == -signal.SIGKILL
    site.start()


def pump(client: Client, pilot: str, pending: list[str], bulk: int) -> None:
    """Send tasks whenever there is room, without waiting for them."""
    connection = client.connection

    def send() -> None:
        while pending and connection.room:
            now, pending[:] = pending[:bulk], pending[bulk:]
            connection.insert_batch(pilot, Batch.of([(uid, {'executable': uid}) for uid in now]))
        client.note('room')

    def begin() -> None:
        client.on_room = send   # type: ignore[method-assign]
        send()

    client.do(begin)


def first_seen(uids: list[str]) -> list[str]:
    return list(dict.fromkeys(uids))


# the hub dies


def test_nothing_is_lost_when_the_hub_is_killed_again_and_again(site: Site) -> None:
    client, agent = site.client(), site.agent('p0')
    client.do(client.connection.insert_pilots, {'p0': {}})
    agent.react = lambda got: agent.connection.update_tasks(
        [Update(uid, states.TMGR_STAGING_OUTPUT_PENDING, {'exit_code': 0}) for uid in got])
    expected = uids(6000)
    pump(client, 'p0', list(expected), 50)
    for progress in (1000, 2500, 4000):
        agent.until(partial(lambda progress: len(agent.order) >= progress, progress))
        restart(site)
    client.until(lambda: len(client.states()) == len(expected))
    assert first_seen(agent.order) == expected
    assert set(client.states().values()) == {states.TMGR_STAGING_OUTPUT_PENDING}
    assert all(update.info == {'exit_code': 0} for update in client.tasks)
    for party in (client, agent):   # who was still looking for the hub when it was killed again lost it less often
        assert 1 <= party.news.count('lost') <= 3
        party.until(partial(lambda news: news.count('lost') == news.count('found'), party.news))
    client.until_settled()
    agent.until_settled()


def test_what_is_said_while_the_hub_is_away_is_said_to_the_next_one(site: Site) -> None:
    client, agent = site.client(), site.agent('p0')
    client.do(client.connection.insert_pilots, {'p0': {}})
    client.submit('p0', ['a'])
    agent.until(lambda: agent.order)
    os.kill(site.hub.pid, signal.SIGKILL)
    for party in (client, agent):
        party.until_news('lost')
    client.submit('p0', ['b'])
    client.do(client.connection.command, 'p0', {'cmd': 'stop'})
    agent.report(['a'], states.AGENT_EXECUTING)
    assert not client.do(lambda: client.connection.settled)
    site.until_ended()
    site.start()
    agent.until(lambda: 'stop' in agent.order)
    client.until(lambda: client.tasks)
    assert agent.order == ['a', 'b', 'stop']
    assert client.tasks == [Update('a', states.AGENT_EXECUTING)]


def test_a_hub_that_stays_away_does_not_hold_up_goodbyes(site: Site) -> None:
    client, agent = site.client(), site.agent('p0')
    client.do(client.connection.insert_pilots, {'p0': {}})
    agent.report_pilot(states.PMGR_ACTIVE)
    for party in (client, agent):
        party.until_settled()
    os.kill(site.hub.pid, signal.SIGKILL)
    for party in (client, agent):
        party.until_news('lost')
        party.close()


def test_a_peer_is_fed_from_where_it_was_after_a_restart(site: Site) -> None:
    """Also when the last revisions that it has seen had no effect, and so are in no row of the file."""
    client, agent = site.client(), site.agent('p0')
    client.do(client.connection.insert_pilots, {'p0': {}})
    client.submit('p0', ['a', 'b'])
    agent.until(lambda: len(agent.order) == 2)
    client.submit('p0', ['a', 'b', 'c', 'a', 'b'])   # as after a restart: most of them are known
    agent.until(lambda: 'c' in agent.order)
    restart(site)
    client.submit('p0', ['d'])
    agent.until(lambda: 'd' in agent.order)
    assert first_seen(agent.order) == ['a', 'b', 'c', 'd']


def test_a_hub_on_another_host_is_lost_when_it_is_silent_and_found_when_it_speaks(
        site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_connection, 'host_id', lambda: 'elsewhere')
    monkeypatch.setattr(hub_connection, 'PING_INTERVAL_S', 0.05)
    monkeypatch.setattr(hub_connection, 'SILENCE_TIMEOUT_S', 0.3)
    client = site.client()
    client.do(client.connection.insert_pilots, {'p0': {}})
    client.until_settled()
    os.kill(site.hub.pid, signal.SIGSTOP)
    try:
        client.until_news('lost')
        client.submit('p0', ['a'])
    finally:
        os.kill(site.hub.pid, signal.SIGCONT)
    client.until_news('found')
    client.until_settled()
    agent = site.agent('p0')
    agent.until(lambda: agent.order == ['a'])


# connections break


@pytest.fixture
def proxy(site: Site, tmp_path: Path) -> Iterator[Proxy]:
    proxy = Proxy(site.runtime_dir / 's', site.runtime_dir / 'proxy')
    yield proxy
    proxy.close()


def through(proxy_of: Site, address: Access) -> Access:
    return Access(**address.as_dict() | {'address': f'ipc://{proxy_of.runtime_dir}/proxy'})


def test_what_was_on_its_way_when_a_connection_broke_is_sent_again(site: Site, proxy: Proxy) -> None:
    client, agent = site.client(through(site, site.hub.address)), site.agent('p0')
    client.do(client.connection.insert_pilots, {'p0': {}})
    client.submit('p0', ['a', 'b'])
    agent.until(lambda: len(agent.order) == 2)
    client.until_settled()
    proxy.swallow()
    client.submit('p0', ['c'])
    client.do(client.connection.command, 'p0', {'cmd': 'first'})
    client.submit('p0', ['d'])
    agent.report(['a', 'b'], states.AGENT_EXECUTING)
    agent.until_settled()
    proxy.cut()
    client.until(lambda: len(client.states()) == 2)
    agent.until(lambda: 'd' in agent.order)
    assert agent.order == ['a', 'b', 'c', 'first', 'd']
    client.until_settled()
    assert 'lost' not in client.news, 'the hub was never away'


def test_messages_that_overtake_lost_ones_have_to_come_again(site: Site, proxy: Proxy) -> None:
    """What was written to a connection that breaks is lost, what had to wait is sent on the next one."""
    client, agent = site.client(through(site, site.hub.address)), site.agent('p0')
    client.do(client.connection.insert_pilots, {'p0': {}})
    client.until_settled()
    for _ in range(3):
        client.until_settled()
        agent.order.clear()
        proxy.hold()
        for number in range(6):
            client.do(client.connection.command, 'p0', {'cmd': str(number), 'load': 'x' * (1 << 20)})
        proxy.cut()
        agent.until(lambda: '5' in agent.order)
        assert agent.order == [str(number) for number in range(6)]


def test_an_agent_gets_what_got_lost_on_the_way_to_it(site: Site, proxy: Proxy) -> None:
    client, agent = site.client(), site.agent('p0', through(site, site.hub.agent_address))
    client.do(client.connection.insert_pilots, {'p0': {}})
    client.submit('p0', ['a'])
    agent.until(lambda: agent.order)
    proxy.swallow()
    client.submit('p0', uids(3000))
    client.do(client.connection.command, 'p0', {'cmd': 'stop'})
    client.until_settled()
    proxy.cut()
    agent.until(lambda: 'stop' in agent.order)
    assert first_seen(agent.order) == ['a', *uids(3000), 'stop']


# strangers


def test_another_version_of_the_protocol_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_connection, 'PROTOCOL', 99)
    client = site.client()
    client.until(lambda: any(news.startswith('refused') for news in client.news))
    reason = next(news for news in client.news if news.startswith('refused'))
    assert f'client uses protocol 99, the hub {PROTOCOL}' in reason
    assert 'pip install' in reason


def test_who_has_not_the_keys_of_the_session_is_refused(site: Site) -> None:
    stranger = keys.generate()
    address = site.hub.address
    client = site.client(Access(address.address, address.server, stranger.public.decode(),
                                    stranger.secret.decode()))
    client.until(lambda: any('does not accept the key' in news for news in client.news))
    client.do(client.connection.insert_pilots, {'stolen': {}})
    works(site)
    assert pilots(site) == ['works']


@pytest.mark.parametrize('pretence', ['no keys', 'another server'])
def test_who_cannot_prove_itself_gets_no_connection(site: Site, pretence: str) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    if pretence == 'another server':
        own = keys.KeyPair(site.hub.address.public.encode(), site.hub.address.secret.encode())
        keys.make_client(socket, own, keys.generate().public)
    monitor = socket.get_monitor_socket(zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED
                                        | zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL)
    try:
        socket.connect(site.hub.address.address)
        socket.send(codec.pack([1, 'pilots', [['stolen', b'']]]))
        assert monitor.poll(int(TIMEOUT * 1000))
        event = int.from_bytes(monitor.recv_multipart()[0][:2], sys.byteorder)
        assert event != zmq.Event.HANDSHAKE_SUCCEEDED
    finally:
        socket.disable_monitor()
        monitor.close(linger=0)
        socket.close(linger=0)
        context.term()
    works(site)
    assert pilots(site) == ['works']


def pilots(site: Site) -> list[str]:
    database = sqlite3.connect(site.directory / 'hub.db')
    try:
        return [uid for uid, in database.execute('SELECT uid FROM pilots')]
    finally:
        database.close()


def works(site: Site) -> None:
    """The hub serves, as ever."""
    agent, client = site.agent('works'), site.client()
    client.do(client.connection.insert_pilots, {'works': {}})
    client.submit('works', ['x'])
    agent.until(lambda: agent.order == ['x'])
    agent.report(['x'], states.AGENT_EXECUTING)
    client.until(lambda: client.tasks)


HELLO = {'protocol': PROTOCOL, 'role': 'agent', 'uid': 'raw', 'agent': 'agent_0', 'host': 'elsewhere',
         'host_name': 'node', 'pid': 1, 'instance': 'i', 'since': 0, 'others': 0, 'settled': 0, 'hold': False,
         'recover': False}

BROKEN: list[bytes | list[bytes]] = [
    b'', b'\xc1', b'garbage', [b'two', b'frames'], *map(codec.pack, [
        1, None, {}, [], [0], ['0', 'ping'], [0, 1], [-1, 'ping'], [True, 'ping'], [0, 'hello'], [0, 'hello', 1],
        [0, 'hello', {}], [0, 'hello', HELLO, 'more'],
        *([0, 'hello', HELLO | {name: value}] for name, value in [
            ('role', 'boss'), ('role', 'client'), ('role', ['client']), ('uid', None), ('host', 1), ('pid', -1),
            ('pid', 0), ('pid', 2**40), ('pid', 'one'), ('since', -1), ('since', 2**64 - 1), ('settled', 1.5),
            ('instance', b'')])])]

BROKEN_OPERATIONS: list[list[Any]] = [
    ['nope'], ['turn'], ['__class__'], ['hello_'], ['seen', 1], ['ping', 1], ['hold', 1], ['hold', None],
    ['bye', 'bye'],
    ['pilots', [['stolen', b'']]], ['tasks', 'p', '', b'', [['a', b'']]], ['command', 'p', b''], ['note', 'k', b''],
    ['bind', 'p', ['a']], ['recover', 0], ['detach'], ['update_pilots', [[1, 2, 3]]], ['update_pilots', None],
    ['update_pilots', [['raw', '\udcff', None]]], ['update_tasks', [['\udcff', 'DONE', None]]],
    ['update_tasks', [['a', 'NOWHERE', None]]], ['update_tasks', [['a', states.PMGR_ACTIVE, None]]],
    ['update_tasks', [['a', 'DONE', {}]]]]



def test_malformed_messages_of_a_peer_with_good_keys_do_no_harm(site: Site) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    address = site.hub.agent_address
    keys.make_client(socket, keys.KeyPair(address.public.encode(), address.secret.encode()), address.server.encode())
    socket.connect(address.address)

    def receive() -> list[Any]:
        assert socket.poll(int(TIMEOUT * 1000)), 'no answer'
        return codec.unpack(socket.recv())  # type: ignore[no-any-return]

    try:
        for data in BROKEN:
            socket.send_multipart(data if isinstance(data, list) else [data])
        socket.send(codec.pack([0, 'ping']))
        while (answer := receive()) == ['who']:   # for those that were well-formed, but of a stranger
            pass
        assert answer[0] == 'refused', answer   # for the empty hello
        while receive() != ['who']:
            pass
        socket.send(codec.pack([0, 'hello', HELLO]))
        while receive()[0] != 'welcome':
            pass
        for number, operation in enumerate(BROKEN_OPERATIONS, 1):
            socket.send(codec.pack([number, *operation]))
            socket.send(codec.pack([0, *operation]))
        last = len(BROKEN_OPERATIONS) + 1
        socket.send(codec.pack([last, 'update_tasks', []]))
        while receive()[:2] != ['ack', last]:
            pass
    finally:
        socket.close(linger=0)
        context.term()
    works(site)
    assert pilots(site) == ['works']


def test_a_peer_that_says_hello_again_and_again_uses_nothing_up(site: Site) -> None:
    client = site.client()
    client.do(client.connection.insert_pilots, {'p0': {}})

    def hello_again() -> int:
        client.do(client.connection._say_hello)
        client.do(client.connection.command, 'p0', {'cmd': 'x'})
        client.until_settled()
        return len(os.listdir(f'/proc/{site.hub.pid}/fd'))

    assert len({hello_again() for _ in range(10)}) == 1


# the application dies


def stored_states(site: Site) -> dict[str, str]:
    """The states of all tasks in the file of a hub that has ended."""
    store = Store(site.directory / 'hub.db')
    try:
        return {uid: state for uid, _, state, _ in store.results()}
    finally:
        store.close()


def test_an_orphaned_hub_without_pilots_ends_at_once(make_site: MakeSite, victims: list[Victim]) -> None:
    site = make_site(orphan_timeout=0).start()
    victims.append(Victim(site.hub.address, role='client', tasks={}))
    victims[0].kill()
    assert site.until_ended() == 0
    assert not site.runtime_dir.exists()


def test_with_timeout_0_pilots_are_cancelled_at_once(make_site: MakeSite, victims: list[Victim]) -> None:
    site = make_site(orphan_timeout=0).start()
    victims.append(Victim(site.hub.address, role='client', tasks={'p0': uids(3)}))
    agent = site.agent('p0')
    agent.until(lambda: len(agent.order) == 3)
    victims[0].kill()
    agent.until(lambda: agent.commands)
    assert agent.commands == [{'cmd': 'cancel_pilot', 'reason': 'the application is gone'}]
    agent.report_pilot(states.CANCELED)
    assert site.until_ended() == 0


def test_with_a_timeout_what_is_bound_is_finished_first(make_site: MakeSite, victims: list[Victim]) -> None:
    site = make_site(orphan_timeout=1).start()
    victims.append(Victim(site.hub.address, role='client', tasks={'p0': uids(2)}))
    agent = site.agent('p0')
    agent.until(lambda: len(agent.order) == 2)
    victims[0].kill()
    for uid in uids(2):
        assert not agent.commands
        agent.report([uid], states.TMGR_STAGING_OUTPUT_PENDING, {'exit_code': 0, 'target_state': 'DONE'})
        agent.until_settled()
    agent.until(lambda: agent.commands)
    agent.report_pilot(states.CANCELED)
    agent.close()
    assert site.until_ended() == 0
    assert stored_states(site) == dict.fromkeys(uids(2), states.TMGR_STAGING_OUTPUT_PENDING)


@pytest.mark.parametrize('first', ['client', 'agent'])
def test_nobody_waits_for_an_agent_that_is_dead_as_well(
        make_site: MakeSite, victims: list[Victim], first: str) -> None:
    site = make_site(orphan_timeout=1).start()
    client = Victim(site.hub.address, role='client', tasks={'p0': uids(3)})
    agent = Victim(site.hub.agent_address, role='agent', pilot='p0')
    victims += [client, agent] if first == 'client' else [agent, client]
    for victim in victims:
        victim.kill()
    assert site.until_ended() == 0


def test_a_client_that_comes_in_time_takes_over(make_site: MakeSite, victims: list[Victim]) -> None:
    site = make_site(orphan_timeout=1).start()
    victims.append(Victim(site.hub.address, role='client', tasks={'p0': uids(2)}))
    agent = site.agent('p0')
    agent.until(lambda: len(agent.order) == 2)
    victims[0].kill()
    agent.report(uids(1), states.TMGR_STAGING_OUTPUT_PENDING, {'exit_code': 0})
    client = site.client()
    agent.report(uids(2)[1:], states.TMGR_STAGING_OUTPUT_PENDING, {'exit_code': 1})
    client.until(lambda: len(client.states()) == 2)
    assert client.tasks == [Update(uid, states.TMGR_STAGING_OUTPUT_PENDING, {'exit_code': code})
                            for code, uid in enumerate(uids(2))]
    assert agent.commands == []
    client.close()
    assert site.until_ended() == 0


@pytest.mark.parametrize('tasks', [0, 2])
def test_a_hub_does_not_wait_for_agents_that_were_never_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                               tasks: int) -> None:
    """The application dies between the submission of a pilot and the start of its agent."""
    monkeypatch.setattr(peers, 'ARRIVAL_TIMEOUT_S', 0.2)
    with lost_client(tmp_path, monkeypatch, orphan_timeout=0.1) as client:
        client.do(client.connection.insert_pilots, {'p0': {}})
        client.submit('p0', uids(tasks))
    database = sqlite3.connect(tmp_path / 'hub.db')
    assert database.execute('SELECT state FROM pilots').fetchall() == [(states.FAILED,)]
    assert b'the agent of p0 never connected' in database.execute('SELECT info FROM pilots').fetchone()[0]
    database.close()


def test_a_silent_client_on_another_host_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lost_client(tmp_path, monkeypatch, orphan_timeout=0.0):
        pass


def test_a_hub_whose_client_never_comes_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, 'ARRIVAL_TIMEOUT_S', 0.2)
    with HubHere(tmp_path, orphan_timeout=0.1):
        pass   # which waits for its end
    assert sessions.summary(tmp_path).state == sessions.RESTING


@contextmanager
def lost_client(directory: Path, monkeypatch: pytest.MonkeyPatch, orphan_timeout: float) -> Iterator[Client]:
    """A client elsewhere of a hub in this process; at the end, it is not heard any more, and the hub has ended."""
    monkeypatch.setattr(hub_connection, 'host_id', lambda: 'elsewhere')
    monkeypatch.setattr(hub_connection, 'PING_INTERVAL_S', 0.05)
    with HubHere(directory, lease=3.0, orphan_timeout=orphan_timeout) as here:
        client = Client(here.address)
        try:
            yield client
            client.until_settled()
            monkeypatch.setattr(hub_connection, 'PING_INTERVAL_S', 1000)
            here.until_ended()
        finally:
            client.close()
