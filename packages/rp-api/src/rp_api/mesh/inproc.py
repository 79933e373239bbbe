"""Channels within one process: a queue and publish/subscribe that hand Python objects over as they are.

The rules of `channel` apply: receivers are called by the loop, never from within `put`, `publish` or `done`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.mesh.flow import Soon, deal
from rp_api.mesh.keys import LINGER
from rp_api.mesh.loop import Loop

Receiver = Callable[[list[Any]], object]
TopicReceiver = Callable[[str, Any], object]


def check_open(closed: bool, what: str) -> None:
    """Raise CoordinationError if the channel's end is closed."""
    if closed:
        raise CoordinationError(f'the {what} is closed')


def checked_credit(credit: int) -> int:
    """The credit, if items can flow with it."""
    if credit < 1:
        raise ValueError(f'the credit of a getter is at least 1, not {credit}')
    return credit


def checked_topic(topic: str) -> str:
    """The topic, if it can be one; zero bytes end topics on the wire."""
    if not topic or '\0' in topic:
        raise ValueError(f'a topic is text without zero bytes and not empty, not {topic!r}')
    return topic


class InprocQueue:
    """A queue within a process; it is its own putter. Items are handed over as they are."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._items: deque[Any] = deque()
        self._getters: dict[int, InprocGetter] = {}
        self._deal_soon = Soon(loop, self._deal)
        self._closed = False

    @property
    def pending(self) -> int:
        """How many items no getter had room for yet."""
        return len(self._items)

    def put(self, items: list[Any]) -> None:
        """Append items to the queue."""
        check_open(self._closed, 'queue')
        self._items.extend(items)
        self._deal_soon()

    def getter(self, receiver: Receiver, credit: int) -> InprocGetter:
        """Attach a getter that takes up to `credit` items."""
        getter = InprocGetter(self._return, self._deal_soon, receiver, credit)
        self._getters[id(getter)] = getter
        self._deal_soon()
        return getter

    def close(self, linger: float = LINGER) -> None:
        """Take no more items; those that were taken are still handed out."""
        self._closed = True

    def _deal(self) -> None:
        deal(self._getters, self._items.__len__, self._give)

    def _give(self, key: int, getter: InprocGetter, count: int) -> None:
        items = [self._items.popleft() for _ in range(count)]
        getter.given.extend(items)
        self._loop.call_soon(getter.deliver, items)

    def _return(self, getter: InprocGetter) -> None:
        del self._getters[id(getter)]
        self._items.extendleft(reversed(getter.given))
        self._deal_soon()


class InprocGetter:
    """A getter of a queue within the process."""

    def __init__(self, leave: Callable[[InprocGetter], None], renewed: Callable[[], None],
                 receiver: Receiver, credit: int) -> None:
        self.given: deque[Any] = deque()
        self._credit = checked_credit(credit)
        self._receiver = receiver
        self._leave = leave
        self._renewed = renewed
        self._closed = False

    @property
    def free(self) -> int:
        """How many more items it takes now."""
        return self._credit - len(self.given)

    def deliver(self, items: list[Any]) -> None:
        """Hand items to the receiver; if the getter was closed meanwhile, the queue has them again."""
        if not self._closed:
            self._receiver(items)

    def done(self, count: int) -> None:
        """Take the `count` oldest items over for good; as many new ones may come."""
        if not 0 <= count <= len(self.given):
            raise ValueError(f'{count} items cannot be done: {len(self.given)} are under way')
        for _ in range(count):
            self.given.popleft()
        self._renewed()

    def close(self, linger: float = LINGER) -> None:
        """Leave the queue, which takes the items back that are not done."""
        if not self._closed:
            self._closed = True
            self._leave(self)


class InprocPubSub:
    """Publish/subscribe within a process; all subscribers get the same object and must not change it."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._subscribers: dict[str, list[InprocSubscriber]] = {}
        self._closed = False

    def publish(self, topic: str, message: Any) -> None:
        """Tell the subscribers of the topic."""
        check_open(self._closed, 'publisher')
        self._loop.call_soon(self._deliver, checked_topic(topic), message)

    def subscribe(self, topics: Iterable[str], receiver: TopicReceiver,
                  live: Callable[[], object] | None = None) -> InprocSubscriber:
        """Attach a subscriber; `live` is called by the loop when nothing can be missed any more."""
        subscriber = InprocSubscriber(self._subscribers, list(topics), receiver)
        if live:
            self._loop.call_soon(live)
        return subscriber

    def close(self, linger: float = LINGER) -> None:
        """Publish no more."""
        self._closed = True

    def _deliver(self, topic: str, message: Any) -> None:
        for subscriber in tuple(self._subscribers.get(topic, ())):
            subscriber.deliver(topic, message)


class InprocSubscriber:
    """A subscriber within the process."""

    def __init__(self, table: dict[str, list[InprocSubscriber]], topics: list[str],
                 receiver: TopicReceiver) -> None:
        self._lists = [table.setdefault(checked_topic(topic), []) for topic in topics]
        self._receiver = receiver
        self._closed = False
        for subscribers in self._lists:
            subscribers.append(self)

    def deliver(self, topic: str, message: Any) -> None:
        """Hand a message to the receiver."""
        if not self._closed:
            self._receiver(topic, message)

    def close(self, linger: float = LINGER) -> None:
        """Hear no more."""
        if not self._closed:
            self._closed = True
            for subscribers in self._lists:
                subscribers.remove(self)
