"""What is numbered, kept and resent arrives once and in order, whatever a connection loses, doubles or reorders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.transport.resend import Resender, ResendQueue
from rp_api.tree import stream
from rp_api.tree.stream import Stream


class Ends(Protocol):
    """The two ends of a connection: messages go from one to the other, and acknowledgements back."""

    def say(self, number: int) -> list[Any]:
        """Messages that bring what has this number."""

    def hear(self, message: Any) -> list[int]:
        """The numbers that are new to the other end."""

    def heard(self) -> int:
        """An acknowledgement of the other end."""

    def has_come(self, acknowledged: int) -> None:
        """Such an acknowledgement has arrived, late perhaps."""

    def again(self, acknowledged: int) -> list[Any]:
        """The messages that are to be sent on a new connection, on which the other end acknowledged this."""

    def kept(self) -> int:
        """How many messages are kept."""


class QueueEnds:
    """A queue whose messages have their numbers in them, as those to a hub."""

    def __init__(self) -> None:
        self._queue = ResendQueue[int]()
        self._heard = 0

    def say(self, number: int) -> list[int]:
        self._queue.add(number)
        assert self._queue.sent == number
        return [number]

    def hear(self, message: int) -> list[int]:
        if message != self._heard + 1:
            return []
        self._heard = message
        return [message]

    def heard(self) -> int:
        return self._heard

    def has_come(self, acknowledged: int) -> None:
        self._queue.acknowledge(acknowledged)

    def again(self, acknowledged: int) -> list[int]:
        self._queue.acknowledge(acknowledged)
        return list(self._queue)

    def kept(self) -> int:
        return len(self._queue)


class LastingEnds:
    """A RAPTOR master and its agent."""

    def __init__(self) -> None:
        self._near, self._far = Resender(), Resender()

    def say(self, number: int) -> list[list[bytes]]:
        return [self._near.say(b'%d' % number)]

    def hear(self, message: list[bytes]) -> list[int]:
        data = self._far.hear(message)
        return [] if data is None else [int(data)]

    def heard(self) -> int:
        return self._far.heard

    def has_come(self, acknowledged: int) -> None:
        self._near.has_come(acknowledged)

    def again(self, acknowledged: int) -> list[list[bytes]]:
        return self._near.again(acknowledged)

    def kept(self) -> int:
        return len(self._near.again(0))


class StreamEnds:
    """The root of a tree and a node; messages bring three items each, of which the last one counts."""

    def __init__(self) -> None:
        self._near, self._far = Stream(), Stream()

    def say(self, number: int) -> list[bytes]:
        return self._near.put([{'number': 0}, {'number': 0}, {'number': number}])

    def hear(self, message: bytes) -> list[int]:
        items = self._far.take(*stream.decode(message)[1]) or []
        return [item['number'] for item in items if item['number']]

    def heard(self) -> int:
        return self._far.received

    def has_come(self, acknowledged: int) -> None:
        self._near.missing(acknowledged)

    def again(self, acknowledged: int) -> list[bytes]:
        return self._near.missing(acknowledged)

    def kept(self) -> int:
        return len(self._near.missing(0))


class Link:
    """A connection that does to messages what it is told to."""

    def __init__(self, ends: Ends) -> None:
        self.ends = ends
        self.said = 0
        self.arrived: list[int] = []
        self.there: list[Any] = []
        self.back: list[int] = []

    def say(self, at: int) -> None:
        self.said += 1
        self.there += self.ends.say(self.said)

    def deliver(self, at: int) -> None:
        """Any of the messages that are on their way arrives: they may overtake each other."""
        if self.there:
            self.arrived += self.ends.hear(self.there.pop(at % len(self.there)))

    def acknowledge(self, at: int) -> None:
        self.back.append(self.ends.heard())

    def has_come(self, at: int) -> None:
        if self.back:
            self.ends.has_come(self.back.pop(at % len(self.back)))

    def lose(self, at: int) -> None:
        for way in (self.there, self.back):
            if way:
                way.pop(at % len(way))

    def double(self, at: int) -> None:
        if self.there:
            self.there.append(self.there[at % len(self.there)])

    def reconnect(self, at: int) -> None:
        """What was on its way may come all the same, before what is sent again or among it."""
        if at % 2:
            self.there.clear()
        self.there += self.ends.again(self.ends.heard())


STEPS = [name for name in vars(Link) if not name.startswith('_')]


@pytest.mark.parametrize('make', [QueueEnds, LastingEnds, StreamEnds])
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 50)), max_size=60))
def test_everything_arrives_once_and_in_order(make: Callable[[], Ends], steps: list[tuple[str, int]]) -> None:
    link = Link(make())
    for name, at in steps:
        getattr(link, name)(at)
        assert link.arrived == list(range(1, len(link.arrived) + 1))
    link.reconnect(1)
    while link.there:
        link.deliver(0)
    assert link.arrived == list(range(1, link.said + 1))
    link.ends.has_come(link.ends.heard())
    assert link.ends.kept() == 0


def test_what_is_acknowledged_is_kept_no_longer() -> None:
    queue = ResendQueue[str]()
    for message in ('one', 'two', 'three'):
        queue.add(message)
    queue.acknowledge(2)
    queue.acknowledge(1)   # comes late
    assert (list(queue), len(queue), queue.sent, queue.acknowledged) == (['three'], 1, 3, 2)
    queue.acknowledge(7)   # was never sent
    assert (list(queue), queue.acknowledged) == ([], 3)


def test_a_message_of_several_items_is_kept_until_all_of_them_are_acknowledged() -> None:
    queue = ResendQueue[str]()
    queue.add('1 to 3', 3)
    queue.add('4 and 5', 2)
    queue.acknowledge(2)
    assert list(queue) == ['1 to 3', '4 and 5']
    queue.acknowledge(3)
    assert (list(queue), queue.sent) == (['4 and 5'], 5)
