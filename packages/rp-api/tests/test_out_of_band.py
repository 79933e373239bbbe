"""Pickles with large contents beside them: all that `pickle` takes is restored, and contents are not copied."""

from __future__ import annotations

import array
import pickle
from dataclasses import dataclass
from pickle import PickleBuffer
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.by_value.out_of_band import BUFFER_BYTES
from rp_api.errors import SerializationError
from rp_api.values import dump

LARGE = 64 << 10   # from which on `pickle` writes contents as they are
PARTS = st.recursive(
    st.sampled_from([1, 'abc', 2.5, None, b'x' * (LARGE - 1), b'y' * LARGE, b'B' * (LARGE + 66), bytearray(LARGE),
                     't' * LARGE, '\xe4\ud800' * LARGE, list(range(30_000)), ['B\x00\x00\x01\x00'] * 20_000,
                     np.zeros(LARGE), np.zeros(3), np.ones((300, 300))[:, ::2]]) | st.builds(lambda: 1 << 600_000),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=2), inner,
                                                                                        max_size=3), max_leaves=6)


class Table:
    """A class that gives its content as a buffer, as Arrow does."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Table, (PickleBuffer(self.content),)


@dataclass
class Record:
    """A class that a script defines."""

    name: str
    content: bytes


def same(one: Any, other: Any) -> bool:
    """Return whether two objects are equal, and of the same types at any depth."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other) and one.flags.writeable == other.flags.writeable
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def dumped(value: Any) -> tuple[bytes, list[PickleBuffer]]:
    buffers: list[PickleBuffer] = []
    return dump(value, buffers), buffers


@given(value=PARTS)
def test_all_values_are_restored(value: Any) -> None:
    """Also if the reader has copies of the contents, in other memory."""
    data, buffers = dumped(value)
    assert same(pickle.loads(data, buffers=buffers), value)
    copies = [bytes(view) if (view := buffer.raw()).readonly else bytearray(view) for buffer in buffers]
    assert same(pickle.loads(data, buffers=copies), value)
    if not buffers:
        assert data == pickle.dumps(value, 5)


def test_large_contents_are_not_copied() -> None:
    content, changing = bytes(1 << 20), bytearray(1 << 20)
    value = [content, {'a': (content, changing)}, 'x' * 100]
    data, buffers = dumped(value)
    assert len(data) < 300
    assert buffers[0].raw().obj is content
    assert buffers[1].raw().obj is changing
    first, more, _ = pickle.loads(data, buffers=[content, changing])
    assert first is more['a'][0] is content
    assert more['a'][1] is not changing


@pytest.mark.parametrize('value', [
    array.array('d', range(20_000)),
    pd.DataFrame({'a': np.arange(50_000), 'b': np.arange(50_000) / 2, 'c': ['text'] * 50_000}),
    pd.Series(np.arange(50_000)),
], ids=lambda value: type(value).__name__)
def test_contents_of_other_types(value: Any) -> None:
    data, buffers = dumped([value])
    assert buffers
    assert sum(buffer.raw().nbytes for buffer in buffers) > 10 * len(data) or isinstance(value, pd.DataFrame)
    (found,) = pickle.loads(data, buffers=buffers)
    assert type(found) is type(value)
    assert found.equals(value) if hasattr(value, 'equals') else found == value


@pytest.mark.parametrize('content', [bytes(BUFFER_BYTES), bytearray(BUFFER_BYTES), np.ones(BUFFER_BYTES)])
def test_classes_that_give_their_buffers(content: Any) -> None:
    data, (buffer,) = dumped({'table': Table(content)})
    assert len(data) < 200
    assert bytes(pickle.loads(data, buffers=[buffer])['table'].content) == bytes(content)


@pytest.mark.parametrize('view', [
    memoryview(bytes(100_000)), memoryview(bytearray(100_000)), memoryview(b'abc'), memoryview(b''),
    np.arange(60_000).reshape(200, 300).data, np.arange(60_000, dtype='>i8').data,
    np.arange(60_000).data[::2], np.ones((0, 3)).data,
])
def test_views_are_views_of_the_same_content(view: memoryview) -> None:
    data, buffers = dumped([view, 1])
    assert len(data) < 500
    found, _ = pickle.loads(data, buffers=buffers)
    assert type(found) is memoryview
    assert found.tobytes() == view.tobytes()
    if view.nbytes and not (view.format or '').startswith('>'):
        assert (found.format, found.shape, found.tolist()) == (view.format, view.shape, view.tolist())


def test_objects_of_the_main_script_keep_their_contents_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Record, '__module__', '__main__')
    monkeypatch.setitem(__import__('sys').modules['__main__'].__dict__, 'Record', Record)
    content = bytes(1 << 20)
    data, (buffer,) = dumped(Record('a', content))
    assert buffer.raw().obj is content
    assert pickle.loads(data, buffers=[content]).content is content


def test_contents_that_name_the_main_script_are_not_looked_at() -> None:
    content = b'__main__' * LARGE
    data, (buffer,) = dumped([content, 1])
    assert b'cloudpickle' not in data
    assert pickle.loads(data, buffers=[buffer]) == [content, 1]


def test_what_fails_leaves_nothing_behind() -> None:
    """Nor does what is pickled while something is pickled."""

    class Nested:
        def __reduce__(self) -> Any:
            return list, (dumped([2, bytes(LARGE)])[0] and (),)

    with pytest.raises(SerializationError):
        dumped([bytes(LARGE), (each for each in [1])])
    assert dumped([1]) == (pickle.dumps([1], 5), [])
    data, buffers = dumped([1, Nested(), bytes(LARGE)])
    assert pickle.loads(data, buffers=buffers) == [1, [], bytes(LARGE)]
    assert dumped([1]) == (pickle.dumps([1], 5), [])
