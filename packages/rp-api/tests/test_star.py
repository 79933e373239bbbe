"""The middle of a star of queues: who gets what, in which order, and what the death of a peer does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zmq

from rp_api.mesh import keys
from rp_api.mesh.channel import QueueGetter, QueuePutter
from rp_api.mesh.loop import Loop
from rp_api.mesh.star import Star

PATIENCE = 30.0


class Mesh:
    """A star and its peers, all in one loop; what arrives in the middle is in `here`."""

    def __init__(self) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.loop = Loop()
        self.keys, self.own = keys.generate(), keys.generate()
        self.gate = keys.Gate(self.context, self.loop)
        self.gate.allow(self.own.public)
        self.here: list[Any] = []
        self.star = Star(self.loop, self.keys, self.gate, self.here.extend)
        self._ends: list[Any] = []

    def getter(self, name: str, credit: int = 4096, finish: bool = True) -> tuple[QueueGetter, list[Any]]:
        """A getter, and what it has got."""
        got: list[Any] = []

        def receive(items: list[Any]) -> None:
            got.extend(items)
            if finish:
                getter.done(len(items))

        getter = self._end(QueueGetter, receive, credit, name=name)
        return getter, got

    def putter(self) -> QueuePutter:
        putter: QueuePutter = self._end(QueuePutter)
        return putter

    def _end(self, kind: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        end = kind(self.loop, self.star.address, self.own, self.keys.public, *args, context=self.context, **kwargs)
        self._ends.append(end)
        return end

    def run_until(self, holds: Callable[[], bool]) -> None:
        """Run the loop, which can run once."""
        def ask() -> None:
            if holds():
                self.loop.stop()
            else:
                self.loop.call_later(0.001, ask)

        self.loop.call_soon(ask)
        self.loop.call_later(PATIENCE, pytest.fail, 'it did not come true')
        self.loop.run()

    def close(self) -> None:
        for end in self._ends:
            end.close(0)
        self.star.close(0)
        self.gate.close()
        self.context.term()
        self.loop.close()


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    made = Mesh()
    yield made
    made.close()


def numbered(count: int, **values: Any) -> list[dict[str, Any]]:
    return [{'number': number} | values for number in range(count)]


def test_each_gets_its_own_in_order(mesh: Mesh) -> None:
    """Also what was put before it came, and more than one message holds."""
    mesh.star.put('a', numbered(3000, to='a'))
    (_, a), (_, b) = mesh.getter('a'), mesh.getter('b')
    mesh.star.put('b', numbered(10, to='b'))
    mesh.star.put('a', [])
    mesh.run_until(lambda: len(a) + len(b) == 3010)
    assert (a, b) == (numbered(3000, to='a'), numbered(10, to='b'))


def test_all_is_received_here(mesh: Mesh) -> None:
    first, second = mesh.putter(), mesh.putter()
    first.put(numbered(5000, by=1))   # more than the credit of a putter
    second.put(numbered(10, by=2))
    mesh.run_until(lambda: len(mesh.here) == 5010)
    assert [item for item in mesh.here if item['by'] == 1] == numbered(5000, by=1)
    assert [item for item in mesh.here if item['by'] == 2] == numbered(10, by=2)
    assert mesh.star.malformed == 0


def test_nobody_gets_more_than_its_credit(mesh: Mesh) -> None:
    """And who takes nothing holds up nobody."""
    (_, slow), (_, quick) = mesh.getter('slow', credit=3, finish=False), mesh.getter('quick')
    mesh.star.put('slow', numbered(10))
    mesh.star.put('quick', numbered(2000))
    mesh.run_until(lambda: len(quick) == 2000 and len(slow) >= 3)
    assert slow == numbered(3)


def test_forgotten_getter(mesh: Mesh) -> None:
    """What it had is given to nobody, also not to one of the same name."""
    _, dead = mesh.getter('a', credit=1, finish=False)
    _, fresh = mesh.getter('b')
    mesh.star.put('a', numbered(5))
    done: list[bool] = []

    def forget() -> None:
        mesh.star.forget('a')
        mesh.star.put('b', numbered(1, last=True))
        done.append(True)

    def ready() -> bool:
        if dead and not done:
            forget()
        return bool(fresh)

    mesh.run_until(ready)
    assert (dead, fresh) == (numbered(1), numbered(1, last=True))


def test_what_cannot_travel(mesh: Mesh) -> None:
    with pytest.raises(TypeError, match='object'):
        mesh.star.put('a', [{'x': object()}])
