"""Queues and publish/subscribe over ZeroMQ: who gets in, what arrives, what a lost peer or wire does."""

from __future__ import annotations

import os
import socket as sockets
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zmq
from leftovers import open_descriptors

from rp_api.errors import CoordinationError
from rp_api.mesh import bridge as bridges
from rp_api.mesh import flow, keys
from rp_api.mesh.bridge import PubSubBridge, QueueBridge
from rp_api.mesh.channel import Publisher, QueueGetter, QueuePutter, Subscriber
from rp_api.mesh.codec import pack
from rp_api.mesh.loop import Loop
from rp_api.mesh.message import encode

PATIENCE = 30.0


class Box:
    """Collects what a receiver is given, and lets a test wait for it."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._news = threading.Condition()

    def add(self, items: list[Any]) -> None:
        with self._news:
            self.items += items
            self._news.notify_all()

    def say(self, *said: Any) -> None:
        self.add([said])

    def wait(self, count: int) -> list[Any]:
        """The items, once there are `count` of them."""
        with self._news:
            enough = self._news.wait_for(lambda: len(self.items) >= count, PATIENCE)
            assert enough, f'only {len(self.items)} of {count}'
            return list(self.items)


class Mesh:
    """A context with a gate, a loop in a thread, and makers of bridges and ends that are closed at last."""

    def __init__(self) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.loop = Loop()
        self.keys, self.own = keys.generate(), keys.generate()
        self.gate = keys.Gate(self.context, self.loop)
        self.gate.allow(self.own.public)
        self.refusals = Box()
        self._ends: list[Any] = []
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of `function(...)`, called in the loop's thread."""
        ended, results = threading.Event(), list[Any]()

        def act() -> None:
            try:
                results.append(function(*args, **kwargs))
            except (ValueError, CoordinationError) as error:
                results.append(error)
            ended.set()

        self.loop.call_soon(act)
        assert ended.wait(PATIENCE)
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Return when `holds()`, asked in the loop's thread between its other work."""
        held = threading.Event()

        def ask() -> None:
            if holds():
                held.set()
            else:
                self.loop.call_later(0.002, ask)

        self.loop.call_soon(ask)
        assert held.wait(PATIENCE), f'not within {PATIENCE} s: {what}'

    def make(self, kind: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        end = self.call(kind, self.loop, *args, **kwargs)
        self._ends.append(end)
        return end

    def bridge(self, address: str | None = None, **kwargs: Any) -> QueueBridge:
        bridge: QueueBridge = self.make(QueueBridge, self.keys, self.gate, address, **kwargs)
        return bridge

    def _client(self, kind: Callable[..., Any], address: str, *args: Any, own: keys.KeyPair | None = None,
                **kwargs: Any) -> Any:
        return self.make(kind, address, own or self.own, self.keys.public, *args, context=self.context,
                         refused=self.refusals.say, **kwargs)

    def putter(self, address: str, **kwargs: Any) -> QueuePutter:
        putter: QueuePutter = self._client(QueuePutter, address, **kwargs)
        return putter

    def getter(self, address: str, receiver: Callable[[list[Any]], object], credit: int,
               **kwargs: Any) -> QueueGetter:
        getter: QueueGetter = self._client(QueueGetter, address, receiver, credit, **kwargs)
        return getter

    def eager(self, address: str, box: Box, credit: int = 4096, **kwargs: Any) -> QueueGetter:
        """A getter that is done with everything at once."""
        made = list[QueueGetter]()

        def receive(items: list[Any]) -> None:
            made[0].done(len(items))
            box.add(items)

        def make(*args: Any, **kwargs: Any) -> QueueGetter:
            made.append(QueueGetter(*args, **kwargs))   # in the loop's thread, before it can receive
            return made[0]

        self._client(make, address, receive, credit, **kwargs)
        return made[0]

    def publisher(self, bridge: PubSubBridge, **kwargs: Any) -> Publisher:
        publisher: Publisher = self._client(Publisher, bridge.publish_address, **kwargs)
        return publisher

    def subscriber(self, bridge: PubSubBridge, topics: list[str], box: Box, **kwargs: Any) -> Subscriber:
        """A subscriber whose subscriptions are in force."""
        live = threading.Event()
        subscriber: Subscriber = self._client(Subscriber, bridge.subscribe_address, topics, box.say,
                                              live=live.set, **kwargs)
        assert live.wait(PATIENCE)
        return subscriber

    def raw(self, kind: int, address: str) -> zmq.Socket[bytes]:
        """A socket with a good key that says what it likes."""
        socket: zmq.Socket[bytes] = self.context.socket(kind)
        keys.make_client(socket, self.own, self.keys.public)
        socket.connect(address)
        self._ends.append(socket)
        return socket

    def end(self) -> None:
        self.loop.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        for end in reversed(self._ends):
            end.close(linger=0)
        self.gate.close()
        self.loop.close()
        self.context.term()


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    threads, files = set(threading.enumerate()), open_descriptors()
    mesh = Mesh()
    yield mesh
    mesh.end()
    assert set(threading.enumerate()) <= threads
    assert open_descriptors() <= files


class Wire:
    """A TCP forwarder in the mesh's loop whose connections can be cut, with all that is under way on them."""

    def __init__(self, loop: Loop, target: str) -> None:
        host, _, port = target.removeprefix('tcp://').rpartition(':')
        self._target = (host, int(port))
        self._loop = loop
        self._listener = sockets.create_server(('127.0.0.1', 0))
        self._pairs: dict[sockets.socket, sockets.socket] = {}
        self.address = f'tcp://127.0.0.1:{self._listener.getsockname()[1]}'
        self.cuts = 0
        self.stuck = False
        loop.add_fd(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        near, far = self._listener.accept()[0], sockets.create_connection(self._target)
        for one, other in ((near, far), (far, near)):
            self._pairs[one] = other
            self._loop.add_fd(one.fileno(), partial(self._forward, one))

    def _forward(self, one: sockets.socket) -> None:
        other = self._pairs.get(one)
        if other is None:
            return
        try:
            data = one.recv(65536)
            if data and not self.stuck:
                other.sendall(data)
        except OSError:
            data = b''
        if not data:
            self._drop(one, other)

    def _drop(self, *ends: sockets.socket) -> None:
        for end in ends:
            if self._pairs.pop(end, None):
                self._loop.remove_fd(end.fileno())
                end.close()

    def cut(self) -> None:
        """Break all connections; new ones can be made."""
        self.cuts += 1
        self.stuck = False
        self._drop(*self._pairs)

    def close(self, linger: float = 0) -> None:
        self.cut()
        self._loop.remove_fd(self._listener.fileno())
        self._listener.close()


def addresses(kind: str, tmp_path: Path, name: str = 's') -> str | None:
    return {'fresh': None, 'tcp': 'tcp://127.0.0.1', 'ipc': f'ipc://{tmp_path}/{name}'}[kind]


def in_turn(*actions: Callable[[], object]) -> None:
    for act in actions:
        act()


def uids(first: int, last: int) -> list[dict[str, Any]]:
    return [{'uid': number, 'executable': '/bin/true', 'arguments': ['-x']} for number in range(first, last)]


def numbers(items: list[Any]) -> list[int]:
    return [item['uid'] for item in items]


class TestQueue:
    @pytest.mark.parametrize('kind', ['fresh', 'tcp', 'ipc'])
    def test_items_arrive_in_order(self, mesh: Mesh, tmp_path: Path, kind: str) -> None:
        bridge, box = mesh.bridge(addresses(kind, tmp_path)), Box()
        mesh.eager(bridge.address, box)
        putter = mesh.putter(bridge.address)
        for first in range(0, 5000, 1250):
            putter.put(uids(first, first + 1250))
        assert box.wait(5000) == uids(0, 5000)
        mesh.until(lambda: putter.pending == 0 and bridge.pending == 0, 'all taken over')

    def test_items_put_from_many_threads_all_arrive_in_each_ones_order(self, mesh: Mesh) -> None:
        bridge, box = mesh.bridge(), Box()
        mesh.eager(bridge.address, box, credit=7)
        putter = mesh.putter(bridge.address)

        def put(base: int) -> None:
            for number in range(base, base + 50):
                putter.put(uids(number, number + 1))

        threads = [threading.Thread(target=put, args=(base,)) for base in (0, 1000, 2000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        got = numbers(box.wait(150))
        for base in (0, 1000, 2000):
            assert [number for number in got if base <= number < base + 1000] == list(range(base, base + 50))

    def test_a_getter_has_no_more_items_than_its_credit(self, mesh: Mesh) -> None:
        bridge, box = mesh.bridge(), Box()
        getter = mesh.getter(bridge.address, box.add, 3)
        putter = mesh.putter(bridge.address)
        putter.put(uids(0, 10))
        box.wait(3)
        mesh.until(lambda: bridge.pending == 7, 'the rest waits in the bridge')
        mesh.call(getter.done, 2)
        assert numbers(box.wait(5)) == [0, 1, 2, 3, 4]
        mesh.until(lambda: bridge.pending == 5, 'the rest waits in the bridge')
        with pytest.raises(ValueError, match='4 items cannot be done: 3 are under way'):
            mesh.call(getter.done, 4)
        assert len(box.items) == 5

    def test_getters_share_the_load(self, mesh: Mesh) -> None:
        bridge, boxes = mesh.bridge(), [Box() for _ in range(3)]
        for box in boxes:
            mesh.getter(bridge.address, box.add, 1000)
        mesh.until(lambda: len(bridge._getters) == 3, 'getters known')
        mesh.putter(bridge.address).put(uids(0, 300))
        got = [number for box in boxes for number in numbers(box.wait(100))]
        assert sorted(got) == list(range(300))

    def test_a_full_bridge_lets_putters_wait_and_drops_nothing(self, mesh: Mesh) -> None:
        bridge, box = mesh.bridge(high_water=10, window=6), Box()
        putters = [mesh.putter(bridge.address) for _ in range(2)]
        for putter in putters:
            putter.put(uids(0, 100))

        def waiting() -> int:
            return sum(putter.pending for putter in putters)

        mesh.until(lambda: bridge.pending >= 10 and bridge.pending + waiting() == 200,
                   'the bridge is full')
        assert bridge.pending <= 10 + 2 * 6
        mesh.eager(bridge.address, box, credit=5)
        assert sorted(numbers(box.wait(200))) == sorted(2 * list(range(100)))
        mesh.until(lambda: waiting() == 0, 'nothing waits any more')

    def test_what_was_put_before_a_close_arrives(self, mesh: Mesh) -> None:
        bridge, box = mesh.bridge(window=10), Box()
        putter = mesh.putter(bridge.address)

        def put_and_close() -> None:
            putter.put(uids(0, 3000))
            putter.close()

        mesh.call(put_and_close)
        mesh.call(putter.close)
        with pytest.raises(CoordinationError, match='the putter is closed'):
            putter.put(uids(0, 1))
        mesh.eager(bridge.address, box, credit=100)
        assert numbers(box.wait(3000)) == list(range(3000))

    def test_a_getter_that_leaves_gives_back_what_is_not_done(self, mesh: Mesh) -> None:
        bridge, first, second = mesh.bridge(), Box(), Box()
        leaver = mesh.getter(bridge.address, first.add, 4)
        mesh.putter(bridge.address).put(uids(0, 6))
        first.wait(4)
        mesh.call(in_turn, partial(leaver.done, 1), leaver.close)
        mesh.eager(bridge.address, second)
        assert numbers(second.wait(5)) == [1, 2, 3, 4, 5]

    def test_a_getter_that_died_is_forgotten_on_request(self, mesh: Mesh) -> None:
        bridge, first, second = mesh.bridge(), Box(), Box()
        dead = mesh.getter(bridge.address, first.add, 4, name='agent.1')
        mesh.putter(bridge.address).put(uids(0, 6))
        first.wait(4)
        mesh.call(dead._connection.close, 0)
        dead._closed = True
        mesh.call(bridge.forget, 'agent.0')
        assert bridge.pending == 2
        mesh.call(bridge.forget, 'agent.1')
        mesh.eager(bridge.address, second)
        assert numbers(second.wait(6)) == [0, 1, 2, 3, 4, 5]

    def test_no_item_goes_to_a_getter_that_is_gone(self, mesh: Mesh) -> None:
        bridge, first, second = mesh.bridge(), Box(), Box()
        dead = mesh.getter(bridge.address, first.add, 4)
        mesh.until(lambda: len(bridge._getters) == 1, 'the getter is known')
        monitor = bridge._listener.socket.get_monitor_socket(zmq.Event.DISCONNECTED)
        mesh.call(dead._connection.close, 0)
        dead._closed = True
        assert monitor.poll(int(PATIENCE * 1000))
        bridge._listener.socket.disable_monitor()
        monitor.close(linger=0)
        mesh.putter(bridge.address).put(uids(0, 3))
        mesh.until(lambda: bridge.pending == 3, 'the items wait')
        mesh.eager(bridge.address, second)
        assert numbers(second.wait(3)) == [0, 1, 2]

    def test_a_connection_that_breaks_loses_and_doubles_nothing(self, mesh: Mesh) -> None:
        bridge, box = mesh.bridge('tcp://127.0.0.1', window=200), Box()
        wire: Wire = mesh.make(Wire, bridge.address)
        progress = 0

        def receive(items: list[Any]) -> None:
            nonlocal progress
            getter.done(len(items))
            progress += len(items)
            if progress >= 1000 * wire.cuts + 500 and wire.cuts < 6:
                # lose what comes next on the wires, and then the wires
                wire.stuck = True
                mesh.loop.call_later(0.02, wire.cut)
            box.add(items)

        getter = mesh.getter(wire.address, receive, 100)
        putter = mesh.putter(wire.address)
        for first in range(0, 10000, 100):
            putter.put(uids(first, first + 100))
        assert numbers(box.wait(10000)) == list(range(10000))
        mesh.until(lambda: putter.pending == 0, 'all taken over')
        assert wire.cuts >= 6
        assert len(box.items) == 10000

    def test_ends_go_on_with_a_bridge_that_was_restarted(self, mesh: Mesh, tmp_path: Path) -> None:
        address = f'ipc://{tmp_path}/queue'
        bridge, box = mesh.bridge(address), Box()
        mesh.eager(address, box, credit=10)
        putter = mesh.putter(address)
        putter.put(uids(0, 500))
        box.wait(500)
        mesh.until(lambda: putter.pending == 0, 'all taken over')
        mesh.call(bridge.close, 0)
        putter.put(uids(500, 1000))
        assert not os.path.exists(f'{tmp_path}/queue')
        mesh.bridge(address)
        assert numbers(box.wait(1000)) == list(range(1000))

    def test_large_items_are_split_into_messages(self, mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(flow, 'BULK_BYTES', 1 << 16)
        bridge, box = mesh.bridge(), Box()
        bulks = Box()

        def receive(items: list[Any]) -> None:
            bulks.add([len(items)])
            box.add(items)

        mesh.getter(bridge.address, receive, 1000)
        items = [{'uid': number, 'data': os.urandom(1 << 14)} for number in range(50)]
        mesh.putter(bridge.address).put(items)
        assert numbers(box.wait(50)) == list(range(50))
        assert max(bulks.items) <= 4

    def test_items_that_cannot_travel_are_refused_at_once(self, mesh: Mesh,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
        putter = mesh.putter(mesh.bridge().address)
        with pytest.raises(TypeError, match='a value of type object cannot be sent'):
            putter.put([{'a': object()}])
        monkeypatch.setattr('rp_api.mesh.channel.MAX_ITEM', 100)
        with pytest.raises(ValueError, match='too large for a queue: at most 100 are allowed'):
            putter.put([{'a': 'x' * 101}])
        with pytest.raises(ValueError, match='at least 1, not 0'):
            mesh.getter(putter._connection._address, print, 0)
        putter.put([])
        assert putter.pending == 0

    def test_malformed_messages_are_dropped_and_counted(self, mesh: Mesh) -> None:
        bridge, box = mesh.bridge(), Box()
        raw = mesh.raw(zmq.DEALER, bridge.address)
        bad = [b'', b'\xc1', pack('items'), pack(['grant', 1, 2]), pack(['items', 0, b'', ['text']]),
               pack(['refuse', 'x'])]
        for frame in bad:
            raw.send(frame)
        raw.send_multipart([b'a', b'b', b'c'])
        mesh.until(lambda: bridge.malformed == len(bad) + 1, 'all of it counted')
        mesh.eager(bridge.address, box)
        mesh.putter(bridge.address).put(uids(0, 1))
        assert numbers(box.wait(1)) == [0]

    def test_items_that_cannot_be_unpacked_are_dropped_by_the_getter(self, mesh: Mesh) -> None:
        bridge, box = mesh.bridge(), Box()
        mesh.eager(bridge.address, box, credit=2)
        raw = mesh.raw(zmq.DEALER, bridge.address)
        raw.send(encode('items', 0, pack({}), [b'\xc1', b'\xc1']))
        raw.send(encode('items', 2, pack({}), [pack({'uid': 2})]))
        assert numbers(box.wait(1)) == [2]

    def test_another_protocol_version_is_refused_with_a_sentence(self, mesh: Mesh,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
        bridge = mesh.bridge()
        monkeypatch.setattr('rp_api.mesh.channel.VERSION', 99)
        mesh.putter(bridge.address)
        assert 'speaks version 1 of the queue protocol, not 99' in mesh.refusals.wait(1)[0][0]


class TestPubSub:
    @pytest.fixture
    def bridge(self, mesh: Mesh) -> PubSubBridge:
        bridge: PubSubBridge = mesh.make(PubSubBridge, mesh.keys, mesh.gate)
        return bridge

    def test_each_subscriber_hears_its_topics_in_order(self, mesh: Mesh, bridge: PubSubBridge) -> None:
        both, one = Box(), Box()
        mesh.subscriber(bridge, ['state', 'control'], both)
        mesh.subscriber(bridge, ['state'], one)
        publisher = mesh.publisher(bridge)
        publisher.publish('stat', 0)
        publisher.publish('state_of_things', 0)
        publisher.publish('state', {'uid': 1})
        publisher.publish('control', [2])
        publisher.publish('state', None)
        assert both.wait(3) == [('state', {'uid': 1}), ('control', [2]), ('state', None)]
        assert one.wait(2) == [('state', {'uid': 1}), ('state', None)]

    def test_what_is_said_before_the_publisher_is_connected_is_heard(self, mesh: Mesh,
                                                                     bridge: PubSubBridge) -> None:
        box = Box()
        mesh.subscriber(bridge, ['a'], box)

        def speak_and_leave() -> None:
            publisher = Publisher(mesh.loop, bridge.publish_address, mesh.own, mesh.keys.public,
                                  context=mesh.context)
            for number in range(1000):
                publisher.publish('a', number)
            publisher.close()
            publisher.close()

        mesh.call(speak_and_leave)
        assert box.wait(1000) == [('a', number) for number in range(1000)]

    def test_missing_publications_are_counted(self, mesh: Mesh, bridge: PubSubBridge) -> None:
        box = Box()
        subscriber = mesh.subscriber(bridge, ['a'], box)
        publisher = mesh.publisher(bridge)
        publisher.publish('a', 'before')
        box.wait(1)
        mesh.call(publisher._numbers.update, {b'a\0': 5})
        publisher.publish('a', 'after')
        assert box.wait(2) == [('a', 'before'), ('a', 'after')]
        assert subscriber.lost == 4

    def test_malformed_publications_are_dropped(self, mesh: Mesh, bridge: PubSubBridge) -> None:
        box = Box()
        mesh.subscriber(bridge, ['a'], box)
        raw = mesh.raw(zmq.PUSH, bridge.publish_address)
        for frames in ([b'a\0'], [b'a', b'', b''], [b'\0x\0', b'', b'']):
            raw.send_multipart(frames)
        mesh.until(lambda: bridge.malformed == 3, 'all of it counted')
        for head in (b'', pack(1), pack([[], 1]), pack([b'x', 'y'])):
            raw.send_multipart([b'a\0', head, pack('bad')])
        raw.send_multipart([b'a\0', pack([b'x', 1]), b'\xc1'])
        raw.send_multipart([b'a\0', pack([b'x', 1]), pack('good')])
        assert box.wait(1) == [('a', 'good')]

    def test_what_a_publisher_cannot_keep_for_an_absent_bridge_is_counted(
            self, mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr('rp_api.mesh.pubsub.PUBLICATIONS', 3)
        publisher = mesh._client(Publisher, f'ipc://{tmp_path}/absent')
        for number in range(10):
            publisher.publish('a', number)
        mesh.until(lambda: publisher.dropped == 7, 'the publications are counted')


@pytest.mark.parametrize('kind', ['tcp', 'ipc'])
class TestAccess:
    def test_a_strange_key_is_refused_everywhere(self, mesh: Mesh, tmp_path: Path, kind: str) -> None:
        queue = mesh.bridge(addresses(kind, tmp_path, 'q'))
        topics: PubSubBridge = mesh.make(PubSubBridge, mesh.keys, mesh.gate, addresses(kind, tmp_path, 'p'),
                                         addresses(kind, tmp_path, 's'))
        box, stranger = Box(), keys.generate()
        putter = mesh.putter(queue.address, own=stranger)
        putter.put(uids(0, 1))
        mesh.eager(queue.address, box, own=stranger)
        mesh.publisher(topics, own=stranger).publish('a', 1)
        mesh._client(Subscriber, topics.subscribe_address, ['a'], box.say, own=stranger)
        assert all('does not admit the key' in reason for reason, in mesh.refusals.wait(4))
        mesh.call(putter.close)
        assert mesh.gate.refused == 4
        assert queue.pending == 0
        assert not box.items

    def test_a_refusal_ends_the_loop_unless_somebody_else_is_to_be_told(self, mesh: Mesh, tmp_path: Path,
                                                                       kind: str) -> None:
        queue = mesh.bridge(addresses(kind, tmp_path, 'q'))
        loop = Loop()
        putter = QueuePutter(loop, queue.address, keys.generate(), mesh.keys.public, context=mesh.context)
        with pytest.raises(CoordinationError, match=f'{queue.address} does not admit the key'):
            loop.run()
        putter.close(0)
        loop.close()

    def test_no_key_gets_nowhere(self, mesh: Mesh, tmp_path: Path, kind: str) -> None:
        queue = mesh.bridge(addresses(kind, tmp_path, 'q'))
        socket = mesh.context.socket(zmq.DEALER)
        monitor = socket.get_monitor_socket(zmq.Event.DISCONNECTED)
        socket.connect(queue.address)
        with suppress(zmq.Again):   # refused already
            socket.send(encode('items', 0, pack({}), [pack({'uid': 0})]), zmq.NOBLOCK)
        assert monitor.poll(int(PATIENCE * 1000))
        monitor.close(linger=0)
        socket.close(linger=0)
        assert mesh.call(lambda: (queue.pending, len(queue._putters), queue.malformed)) == (0, 0, 0)

    def test_a_bridge_with_other_keys_gets_nothing(self, mesh: Mesh, tmp_path: Path, kind: str,
                                                   caplog: pytest.LogCaptureFixture) -> None:
        impostor: QueueBridge = mesh.make(QueueBridge, keys.generate(), mesh.gate,
                                          addresses(kind, tmp_path, 'q'))
        putter = mesh.putter(impostor.address)
        putter.put(uids(0, 1))
        mesh.until(lambda: putter._connection._failures.count > 0, 'the handshake failed')
        assert putter.pending == 1
        assert impostor.pending == 0
        assert 'cannot connect to' in caplog.text


def test_a_bridge_knows_only_so_many_peers(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, 'PEERS', 2)
    bridge, box = mesh.bridge(), Box()
    mesh.eager(bridge.address, box)
    putter = mesh.putter(bridge.address)
    putter.put(uids(0, 1))
    box.wait(1)
    mesh.putter(bridge.address)
    (reason,) = mesh.refusals.wait(1)[0]
    assert 'has 2 peers already' in reason
    mesh.call(putter.close)
    mesh.until(lambda: not bridge._putters, 'one has left')
    mesh.putter(bridge.address).put(uids(1, 2))
    assert numbers(box.wait(2)) == [0, 1]


def test_strangers_are_counted(mesh: Mesh, caplog: pytest.LogCaptureFixture) -> None:
    bridge = mesh.bridge('tcp://127.0.0.1')
    host, _, port = bridge.address.removeprefix('tcp://').rpartition(':')
    for _ in range(5):
        with sockets.create_connection((host, int(port))) as stranger:
            stranger.sendall(b'GET / HTTP/1.0')
    mesh.until(lambda: bridge.strangers == 5, 'all are counted')
    told = [record.getMessage().rpartition('(')[2] for record in caplog.records if 'stranger' in record.getMessage()]
    assert told == ['1 so far)', '2 so far)', '4 so far)']


class TestAddresses:
    def test_a_fresh_address_is_private_and_goes_away(self, mesh: Mesh) -> None:
        bridge = mesh.bridge()
        directory = os.path.dirname(bridge.address.removeprefix('ipc://'))
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
        mesh.call(bridge.close)
        assert not os.path.exists(directory)

    def test_a_long_temporary_directory_is_avoided(self, mesh: Mesh, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv('TMPDIR', str(tmp_path / ('x' * 100)))
        assert mesh.bridge().address.startswith('ipc:///tmp/rp.')

    @pytest.mark.parametrize('address', ['tcp://127.0.0.1', 'tcp://127.0.0.1:0', 'tcp://lo:0'])
    def test_a_free_port_of_an_interface_is_found(self, mesh: Mesh, address: str) -> None:
        host, _, port = mesh.bridge(address).address.rpartition(':')
        assert host == 'tcp://127.0.0.1'
        assert int(port) > 0

    @pytest.mark.parametrize('address', [
        '', 'ipc://', 'tcp://', 'tcp://*:0', 'tcp://0.0.0.0', 'tcp://127.0.0.1:http', 'inproc://x',
        'tcp://nowhere.invalid:0',        'ipc:///nonexistent/x', f'ipc:///tmp/{"x" * 200}'])
    def test_other_addresses_are_refused(self, mesh: Mesh, address: str) -> None:
        with pytest.raises(CoordinationError, match='cannot listen at'):
            mesh.bridge(address)
        with pytest.raises(CoordinationError, match='cannot listen at'):
            mesh.make(PubSubBridge, mesh.keys, mesh.gate, None, address)

    def test_a_directory_that_others_can_enter_is_refused(self, mesh: Mesh, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        with pytest.raises(CoordinationError, match=r'is not ours alone: .*mode 0755, allowed is 0700'):
            mesh.bridge(f'ipc://{tmp_path}/x')

    def test_an_address_that_is_none_cannot_be_connected_to(self, mesh: Mesh) -> None:
        with pytest.raises(CoordinationError, match="cannot connect to 'nonsense'"):
            mesh.putter('nonsense')
