"""Streams: what waits, what is sent again, and what arrives whatever a connection loses."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.errors import CoordinationError
from rp_api.mesh import flow, stream
from rp_api.mesh.codec import pack
from rp_api.mesh.flow import Backlog, Outflow
from rp_api.mesh.stream import Stream


def bodies(*numbers: int) -> list[bytes]:
    return [b'%d' % number for number in numbers]


class TestBacklog:
    @given(st.lists(st.tuples(st.sampled_from(['add', 'take', 'drop']), st.integers(1, 5))))
    def test_it_behaves_like_a_list(self, steps: list[tuple[str, int]]) -> None:
        backlog, model, number = Backlog(), list[bytes](), 0
        for step, count in steps:
            if step == 'add':
                new = bodies(*range(number, number + count))
                number += count
                backlog.add(b'', new)
                model += new
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
    """The two ends of a stream, joined by a connection that may break at any message."""

    def __init__(self) -> None:
        self.near, self.far = Stream(), Stream()
        self.there: deque[bytes] = deque()
        self.back: deque[bytes] = deque()
        self.arrived: list[Any] = []
        self.count = 0

    def put(self) -> None:
        self.there += self.near.put([{'number': number} for number in range(self.count, self.count + 3)])
        self.count += 3

    def deliver(self) -> None:
        if self.there:
            items = self.far.take(*stream.decode(self.there.popleft())[1])
            if items is None:
                self.say()
            else:
                self.arrived += items

    def say(self) -> None:
        """The far end says how far it is."""
        self.back.append(stream.encode('sync', self.far.received))

    def hear(self) -> None:
        if self.back:
            self.there += self.near.missing(*stream.decode(self.back.popleft())[1])

    def break_off(self) -> None:
        self.there.clear()
        self.back.clear()
        self.say()


@given(st.lists(st.sampled_from(['put', 'deliver', 'say', 'hear', 'break_off'])))
def test_a_link_that_breaks_loses_and_doubles_nothing(steps: list[str]) -> None:
    link = LossyLink()
    for step in steps:
        getattr(link, step)()
    link.break_off()
    while link.there or link.back:
        link.hear()
        link.deliver()
    assert [item['number'] for item in link.arrived] == list(range(link.count))


def test_what_was_received_is_kept_no_longer() -> None:
    end = Stream()
    end.put([{'number': number} for number in range(5)])
    assert len(end.missing(3)) == 1
    (message,) = end.missing(0)   # an old message that comes late: what it says was true once
    assert stream.decode(message)[1][1] == 3
    assert end.missing(5) == []


def test_what_was_not_sent_cannot_have_been_received() -> None:
    outflow = Outflow()
    outflow.send(b'', bodies(1, 2))
    with pytest.raises(CoordinationError, match='3 items received of 2'):
        outflow.acknowledge(3)


@pytest.mark.parametrize('message', [
    ['items', 0, 0, b'', [b'x', 'y']], ['items', 0, 0, b'', []], ['items', 0, -1, b'', [b'x']],
    ['items', 0, True, b'', [b'x']], ['sync'], ['unknown'], [], [1, 2], 'sync', {'sync': 1}])
def test_messages_of_another_form_are_refused(message: Any) -> None:
    with pytest.raises(CoordinationError, match='malformed message'):
        stream.decode(pack(message))
