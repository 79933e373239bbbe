"""Values and bulks survive the wire, and nothing broken gets in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.errors import CoordinationError
from rp_api.wire import codec

scalars = (st.none() | st.booleans() | st.integers(-2**63, 2**64 - 1) | st.floats(allow_nan=False)
           | st.text(st.characters(codec='utf-8')) | st.binary())
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4)
                      | st.dictionaries(st.text('abc', max_size=2) | st.integers(-9, 9), inner, max_size=4),
                      max_leaves=8)
# few keys and few values, so that items do share some
alike = st.sampled_from([0, 1, True, 1.0, 0.0, -0.0, [1]])
items = st.lists(st.dictionaries(st.sampled_from('uvwxyz'), values | alike), max_size=6)


@contextmanager
def suppress_malformed() -> Iterator[None]:
    """Let pass the one error that broken messages may cause, if its text says so."""
    try:
        yield
    except CoordinationError as error:
        if not str(error).startswith('malformed message: '):
            raise


def exactly(value: Any) -> Any:
    """A form in which 1, 1.0, True, 0.0 and -0.0 all differ, and the order of keys does not count."""
    if isinstance(value, dict):
        return 'dict', {(type(key).__name__, key): exactly(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return 'list', [exactly(entry) for entry in value]
    return type(value).__name__, repr(value)


@given(values)
def test_values_survive_the_round_trip(value: Any) -> None:
    assert exactly(codec.unpack(codec.pack(value))) == exactly(value)


@given(items)
def test_bulks_survive_the_round_trip(bulk: list[dict[str, Any]]) -> None:
    assert exactly(codec.unpack_bulk(*codec.pack_bulk(bulk))) == exactly(bulk)


@given(st.binary(max_size=64))
def test_any_bytes_give_a_value_or_the_error(data: bytes) -> None:
    with suppress_malformed():
        codec.unpack(data)


@given(st.binary(max_size=32), st.lists(st.binary(max_size=32), max_size=3))
def test_any_bytes_give_a_bulk_or_the_error(shared: bytes, bodies: list[bytes]) -> None:
    with suppress_malformed():
        assert len(codec.unpack_bulk(shared, bodies)) == len(bodies)


def test_the_shared_part_travels_once() -> None:
    bulk = [{'uid': f'task.{number}', 'executable': 'x' * 1000, 'arguments': ['-a']} for number in range(10)]
    shared, bodies = codec.pack_bulk(bulk)
    assert codec.unpack(shared) == {'executable': 'x' * 1000, 'arguments': ['-a']}
    assert [codec.unpack(body) for body in bodies] == [{'uid': item['uid']} for item in bulk]


def test_one_item_alone_shares_nothing() -> None:
    shared, bodies = codec.pack_bulk([{'uid': 'task.000000'}])
    assert codec.unpack(shared) == {}
    assert codec.unpack(bodies[0]) == {'uid': 'task.000000'}


def test_values_that_are_equal_but_not_the_same_are_not_shared() -> None:
    bulk: list[dict[str, Any]] = [{'a': 1, 'b': [1], 'c': 0.0}, {'a': True, 'b': [True], 'c': -0.0}]
    unpacked = codec.unpack_bulk(*codec.pack_bulk(bulk))
    assert [type(item['a']) for item in unpacked] == [int, bool]
    assert [type(item['b'][0]) for item in unpacked] == [int, bool]
    assert [math.copysign(1, item['c']) for item in unpacked] == [1, -1]


def test_a_key_that_one_item_lacks_is_not_shared() -> None:
    bulk: list[dict[str, Any]] = [{'a': None, 'b': [1]}, {}]
    assert codec.unpack_bulk(*codec.pack_bulk(bulk)) == bulk


def test_items_own_their_values() -> None:
    first, second = codec.unpack_bulk(*codec.pack_bulk([{'uid': uid, 'tags': {'x': [1]}} for uid in 'ab']))
    first['tags']['x'].append(2)
    assert second['tags'] == {'x': [1]}


def test_paths_and_objects_with_as_dict_become_plain() -> None:
    class Described:
        def as_dict(self) -> dict[str, Any]:
            return {'path': Path('/tmp/x')}

    assert codec.unpack(codec.pack((Described(), Path('y')))) == [{'path': '/tmp/x'}, 'y']


def test_dict_subclasses_and_odd_keys_are_maps() -> None:
    class Special(dict[Any, Any]):
        pass

    value = {1: 'a', 2.5: 'b', None: 'c', b'd': 'd', False: 'e'}
    assert codec.unpack(codec.pack(Special(value))) == value


def test_file_names_that_are_not_utf8_survive() -> None:
    name = b'caf\xe9'.decode('utf-8', 'surrogateescape')
    assert codec.unpack(codec.pack(name)) == name
    among_others = {'\u00e9': 'before', 'name': name, 'after': 1}
    assert codec.unpack(codec.pack(among_others)) == among_others
    assert codec.unpack(codec.pack('\u00e9')) == '\u00e9'   # of what could not be packed at first, nothing is left over


@pytest.mark.parametrize('value', [object(), {1, 2}, 1j, [lambda: 0]])
def test_what_is_not_plain_data_is_refused_by_type(value: Any) -> None:
    with pytest.raises(TypeError, match=r'a value of type (object|set|complex|function) cannot be sent'):
        codec.pack(value)
    with pytest.raises(TypeError, match='cannot be sent'):
        codec.pack_bulk([{'a': value}, {'a': value, 'b': 1}])


def test_items_that_are_no_mappings_are_refused() -> None:
    with pytest.raises(TypeError, match='items of a bulk are mappings, not int'):
        codec.pack_bulk([{'a': 1}, 1])  # type: ignore[list-item]


def test_large_integers_are_refused() -> None:
    with pytest.raises(ValueError, match='64 bits'):
        codec.pack({'a': 2**64})


def test_endless_values_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match='recursion'):
        codec.pack(endless)


def test_messages_over_the_size_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = codec.pack(b'x' * 100)
    monkeypatch.setattr(codec, 'MAX_BYTES', 64)
    with pytest.raises(ValueError, match='at most 64 are allowed'):
        codec.pack(b'x' * 100)
    with pytest.raises(CoordinationError, match='malformed message: 102 bytes'):
        codec.unpack(data)


def test_containers_over_the_entry_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, 'MAX_ENTRIES', 3)
    assert codec.unpack(codec.pack([1, 2, 3])) == [1, 2, 3]
    for value in ([1, 2, 3, 4], {1: 1, 2: 2, 3: 3, 4: 4}):
        with pytest.raises(CoordinationError, match='malformed message'):
            codec.unpack(codec.pack(value))


@pytest.mark.parametrize('data', [
    b'',
    codec.pack('complete')[:-1],
    codec.pack(1) + b'\0',
    b'\xdd\xff\xff\xff\xff',
    b'\x81\x80\x01',
    b'\x81\x91\x80\x01',
    b'\x91' * 5000 + b'\x01',
    msgpack.packb(msgpack.ExtType(5, b'code')),
    msgpack.packb(msgpack.Timestamp(1, 2)),
], ids=['empty', 'cut', 'trailing', 'huge-list', 'dict-as-key', 'dict-in-key', 'deep', 'extension', 'timestamp'])
def test_broken_messages_are_refused(data: bytes) -> None:
    with pytest.raises(CoordinationError, match=r'malformed message: .'):
        codec.unpack(data)


@pytest.mark.parametrize('value', [{(1, 2): 3}, [{((), ('a', (1.5, None))): {(1,): [{(2,): 0}]}, 'x': [4]}]])
def test_tuples_as_keys_stay_tuples(value: Any) -> None:
    assert codec.unpack(codec.pack(value)) == value


@pytest.mark.parametrize(('shared', 'body'), [([], {}), ({}, 'x'), ({'a': [1]}, 5)])
def test_bulks_of_something_else_are_refused(shared: Any, body: Any) -> None:
    with pytest.raises(CoordinationError, match='an item is a mapping'):
        codec.unpack_bulk(codec.pack(shared), [codec.pack(body)])


@pytest.mark.parametrize('depth', [100, 600, 1024, 5000])
def test_a_bulk_that_is_nested_deeply_is_unpacked_or_refused(depth: int) -> None:
    """How deep is too deep for packing, which has a part in this, depends on the release of msgpack."""
    shared = b'\x81\xa1a' + b'\x91' * depth + b'\x00'
    try:
        items = codec.unpack_bulk(shared, [b'\x80', b'\x80'])
    except CoordinationError:
        assert depth > 500
    else:
        assert depth < 5000
        assert items[0] == items[1]


@given(st.dictionaries(st.text(max_size=40), values, max_size=3))
def test_keys_of_a_packed_dict(item: dict[str, Any]) -> None:
    assert set(codec.keys_of(codec.pack(item))) == set(item)


@pytest.mark.parametrize('data', [b'', b'\x81', b'\x93\1\2\3', b'\xa1a', b'\x81\xd9'])
def test_what_has_no_keys_is_refused(data: bytes) -> None:
    with pytest.raises(CoordinationError):
        codec.keys_of(data)
