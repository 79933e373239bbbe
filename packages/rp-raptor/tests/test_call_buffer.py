"""Calls in line: their order, however they come and go; the test of what is compiled for it."""

from __future__ import annotations

import random
import sys
from array import array

import pytest

from rp_api.wire import codec
from rp_raptor.wire.batch import Payloads, joined, pack_message, unpack
from rp_raptor.wire.call_buffer import CallBuffer
from rp_raptor.wire.ids import Held, hold, release, source_of, with_source, without_source


def ids(*numbers: int) -> array[int]:
    return array('Q', numbers)


def payloads(numbers: array[int]) -> list[bytes]:
    return [b'%d' % number for number in numbers]


def added(line: CallBuffer, *numbers: int) -> None:
    line.append(ids(*numbers), payloads(ids(*numbers)))


def taken(line: CallBuffer, most: int) -> tuple[array[int], list[bytes]]:
    found, with_them = line.take(most, 100)
    return found, list(with_them)


@pytest.fixture
def line() -> CallBuffer:
    line = CallBuffer()
    added(line, 1, 2, 3, 4, 5)
    return line


def test_calls_are_taken_in_their_order(line: CallBuffer) -> None:
    assert line.first(2) == ids(1, 2)
    assert taken(line, 2) == (ids(1, 2), [b'1', b'2'])
    assert line.first(2) == ids(3, 4)
    assert len(line) == 3
    assert taken(line, 10) == (ids(3, 4, 5), [b'3', b'4', b'5'])
    assert taken(line, 1) == (ids(), [])


def test_large_payloads_are_not_taken_together(line: CallBuffer) -> None:
    assert line.take(5, 3)[0] == ids(1, 2, 3)
    assert line.take(5, 0)[0] == ids(4)   # but one by one


def test_what_has_waited_before_goes_first(line: CallBuffer) -> None:
    first = line.take(2, 100)
    added(line, 6)
    line.prepend(*first)
    assert line.take(10, 100)[0] == ids(1, 2, 3, 4, 5, 6)


def test_the_last_calls_are_given_back(line: CallBuffer) -> None:
    line.take(1, 100)
    assert line.take_last(2) == ids(4, 5)
    assert line.take_last(5) == ids(2, 3)
    assert not line


def test_calls_can_be_removed(line: CallBuffer) -> None:
    line.take(1, 100)
    assert line.remove({1, 3, 5, 7}) == ids(3, 5)
    assert line.clear() == ids(2, 4)
    assert not line.remove({2})


def test_it_is_the_same_as_a_list_of_calls() -> None:
    generator = random.Random(20261)
    line, model, made = CallBuffer(), list[int](), 0
    for _ in range(3000):
        deed, count = generator.randrange(6), generator.randrange(50)
        if deed < 2:
            numbers = range(made, made + 3 * count)
            made += len(numbers)
            added(line, *numbers)
            model += numbers
        elif deed == 2:
            taken, with_them = line.take(count, 1 << 20)
            assert list(taken) == model[:count]
            assert list(with_them) == payloads(taken)
            del model[:count]
            if count % 2:
                line.prepend(taken, with_them)
                model[:0] = taken
        elif deed == 3:
            begin = max(0, len(model) - count)
            assert list(line.take_last(count)) == model[begin:]
            del model[begin:]
        elif deed == 4:
            assert list(line.first(count)) == model[:count]
        elif count == 0:
            unwanted = set(model[::3])
            assert set(line.remove(unwanted)) == unwanted
            model = [number for number in model if number not in unwanted]
        assert len(line) == len(model)


def test_calls_in_a_table() -> None:
    table: dict[int, Held] = {}
    hold(table, ids(1, 2, 1 << 60), [b'a', b'b', b'c'])
    assert {id: held.of(id) for id, held in table.items()} == {1: b'a', 2: b'b', 1 << 60: b'c'}
    with pytest.raises(KeyError, match='3'):
        table[1].of(3)
    assert release(table, ids(1 << 60)) is None
    assert release(table, ids(3, 2, 2, 1)) == [False, True, False, True]
    assert release(table, ids()) is None
    assert not table


def test_there_is_a_payload_for_each_call() -> None:
    with pytest.raises(ValueError, match='1 payloads for 2 calls'):
        hold({}, ids(1, 2), [b'a'])


def test_ids_with_the_number_of_their_source() -> None:
    numbers = with_source(ids(0, 1, 255), 5, 8)
    assert numbers == ids(0x500, 0x501, 0x5ff)
    assert without_source(numbers, 8) == ids(0, 1, 255)
    assert source_of(numbers, 8) == 5
    assert source_of(ids(0x500, 0x601), 8) is None
    assert source_of(ids(), 8) is None


def test_payloads_in_one_piece() -> None:
    """They are a sequence; slices are views, also in messages."""
    each = [b'a', b'bcd', b'e' * 300, b'f']
    whole = Payloads(each)
    assert (len(whole), list(whole), whole[1], whole[-1]) == (4, each, b'bcd', b'f')
    assert list(whole[1:]) == each[1:]
    assert list(whole[1:][:-1]) == each[1:-1]
    assert (whole.size(), whole[1:3].size(), len(whole[3:1])) == (305, 303, 0)
    assert [whole.fitting(most, size) for most, size in ((4, 305), (4, 304), (2, 305), (4, 0))] == [4, 3, 2, 0]
    assert list(joined([whole[2:], [b'g'], Payloads(), whole[:1]])) == [*each[2:], b'g', b'a']
    for payloads in (whole, whole[1:3], Payloads(), whole[:0]):
        message = codec.unpack(pack_message(['calls', payloads, None]))
        assert (message[0], list(unpack(message[1])), message[2]) == ('calls', list(payloads), None)
    with pytest.raises(IndexError):
        whole[4]
    with pytest.raises(ValueError, match='without a step'):
        whole[::2]
    with pytest.raises(TypeError):
        Payloads(['text'])  # type: ignore[list-item]


@pytest.mark.parametrize(('parts', 'why'), [
    (None, 'two parts'), ([b''], 'two parts'), ([b'', 'x'], 'two parts'), ([b'\1\0\0\0\0\0\0\0', b'x'], 'is empty'),
    ([b'\2\0\0\0', b'x'], 'not those of the data'), ([b'\1\0\0\0', b'xy'], 'not those of the data'),
    ([b'\1\0\0\0\1', b'x'], 'not those of the data'), ([b'', b'x'], 'not those of the data')])
def test_payloads_that_are_malformed(parts: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        unpack(parts)


def test_a_few_payloads_do_not_keep_the_others() -> None:
    data = bytes(range(250)) * 4
    whole = unpack([array('I', [1] * len(data)).tobytes(), data])
    many, few, none = whole[:500], whole[10:20], whole[7:7]
    assert (list(few), list(none)) == ([bytes([number]) for number in range(10, 20)], [])
    assert (list(many[490:]), few.size(), list(few[1:3])) == (list(whole[490:500]), 10, [b'\x0b', b'\x0c'])
    held = sys.getrefcount(data)
    del whole, many
    assert sys.getrefcount(data) == held - 2
