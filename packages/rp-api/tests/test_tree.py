"""A tree: what is put arrives once and in order, whatever connections break, and who is lost is told of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zmq

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.transport import keys
from rp_api.tree import node, root
from rp_api.tree.node import TreeNode
from rp_api.tree.root import RelayAssignment, Root, relays_for
from rp_profiling.write.host_clock import Moment, Reading

TIMEOUT = 30.0


class Mesh:
    """A root and its nodes, all in one loop, which can run once; what arrives is in `here` and `there`, by node."""

    def __init__(self, nodes: int = 0, relays: int = 0, **times: Any) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.loop = Loop()
        self.keys, self.own = keys.generate(), keys.generate()
        self.gate = keys.Gate(self.context, self.loop)
        self.gate.allow(self.own.public)
        self.here: dict[str, list[Any]] = {}
        self.there: dict[str, list[Any]] = {}
        self.lost: dict[str, str] = {}
        self.forsaken: dict[str, str] = {}
        self.times = times
        self.greeted: Callable[[str], object] = lambda name: None
        self.clock: Callable[[], int | None] = time.time_ns
        self.moments: list[tuple[str, str, int]] = []
        self.root = Root(self.loop, self.keys, self.gate, 'tcp://127.0.0.1', self._here, self._lost, nodes=nodes,
                         relays=relays, greeted=lambda name: self.greeted(name), clock=lambda: self.clock(),
                         moment=lambda *moment: self.moments.append(moment), **times)
        self.nodes: dict[str, TreeNode] = {}
        self.contexts: list[zmq.Context[Any]] = []
        for number in range(nodes):
            self.add(f'n{number}', relay=number < relays)

    def add(self, name: str, relay: bool = False, let_in: float = TIMEOUT, **options: Any) -> TreeNode:
        self.root.expect(name)
        context: zmq.Context[Any] = zmq.Context()   # one gate for each
        self.contexts.append(context)
        self.there[name] = []
        self.nodes[name] = TreeNode(self.loop, name, self.root.address, self.own, self.keys.public,
                                    self.there[name].extend, lambda why: self._forsaken(name, why), context=context,
                                    let_in=let_in, relay=relay, **options, **self.times)
        return self.nodes[name]

    def run_until(self, *holds: Callable[[], object]) -> None:
        """Run the loop until these have come true, one after the other; each is asked again after it did something."""
        waiting = list(holds)

        def ask() -> None:
            while waiting and waiting[0]():
                del waiting[0]
            if waiting:
                self.loop.call_later(0.001, ask)
            else:
                self.loop.stop()

        self.loop.call_soon(ask)
        self.loop.call_later(TIMEOUT, pytest.fail, 'it did not come true')
        self.loop.run()

    def settled(self) -> bool:
        """Whether all nodes that are not relays are connected to relays, as many to each."""
        parents = self._assignment()
        return self.housed() and len({parents.count(parent) for parent in parents}) == 1

    def housed(self) -> bool:
        """Whether all nodes that are not relays are connected to relays; a slow machine may spread them unevenly."""
        parents = self._assignment()
        known = len(self.root._socket._way) == len(self.nodes) and len(self.root._socket._children) == len(set(parents))
        return known and self.root.address not in parents

    def _assignment(self) -> list[str]:
        return [each.address for each in self.nodes.values() if not each._relay]

    def close(self) -> None:
        for each in self.nodes.values():
            each.close(0)
        self.root.close(0)
        self.gate.close()
        self.context.term()
        for context in self.contexts:
            context.term()
        self.loop.close()

    def _forsaken(self, name: str, why: str) -> None:
        self.forsaken[name] = why
        self.nodes[name].close(0)

    def _here(self, name: str, items: list[Any]) -> None:
        self.here.setdefault(name, []).extend(items)

    def _lost(self, name: str, why: str) -> None:
        self.lost[name] = why
        self.root.forget(name)


@pytest.fixture
def make() -> Iterator[Callable[..., Mesh]]:
    made: list[Mesh] = []

    def mesh(*args: Any, **kwargs: Any) -> Mesh:
        made.append(Mesh(*args, **kwargs))
        return made[-1]

    yield mesh
    for each in made:
        each.close()


def numbered(count: int, first: int = 0, **values: Any) -> list[dict[str, Any]]:
    return [{'number': number} | values for number in range(first, first + count)]


def test_items_travel_both_ways_in_order(make: Callable[..., Mesh]) -> None:
    """Also what is put before the other side has come, and more than one message holds."""
    mesh = make(2)
    mesh.root.put('n0', numbered(3000, to=0))
    mesh.root.put('n1', numbered(10, to=1))
    mesh.nodes['n1'].put(numbered(5000, by=1))
    mesh.root.put('n0', [])
    mesh.run_until(lambda: len(mesh.here.get('n1', ())) == 5000 and sum(map(len, mesh.there.values())) == 3010)
    assert mesh.there == {'n0': numbered(3000, to=0), 'n1': numbered(10, to=1)}
    assert mesh.here == {'n1': numbered(5000, by=1)}
    assert mesh.root.malformed == 0


def test_what_cannot_travel(make: Callable[..., Mesh]) -> None:
    mesh = make(1)
    mesh.root.put('n0', [{'x': object()}])
    with pytest.raises(TypeError, match='object'):
        mesh.run_until(lambda: False)


def test_forgotten_and_unknown_nodes_get_nothing(make: Callable[..., Mesh]) -> None:
    mesh = make(2)
    mesh.root.put('n0', numbered(3))
    mesh.root.forget('n0')
    mesh.root.put('n0', numbered(3))
    mesh.root.put('n7', numbered(3))
    mesh.nodes['n0'].put(numbered(3))
    mesh.root.put('n1', numbered(1))
    mesh.run_until(lambda: mesh.there['n1'])
    assert (mesh.there['n0'], mesh.here) == ([], {})


def test_nodes_are_shared_out_among_relays(make: Callable[..., Mesh]) -> None:
    mesh = make(12, 3)
    for number in range(12):
        mesh.root.put(f'n{number}', numbered(5, to=number))
        mesh.nodes[f'n{number}'].put(numbered(5, by=number))

    def arrived() -> bool:
        return all(len(items) == 5 for items in mesh.there.values()) and len(mesh.here) == 12

    mesh.run_until(arrived, mesh.settled)
    assert mesh.there == {f'n{number}': numbered(5, to=number) for number in range(12)}
    assert mesh.here == {f'n{number}': numbered(5, by=number) for number in range(12)}
    assert len(mesh.root._socket._children) == 3


def test_an_item_for_many_travels_once_to_each_relay(make: Callable[..., Mesh], monkeypatch: Any) -> None:
    """Also to the relays themselves; of several connections, each carries it once."""
    mesh = make(12, 3)
    wanted = [name for name in mesh.nodes if name != 'n5']
    sent: list[int] = []
    answer = mesh.root._socket.answer

    def count(child: bytes, name: str, message: bytes) -> None:
        sent.append(len(message))
        answer(child, name, message)

    def spread() -> bool:
        monkeypatch.setattr(mesh.root._socket, 'answer', count)
        mesh.root.spread([*wanted, 'unknown'], {'data': b'x' * 5000})
        monkeypatch.setattr(mesh.root._socket, 'answer', answer)
        return True

    mesh.run_until(mesh.settled, spread, lambda: all(mesh.there[name] for name in wanted))
    assert {name: items for name, items in mesh.there.items() if items} == {
        name: [{'data': b'x' * 5000}] for name in wanted}
    assert len(sent) == 3
    assert mesh.root.malformed == 0


def test_an_item_for_many_is_between_numbered_ones(make: Callable[..., Mesh]) -> None:
    """It does not count as one of them."""
    mesh = make(2)

    def spread() -> bool:
        mesh.root.spread(['n0'], {'loose': 1})
        return True

    def put() -> bool:
        mesh.root.put('n0', numbered(2, 2))
        return True

    mesh.root.put('n0', numbered(2))
    mesh.run_until(lambda: len(mesh.there['n0']) == 2, spread, lambda: len(mesh.there['n0']) == 3, put,
                   lambda: len(mesh.there['n0']) == 5)
    assert mesh.there == {'n0': [*numbered(2), {'loose': 1}, *numbered(2, 2)], 'n1': []}


def test_a_relay_that_dies_costs_nobody_else_anything(make: Callable[..., Mesh], monkeypatch: Any) -> None:
    """Items put while it dies arrive once, and in order."""
    monkeypatch.setattr(root, 'RETURN', 0.5)
    mesh = make(9, 3)
    others = [name for name in mesh.nodes if name != 'n0']

    def kill() -> bool:
        for name in others:
            mesh.root.put(name, numbered(3))
            mesh.nodes[name].put(numbered(3))
        mesh.nodes['n0'].close(0)
        for name in others:
            mesh.root.put(name, numbered(3, 3))
            mesh.nodes[name].put(numbered(3, 3))
        return True

    def arrived() -> bool:
        return all(len(mesh.there[name]) == 6 == len(mesh.here.get(name, ())) for name in others)

    def resettled() -> bool:
        parents = {mesh.nodes[name].address for name in ('n3', 'n4', 'n5', 'n6', 'n7', 'n8')}
        return len(parents) == 2 and mesh.root.address not in parents

    mesh.run_until(mesh.housed, kill, arrived, lambda: mesh.lost, resettled)
    assert mesh.lost == {'n0': 'its connection is lost'}
    assert all(mesh.there[name] == numbered(6) == mesh.here[name] for name in others)


def test_connections_that_break_lose_nothing(make: Callable[..., Mesh]) -> None:
    """Every other message is lost on the way, in both directions, between root and relay and between relay and node."""
    mesh = make(4, 1)
    count = 0

    def unreliable(send: Callable[..., Any]) -> Callable[..., Any]:
        def sometimes(*args: Any) -> Any:
            nonlocal count
            count += 1
            return True if count % 2 else send(*args)
        return sometimes

    def breaks() -> bool:
        mesh.root._socket._send = unreliable(mesh.root._socket._send)   # type: ignore[method-assign]
        relay = mesh.nodes['n0']._relay
        assert relay is not None
        relay._socket._send = unreliable(relay._socket._send)   # type: ignore[method-assign]
        return True

    sent = iter(range(40))

    def put() -> bool:
        for number in sent:
            mesh.root.put('n2', numbered(1, number))
            mesh.nodes['n2'].put(numbered(1, number))
            if number % 5 == 4:
                mesh.nodes['n2']._greet()   # as after each new connection
            return False
        return True

    def arrived() -> bool:
        if len(mesh.there['n2']) == 40 == len(mesh.here['n2']):
            return True
        mesh.nodes['n2']._greet()
        return False

    mesh.run_until(mesh.housed, breaks, put, arrived)
    assert mesh.there['n2'] == mesh.here['n2'] == numbered(40)


def test_a_node_that_is_silent_is_lost(make: Callable[..., Mesh]) -> None:
    mesh = make(2, interval=0.1, timeout=3.0)

    def hang() -> bool:
        if mesh.there['n0'] and mesh.there['n1']:
            mesh.nodes['n0']._timer.cancel()
            return True
        return False

    for name in mesh.nodes:
        mesh.root.put(name, numbered(1))
    mesh.run_until(hang, lambda: mesh.lost)
    assert mesh.lost == {'n0': 'no heartbeat for 3 s'}


def test_a_relay_that_is_silent_costs_nobody_else_anything(make: Callable[..., Mesh]) -> None:
    mesh = make(9, 3, interval=0.1, timeout=3.0)
    children: list[str] = []

    def hang() -> bool:
        silent = mesh.nodes['n0']
        assert silent._relay is not None
        children.extend(silent._relay._socket._way)
        silent._timer.cancel()
        silent._relay._socket._receive = silent._relay._socket._send = lambda *_: True   # type: ignore[method-assign,assignment]
        for name in children:   # as if their last signs of life had missed that of their relay
            mesh.root._nodes[name].heard -= 1.0
        return True

    def moved() -> bool:
        return bool(mesh.lost) and all(mesh.nodes[name].address != mesh.nodes['n0']._relay.address  # type: ignore[union-attr]
                                       for name in children)

    def put() -> bool:
        for name in children:
            mesh.root.put(name, numbered(1))
        return True

    mesh.run_until(mesh.housed, hang, moved, put, lambda: all(mesh.there[name] for name in children))
    assert children
    assert list(mesh.lost) == ['n0']


def test_a_child_is_silent_if_its_relay_is_not(make: Callable[..., Mesh]) -> None:
    mesh = make(4, 1)
    mesh.run_until(mesh.housed)
    heard = {'n0': 70, 'n1': 0, 'n2': 149, 'n3': 151}   # 60 s more than the relay, and two beats
    for name, ago in heard.items():
        mesh.root._nodes[name].heard = 1000.0 - ago
    assert mesh.root._silent(1000.0 - 70 + 60) == ['n3']
    assert mesh.root._silent(1000.0) == ['n0', 'n3']


def test_children_have_time_to_see_that_their_relay_has_lost_the_root(make: Callable[..., Mesh],
                                                                      monkeypatch: Any) -> None:
    """As when its node is cut off, or loses its power: then no connection is closed."""
    monkeypatch.setattr(root, 'RETURN', 2.0)
    mesh = make(9, 3, interval=0.1, timeout=3.0)
    children: list[str] = []

    def cut() -> bool:
        relay = mesh.nodes['n0']
        assert relay._relay is not None
        children.extend(relay._relay._socket._way)
        relay._timer.cancel()
        relay._relay._socket._send = lambda *_: True   # type: ignore[method-assign]
        relay._connection.socket.disconnect(mesh.root.address)
        return True

    def put() -> bool:
        for name in children:
            mesh.root.put(name, numbered(1))
        return True

    mesh.run_until(mesh.housed, cut, lambda: mesh.lost, put, lambda: all(mesh.there[name] for name in children))
    assert children
    assert mesh.lost == {'n0': 'its connection is lost'}


def test_who_comes_back_is_not_lost_by_what_was_before(make: Callable[..., Mesh], monkeypatch: Any) -> None:
    """Each loss of a connection has its own time."""
    monkeypatch.setattr(root, 'RETURN', 0.5)
    mesh = make(1)
    again: list[bool] = []
    mesh.greeted = lambda name: again.append(True)

    def gone() -> bool:
        mesh.root._gone(['n0'])
        return True

    def greeted() -> bool:
        mesh.nodes['n0']._greet()
        return True

    mesh.run_until(lambda: again, gone, greeted, lambda: len(again) == 2)
    assert mesh.root._nodes['n0'].away is None


def test_without_a_root_a_node_is_forsaken(make: Callable[..., Mesh], monkeypatch: Any) -> None:
    monkeypatch.setattr(node, 'FORSAKEN', 0.2)
    mesh = make(3, 1)

    def end() -> bool:
        mesh.root.close(0)
        mesh.gate.close()
        return True

    mesh.run_until(mesh.housed, end, lambda: len(mesh.forsaken) == 3)
    assert set(mesh.forsaken.values()) == {f'the connection to {mesh.root.address} is lost'}


def test_a_node_that_comes_has_more_time(make: Callable[..., Mesh], monkeypatch: Any) -> None:
    """The root starts many at once, and lets nobody in meanwhile."""
    monkeypatch.setattr(node, 'FORSAKEN', 0.0)
    mesh = make(1)
    mesh.add('late', let_in=0.0)
    mesh.root.put('n0', numbered(1))
    mesh.run_until(lambda: mesh.there['n0'])
    assert mesh.forsaken == {'late': f'no connection to {mesh.root.address} within 0 s'}


def test_others_are_not_let_in(make: Callable[..., Mesh]) -> None:
    mesh = make(1)
    mesh.own = keys.generate()
    mesh.add('n1')
    with pytest.raises(CoordinationError, match='does not accept the key'):
        mesh.run_until(lambda: False)


@pytest.mark.parametrize('relays', [0, 1])
def test_a_node_on_another_host_compares_its_clock(make: Callable[..., Mesh], relays: int) -> None:
    mesh = make(relays, relays)
    mesh.clock = lambda: None   # nobody has told it yet
    readings: list[Reading] = []
    far = mesh.add('far', on_clock=readings.append)
    def ask_again() -> bool:
        """The first question has got no answer; from now on they are answered."""
        mesh.clock = lambda: time.time_ns() - 5_000_000_000
        assert far._clock
        far._clock.due()
        return True

    def tell() -> bool:
        far.tell_moment(Moment('m', 7, 2))
        return True

    mesh.run_until(lambda: far._connected, ask_again, lambda: readings, tell, lambda: mesh.moments)
    assert abs(readings[0].ahead - 5_000_000_000) <= readings[0].within
    assert mesh.moments == [('far', 'm', 2)]


def test_who_comes_back_from_a_relay_finds_another() -> None:
    """Also when all have their share of children: the machine of that relay may just have been slow."""
    parents = RelayAssignment(9, 3)
    for number in range(3):
        parents.add(f'n{number}', f'address {number}')
    first = {name: parents.find(name) for name in ('n3', 'n4', 'n5', 'n6', 'n7', 'n8')}
    assert sorted(first.values()) == [f'address {number}' for number in (0, 0, 1, 1, 2, 2)]
    second = parents.find('n3')
    assert second not in ('', first['n3'])
    assert parents.find('n3') not in ('', second)


@pytest.mark.parametrize(('nodes', 'relays'), [(0, 0), (64, 0), (65, 64), (4096, 64), (8000, 89)])
def test_number_of_relays(nodes: int, relays: int) -> None:
    assert relays_for(nodes) == relays
