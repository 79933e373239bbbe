"""The flow rules of a link, and the channels within one process."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.errors import CoordinationError
from rp_api.mesh import flow
from rp_api.mesh.channel import Getter, InprocPubSub, InprocQueue, Putter
from rp_api.mesh.codec import pack
from rp_api.mesh.flow import Backlog, Inflow, Outflow, deal
from rp_api.mesh.loop import Loop

PATIENCE = 30.0


def bodies(*numbers: int) -> list[bytes]:
    return [b'%d' % number for number in numbers]


class TestBacklog:
    @given(st.lists(st.tuples(st.sampled_from(['add', 'take', 'drop', 'last', 'back']), st.integers(1, 5))))
    def test_it_behaves_like_a_list(self, steps: list[tuple[str, int]]) -> None:
        backlog, model, number = Backlog(), list[bytes](), 0
        for step, count in steps:
            new = bodies(*range(number, number + count))
            number += count
            if step == 'add':
                backlog.add(b'', new)
                model += new
            elif step == 'back':
                other = Backlog()
                other.add(b'', new[:1])
                other.add(b'', new[1:])
                backlog.put_back(other)
                model[:0] = new
            elif step == 'last' and model:
                taken = backlog.take_last()[1]
                assert taken == model[-len(taken):]
                del model[-len(taken):]
            elif step == 'take' and model:
                taken = backlog.take(count)[1]
                assert 1 <= len(taken) <= count
                assert taken == model[:len(taken)]
                del model[:len(taken)]
            elif step == 'drop' and len(model) >= count:
                backlog.drop(count)
                del model[:count]
            assert len(backlog) == len(model)
            assert [body for _, segment in backlog for body in segment] == model

    def test_a_bulk_ends_when_it_has_enough_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(flow, 'BULK_BYTES', 10)
        backlog = Backlog()
        backlog.add(b's', [b'x' * 4] * 5 + [b'y' * 100])
        assert [len(backlog.take(9)[1]) for _ in range(2)] == [3, 3]
        assert not backlog


class LossyLink:
    """A sender and a receiver joined by a connection that may break at any message."""

    def __init__(self, credit: int) -> None:
        self.outflow, self.backlog = Outflow(), Backlog()
        self.inflow = Inflow(credit)
        self.there: deque[tuple[int, list[bytes]]] = deque()
        self.back: deque[tuple[int | None, int, int]] = deque()
        self.arrived: list[bytes] = []
        self.say(sync=True)

    def send(self) -> None:
        if self.backlog and self.outflow.free > 0:
            shared, taken = self.backlog.take(self.outflow.free)
            self.there.append((self.outflow.send(shared, taken), taken))

    def say(self, sync: bool = False) -> None:
        self.inflow.renew()
        self.back.append((self.inflow.received if sync else None, self.inflow.done, self.inflow.allowed))

    def deliver(self) -> None:
        if self.there:
            fresh = self.inflow.accept(*self.there.popleft())
            if fresh is None:
                self.say(sync=True)
            else:
                self.arrived += fresh

    def hear(self) -> None:
        if self.back:
            received, done, allowed = self.back.popleft()
            self.outflow.grant(done, allowed)
            if received is not None:
                self.there += [(first, segment) for first, _, segment in self.outflow.missing(received)]

    def finish(self) -> None:
        self.inflow.finish(self.inflow.received - self.inflow.done)
        self.say()

    def break_off(self) -> None:
        self.there.clear()
        self.back.clear()
        self.say(sync=True)

    def check(self, credit: int) -> None:
        assert len(self.outflow.given) == self.outflow.sent - self.outflow.done
        assert self.inflow.received - self.inflow.done <= credit
        assert self.outflow.done <= self.inflow.done <= self.inflow.received <= self.outflow.sent


STEPS = ['put', 'send', 'deliver', 'hear', 'finish', 'break_off']


@given(st.integers(1, 6), st.lists(st.sampled_from(STEPS)))
def test_a_link_that_breaks_loses_and_doubles_nothing(credit: int, steps: list[str]) -> None:
    link, count = LossyLink(credit), 0
    for step in steps:
        if step == 'put':
            link.backlog.add(b'', bodies(*range(count, count + 3)))
            count += 3
        else:
            getattr(link, step)()
        link.check(credit)
    link.break_off()
    while len(link.arrived) < count or link.back or link.there:
        for step in ('hear', 'send', 'deliver'):
            getattr(link, step)()
        if link.inflow.received > link.inflow.done:
            link.finish()
        link.check(credit)
    assert link.arrived == bodies(*range(count))


def test_a_receiver_cannot_have_done_what_was_not_sent() -> None:
    outflow = Outflow()
    outflow.grant(0, 5)
    outflow.send(b'', bodies(1, 2))
    with pytest.raises(CoordinationError, match='3 items done of 2'):
        outflow.grant(3, 9)


def in_turn(*actions: Callable[[], object]) -> None:
    for act in actions:
        act()


class Room:
    def __init__(self, free: int) -> None:
        self.free = free
        self.got = 0


def test_items_are_dealt_in_even_shares_and_in_turns() -> None:
    takers = {'a': Room(100), 'b': Room(2), 'c': Room(100)}

    waiting = list(range(30))

    def give(_: str, taker: Room, count: int) -> None:
        del waiting[:count]
        taker.free -= count
        taker.got += count

    deal(takers, waiting.__len__, give)
    assert not waiting
    assert takers['b'].got == 2
    assert min(takers['a'].got, takers['c'].got) == 10
    before = {name: taker.got for name, taker in takers.items()}
    for _ in range(4):
        waiting.append(1)
        deal(takers, waiting.__len__, give)
    assert {name: taker.got - before[name] for name, taker in takers.items()} == {'a': 2, 'b': 0, 'c': 2}


@pytest.mark.parametrize('message', [
    ['items', 0, b'', [b'x', 'y']], ['items', 0, b'', []], ['items', -1, b'', [b'x']],
    ['items', True, b'', [b'x']],    ['grant', 1], ['unknown'], [], [1, 2], 'grant', {'grant': 1}])
def test_messages_of_another_form_are_refused(message: Any) -> None:
    with pytest.raises(CoordinationError, match='malformed message'):
        flow.decode(pack(message))


class Site:
    """A loop in a thread, and ways to act in it."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.loop.run()
        except ValueError as error:
            self.error = error

    def call(self, function: Any, *args: Any) -> Any:
        """The result of `function(*args)`, called in the loop's thread."""
        ended, results = threading.Event(), list[Any]()

        def act() -> None:
            try:
                results.append(function(*args))
            except (ValueError, CoordinationError) as error:
                results.append(error)
            ended.set()

        self.loop.call_soon(act)
        assert ended.wait(PATIENCE)
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]

    def settle(self) -> None:
        """Return when all that was asked for, and what that asked for, has been called."""
        for _ in range(5):
            self.call(lambda: None)

    def end(self) -> None:
        self.loop.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self.loop.close()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.end()


class TestInprocQueue:
    def test_both_kinds_of_queue_have_the_same_ends(self, site: Site) -> None:
        queue = InprocQueue(site.loop)
        putter: Putter = queue
        getter: Getter = site.call(queue.getter, print, 1)
        site.call(getter.close)
        putter.close()

    def test_items_come_in_order_and_by_credit(self, site: Site) -> None:
        queue, got = InprocQueue(site.loop), list[Any]()
        getter = site.call(queue.getter, got.extend, 3)
        queue.put([1, 2])
        queue.put([3, 4, 5])
        site.settle()
        assert got == [1, 2, 3]
        assert queue.pending == 2
        site.call(getter.done, 1)
        site.settle()
        assert got == [1, 2, 3, 4]
        site.call(getter.done, 3)
        site.settle()
        assert got == [1, 2, 3, 4, 5]

    def test_what_was_put_before_a_getter_came_waits(self, site: Site) -> None:
        queue, got = InprocQueue(site.loop), list[Any]()
        queue.put(['a'])
        site.settle()
        assert queue.pending == 1
        site.call(queue.getter, got.extend, 1)
        site.settle()
        assert got == ['a']

    def test_each_item_goes_to_one_getter_and_the_load_is_shared(self, site: Site) -> None:
        queue, got = InprocQueue(site.loop), [list[Any](), list[Any](), list[Any]()]
        for box in got:
            site.call(queue.getter, box.extend, 100)
        queue.put(list(range(30)))
        site.settle()
        assert sorted(item for box in got for item in box) == list(range(30))
        assert all(len(box) == 10 for box in got)

    def test_a_getter_that_leaves_gives_back_what_is_not_done(self, site: Site) -> None:
        queue, first, second = InprocQueue(site.loop), list[Any](), list[Any]()
        leaver = site.call(queue.getter, first.extend, 3)
        queue.put([1, 2, 3, 4])
        site.settle()
        site.call(in_turn, partial(leaver.done, 1), leaver.close, leaver.close)
        site.call(queue.getter, second.extend, 9)
        site.settle()
        assert first == [1, 2, 3]
        assert second == [2, 3, 4]

    def test_a_getter_closed_by_its_own_receiver_gets_nothing_more(self, site: Site) -> None:
        queue, got = InprocQueue(site.loop), list[Any]()

        def receive(items: list[Any]) -> None:
            got.extend(items)
            getter.close()

        getter = site.call(queue.getter, receive, 5)
        site.call(in_turn, partial(queue.put, [1]), partial(queue.put, [2]))
        site.settle()
        queue.put([3])
        site.settle()
        assert got == [1, 2]
        assert queue.pending == 3

    def test_receivers_are_not_called_from_within_put(self, site: Site) -> None:
        queue, got = InprocQueue(site.loop), list[Any]()
        site.call(queue.getter, got.extend, 5)

        def put() -> list[Any]:
            queue.put([1])
            return list(got)

        assert site.call(put) == []
        site.settle()
        assert got == [1]

    def test_bad_calls_are_refused(self, site: Site) -> None:
        queue = InprocQueue(site.loop)
        with pytest.raises(ValueError, match='at least 1, not 0'):
            queue.getter(print, 0)
        getter = site.call(queue.getter, print, 5)
        with pytest.raises(ValueError, match='1 items cannot be done: 0 are under way'):
            site.call(getter.done, 1)
        queue.close()
        with pytest.raises(CoordinationError, match='the queue is closed'):
            queue.put([1])

    def test_an_error_in_a_receiver_ends_the_loop(self, site: Site) -> None:
        queue = InprocQueue(site.loop)

        def receive(_: list[Any]) -> None:
            raise ValueError('broken')

        site.call(queue.getter, receive, 5)
        queue.put([1])
        site._thread.join(PATIENCE)
        assert str(site.error) == 'broken'


class TestInprocPubSub:
    def test_each_subscriber_hears_its_topics(self, site: Site) -> None:
        channel, heard = InprocPubSub(site.loop), list[Any]()
        live = threading.Event()
        site.call(channel.subscribe, ['state', 'other'], lambda *said: heard.append(('first', *said)),
                  live.set)
        site.call(channel.subscribe, ['state'], lambda *said: heard.append(('second', *said)))
        assert live.wait(PATIENCE)
        channel.publish('state', 1)
        channel.publish('other', 2)
        channel.publish('nobody', 3)
        channel.publish('stat', 4)
        site.settle()
        assert heard == [('first', 'state', 1), ('second', 'state', 1), ('first', 'other', 2)]

    def test_who_has_left_hears_nothing(self, site: Site) -> None:
        channel, heard = InprocPubSub(site.loop), list[Any]()

        def hear_and_leave(*said: Any) -> None:
            heard.append(said)
            leaver.close()

        leaver = site.call(channel.subscribe, ['a', 'b'], hear_and_leave)
        channel.publish('a', 1)
        channel.publish('b', 2)
        site.settle()
        site.call(leaver.close)
        assert heard == [('a', 1)]

    @pytest.mark.parametrize('topic', ['', 'a\0b'])
    def test_bad_calls_are_refused(self, site: Site, topic: str) -> None:
        channel = InprocPubSub(site.loop)
        with pytest.raises(ValueError, match='a topic is text'):
            channel.publish(topic, 1)
        with pytest.raises(ValueError, match='a topic is text'):
            channel.subscribe([topic], print)
        channel.close()
        with pytest.raises(CoordinationError, match='the publisher is closed'):
            channel.publish('a', 1)
