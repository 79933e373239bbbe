"""What waits in memory for its rows: the text that a plain Python writer makes, whatever is recorded and how much."""

from __future__ import annotations

import pickle
import time
import weakref
from decimal import Decimal
from enum import Enum
from sys import intern
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_profiling.write.rows import RowBuffer, timestamp

FULL_AT = 256 * 1024
FIELDS = st.one_of(
    st.sampled_from(['', 'task.000000', 'AGENT_EXECUTING', 'a,b', '"', '\x7f', '~', ' ', '\x1f', '\0', '\udcff']),
    st.text(max_size=40),
    st.text(st.characters(max_codepoint=255)),
    st.integers(),
    st.none(),
)


class Kept(RowBuffer):
    """Takes the rows away as soon as there are enough."""

    def __init__(self) -> None:
        super().__init__('agent_0', 'MainThread', True)
        self.taken: list[bytes | memoryview] = []

    def _full(self) -> None:
        self.taken.append(self._take())


def expected(field: object) -> str:
    """The field as the format asks for it, one character after the other."""
    text = str(field).replace(',', ';').replace('"', "'")
    return ''.join(each if each.isprintable() else ' ' for each in text)


def a_buffer(comp: str = 'agent_0', thread: str = 'MainThread') -> RowBuffer:
    return RowBuffer(comp, thread, True)


def rows(buffer: RowBuffer) -> list[list[str]]:
    """The fields after the time of all rows that wait; they are removed."""
    text = bytes(buffer._take()).decode()
    assert text == '' or text.endswith('\n')
    return [line.split(',')[1:] for line in text.split('\n')[:-1]]


@given(FIELDS, FIELDS, FIELDS, FIELDS)
def test_fields_are_cleaned(event: Any, uid: Any, state: Any, msg: Any) -> None:
    buffer = a_buffer()
    buffer.record(event, uid, state, msg)
    buffer.record_bulk(event, [uid, 'x', uid], state, msg)
    buffer.record_many(uid, (event, 'x'))
    buffer.record_many(uid, (event, 'x'), msg)
    buffer.record_each(event, [(uid, msg), ('x', '')])

    names = [expected(field) for field in (event, uid, state, msg)]
    row = [names[0], 'agent_0', 'MainThread', *names[1:]]
    other = [names[0], 'agent_0', 'MainThread', 'x', *names[2:]]
    first, second = [[name, 'agent_0', 'MainThread', names[1], '', ''] for name in (names[0], 'x')]
    told = [*first[:-1], names[3]]
    each = [told, [names[0], 'agent_0', 'MainThread', 'x', '', '']]
    assert rows(buffer) == [row, row, other, row, first, second, told, second, *each]


@given(st.text(), st.text())
def test_the_source_is_cleaned(comp: str, thread: str) -> None:
    buffer = a_buffer(comp, thread)
    buffer.record('get')
    assert buffer.comp == comp
    assert rows(buffer) == [['get', expected(comp), expected(thread), '', '', '']]


@pytest.mark.parametrize('code', range(256))
def test_each_byte_is_kept_or_replaced_wherever_it_stands(code: int) -> None:
    buffer = a_buffer()
    texts = [f'{"x" * before}{chr(code)}{"y" * (16 - before)}' for before in range(17)]
    buffer.record_bulk('get', texts)
    assert [row[3] for row in rows(buffer)] == [expected(text) for text in texts]


@given(st.integers(0, 2**64 - 1))
def test_a_time_has_seven_decimals_and_is_cut_off(nanoseconds: int) -> None:
    seconds = Decimal(nanoseconds) / 10**9
    text = timestamp(nanoseconds)
    assert len(text.partition('.')[2]) == 7
    assert 0 <= seconds - Decimal(text) < Decimal('1e-7')


def test_times_of_this_century() -> None:
    assert timestamp(0) == '0.0000000'
    assert timestamp(1_700_000_000_012_345_678) == '1700000000.0123456'


@pytest.mark.parametrize('size', [0, 1, 4000, 4096, FULL_AT - 1, FULL_AT, 3 * FULL_AT])
def test_rows_of_any_length_are_kept_whole(size: int) -> None:
    buffer = a_buffer()
    for _ in range(3):
        buffer.record('get', 'u' * size, msg='m' * size)
    assert rows(buffer) == [['get', 'agent_0', 'MainThread', 'u' * size, '', 'm' * size]] * 3
    assert buffer._take() == b''


def test_rows_that_just_fill_the_memory_are_kept_whole() -> None:
    """Whatever the memory grows to, some of these rows end at its last byte, and some one byte before or behind."""
    for size in range(4096):
        buffer = a_buffer()
        buffer.record('get', 'u' * size)
        assert len(buffer._take()) == size + len(f'{timestamp(time.time_ns())},get,agent_0,MainThread,,,\n')


def test_what_waits_is_bounded() -> None:
    buffer = Kept()
    uids = [f'task.{index}' for index in range(30_000)]
    buffer.record_bulk('get', uids)
    for _ in range(10):
        buffer.record_many('task.0', ('get',) * 3000)
    for uid in uids:
        buffer.record('get', uid)

    assert all(FULL_AT // 2 <= len(taken) <= 2 * FULL_AT for taken in buffer.taken)
    kept = b''.join([*buffer.taken, buffer._take()]).decode().splitlines()
    assert [row.split(',')[4] for row in kept] == [*uids, *['task.0'] * 30_000, *uids]


def test_rows_that_were_taken_stay_as_they_are_while_somebody_looks_at_them() -> None:
    buffer = a_buffer()
    taken = []
    for number in range(5):
        buffer.record('get', f'task.{number}')
        taken.append(buffer._take())
    assert [bytes(each).split(b',')[4] for each in taken] == [b'task.%d' % number for number in range(5)]


def test_all_rows_of_a_process_are_made_in_one_memory() -> None:
    buffers = a_buffer(), a_buffer()
    memories = set()
    for number in range(10):
        buffers[number % 2].record('get', f'task.{number}')
        rows = buffers[number % 2]._take()
        assert isinstance(rows, memoryview)
        memories.add(id(rows.obj))
        del rows
    assert len(memories) == 1


def test_the_rows_of_many_kinds_of_events_are_right() -> None:
    """More kinds than are remembered, names that stand in a program and others, in turns."""
    buffer = a_buffer()
    names = [f'event_{number}' for number in range(40)]
    kinds = [(intern(name), intern(state)) for name in names for state in ('', 'NEW', 'DONE')]
    for _ in range(3):
        for event, state in kinds:
            buffer.record(event, 'task.0', state)
            buffer.record(f'{event}x', 'task.0', f'{state}y')
            buffer.record_many('task.1', (event,))
    expected_rows = [row for event, state in kinds for row in
                     ((event, 'task.0', state), (f'{event}x', 'task.0', f'{state}y'), (event, 'task.1', ''))]
    assert [(row[0], row[3], row[4]) for row in rows(buffer)] == expected_rows * 3


def test_nothing_is_kept_while_it_is_off() -> None:
    buffer = RowBuffer('agent_0', 'MainThread', False)
    buffer.record('get')
    buffer.record_bulk('get', ['task.0'])
    buffer.record_many('task.0', ('get',))
    assert buffer._take() == b''


class Closing:
    """A uid that switches the buffer off when it is looked at, and takes away what waits."""

    def __init__(self, buffer: RowBuffer) -> None:
        self.buffer = buffer

    def __str__(self) -> str:
        self.buffer.enabled = False
        self.buffer._take()
        return 'closing'


def test_a_buffer_that_is_closed_in_the_middle_of_a_call_keeps_nothing_more() -> None:
    for call in ('record', 'record_bulk'):
        buffer = a_buffer()
        closing: Any = Closing(buffer)
        getattr(buffer, call)('get', closing if call == 'record' else ['task.0', closing, 'task.1'])
        assert buffer._take() == b''


class Broken:
    def __str__(self) -> str:
        raise ValueError('it has no text')


def test_a_field_without_a_text_is_an_error_and_leaves_no_row() -> None:
    buffer = a_buffer()
    broken: Any = Broken()
    with pytest.raises(ValueError, match='it has no text'):
        buffer.record('get', 'task.0', msg=broken)
    with pytest.raises(ValueError, match='it has no text'):
        buffer.record_bulk('get', ['task.1', broken])
    assert rows(buffer) == []


class Shrinking:
    """A uid that removes all others from the list it is in."""

    def __init__(self, uids: list[Any]) -> None:
        self.uids = uids

    def __str__(self) -> str:
        self.uids.clear()
        return 'shrinking'


def test_uids_may_change_during_the_call() -> None:
    buffer = a_buffer()
    uids: list[Any] = ['task.0']
    uids += [Shrinking(uids), 'task.1']
    buffer.record_bulk('get', uids)
    assert [row[3] for row in rows(buffer)] == ['task.0', 'shrinking', 'task.1']


class Colour(str, Enum):
    RED = 'red'


def test_text_of_other_types_is_what_it_prints_as() -> None:
    buffer = a_buffer()
    buffer.record('get', Colour.RED)
    assert [row[3] for row in rows(buffer)] == [str(Colour.RED)]


def test_uids_may_come_from_any_iterable() -> None:
    buffer = a_buffer()
    buffer.record_bulk('get', dict.fromkeys(['task.0', 'task.1']))
    buffer.record_bulk('get', (f'task.{index}' for index in range(2)))
    assert [row[3] for row in rows(buffer)] == ['task.0', 'task.1'] * 2


def test_wrong_arguments_are_told() -> None:
    buffer: Any = a_buffer()
    with pytest.raises(TypeError):
        buffer.record()
    with pytest.raises(TypeError, match='events'):
        buffer.record_many('task.0', 'exec_start')
    with pytest.raises(TypeError):
        buffer.record_bulk('get', 17)
    with pytest.raises(TypeError, match='comp'):
        RowBuffer(None, 'MainThread', True)  # type: ignore[arg-type]


def test_a_buffer_with_rows_goes_away_and_cannot_be_copied() -> None:
    buffer = Kept()
    buffer.record('get')
    with pytest.raises(TypeError):
        pickle.dumps(buffer)
    gone = weakref.ref(buffer)
    del buffer
    assert gone() is None
