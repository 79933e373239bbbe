"""Pickles of scalars that are written and read without `pickle`: the same values, types and errors as with it."""

from __future__ import annotations

import math
import pickle
from array import array
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.errors import DeserializationError
from rp_raptor.client.streamed import UnderWay
from rp_raptor.rank.running import Functions, arguments
from rp_raptor.wire.batch import Payloads
from rp_raptor.wire.payload import call_encoder, call_start, decode_result, define

LIMITS = [0, 1, 255, 256, 65535, 65536, (1 << 31) - 1, 1 << 31, -1, -(1 << 31), -(1 << 31) - 1, 1 << 62, 1 << 64, True,
          False, None, 0.0, -0.0, 1.5, math.inf, -math.inf, '', 'a' * 255, 'a' * 256, 'a' * 16384, 'a' * 16385, 'äö',
          '\udc80', '__main__', b'', b'x' * 255, b'x' * 256, b'x' * 16384, b'x' * 16385]


class Colour(IntEnum):
    RED = 1


def identity(item: Any) -> Any:
    return item


FID, BLOB = define(identity)


@pytest.fixture(scope='module')
def functions(tmp_path_factory: pytest.TempPathFactory) -> Functions:
    made = Functions(str(tmp_path_factory.mktemp('values')), lambda call, files: call)
    made.define(FID, BLOB)
    return made


def travelled(functions: Functions, items: list[Any]) -> list[Any]:
    """The items as arguments of a stream, and as its results."""
    calls = UnderWay(enumerate(items), call_encoder(FID), list, call_start(FID))
    numbers, payloads, failed = calls.take(len(items), 1 << 30, 1 << 30, 60.0)
    assert (list(numbers), failed) == (list(range(len(items))), [])
    for payload, item in zip(payloads, items, strict=True):   # `pickle` reads what was written
        assert repr(arguments(payload)) == repr(((item,), None))
    results = [functions.run(payload) for payload in payloads]
    for result, item in zip(results, items, strict=True):
        assert isinstance(result, bytes)
        assert repr(decode_result(result)) == repr(item)
    done = list(calls.finished(numbers, Payloads(results)))   # type: ignore[arg-type]
    assert [call.exception for call in done] == [None] * len(items)
    return [call.result() for call in done]


def test_values_at_the_limits(functions: Functions) -> None:
    items = [*LIMITS, Colour.RED, [1], {'a': 2}, (3,)]
    found = travelled(functions, items)
    assert [type(value) for value in found] == [type(item) for item in items]
    assert [repr(value) for value in found] == [repr(item) for item in items]


@given(st.lists(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(), max_size=20))
def test_any_values(functions: Functions, items: list[Any]) -> None:
    assert repr(travelled(functions, items)) == repr(items)


def test_what_pickle_writes_is_read_as_well(functions: Functions) -> None:
    for item in LIMITS:
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            result = functions.run(call_start(FID) + pickle.dumps(((item,), None), protocol))
            calls = UnderWay(iter([(0, item)]), call_encoder(FID), list, call_start(FID))
            calls.take(1, 1 << 20, 1 << 30, 60.0)
            (call,) = calls.finished(array('Q', [0]), Payloads([b'R' + pickle.dumps(item, protocol)]))
            assert repr(call.result()) == repr(decode_result(result)) == repr(item)   # type: ignore[arg-type]


@pytest.mark.parametrize('body', [b'\x80\x05X\xff\xff\xff\xffa.', b'\x80\x05\x8c\x05ab.', b'\x80\x05G\0.',
                                  b'\x80\x05\x8c\x01\xff.', b'\x80\x05', b'\x80\x05.', b''])
def test_broken_scalars_are_errors_of_their_call(functions: Functions, body: bytes) -> None:
    """Nothing is read beyond the end."""
    calls = UnderWay(iter([(0, 1)]), call_encoder(FID), list, call_start(FID))
    calls.take(1, 1 << 20, 1 << 30, 60.0)
    (call,) = calls.finished(array('Q', [0]), Payloads([b'R' + body]))
    assert isinstance(call.exception, DeserializationError)
    with pytest.raises((DeserializationError, UnicodeDecodeError)):
        functions.run(call_start(FID) + body.removesuffix(b'.') + b'\x85N\x86.')
    with pytest.raises(DeserializationError):
        functions.run(call_start(FID)[:-1])
