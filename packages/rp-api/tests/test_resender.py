"""Messages that outlast their connection, over connections that lose the last ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.errors import CoordinationError
from rp_api.transport.resend import OFTEN, Resender


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12))
def test_each_message_comes_once_and_in_order(rounds: list[tuple[int, int]]) -> None:
    """In each round some are said, of which the last ones are lost with the connection."""
    here, there = Resender(), Resender()
    said, heard = 0, []
    for count, lost in [*rounds, (1, 0)]:
        on_way = here.again(there.heard)
        for _ in range(count):
            said += 1
            on_way.append(here.say(str(said).encode()))
        for frames in on_way[:len(on_way) - lost] if lost else on_way:
            data = there.hear(frames)
            assert data is not None
            heard.append(int(data))
            if number := there.to_tell():
                here.has_come(number)
    assert heard == list(range(1, said + 1))
    assert len(here.again(there.heard - OFTEN)) <= OFTEN + 1


def test_what_came_before_or_follows_on_a_gap_does_not_count() -> None:
    here, there = Resender(), Resender()
    one, two, three = (here.say(data) for data in (b'one', b'two', b'three'))
    assert there.hear(one) == b'one'
    assert there.hear(one) is None
    assert there.hear(three) is None
    assert there.hear(two) == b'two'
    assert here.again(there.heard) == [three]
    assert there.hear([b'without a number']) == b'without a number'
    for frames in ([b'x', b'y'], [*one, b'more'], []):
        with pytest.raises(CoordinationError, match='malformed'):
            there.hear(frames)
