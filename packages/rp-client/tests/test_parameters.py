"""The parameters of sweeps, in all forms in which they come, are columns of plain values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rp_api.coordination.contract import BULK
from rp_api.errors import DescriptionError
from rp_client.flow.parameters import Parameters


class Array:
    """What arrays have that are no lists."""

    def __init__(self, *values: Any) -> None:
        self._values = values

    def tolist(self) -> list[Any]:
        return list(self._values)

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError('its values are no plain ones')


class Scalar:
    """A scalar of an array."""

    def item(self) -> float:
        return 0.5


def columns(parameters: Any) -> tuple[Any, list[list[Any]]]:
    found = Parameters(parameters)
    (count, read), = found.chunks()
    assert all(len(column) == count for column in read)
    return found.names, read


@pytest.mark.parametrize(('parameters', 'names', 'expected'), [
    ([{'a': 1, 'b': 'x'}, {'b': 'y', 'a': 2}], ['a', 'b'], [[1, 2], ['x', 'y']]),
    ({'a': [1, 2], 'b': Array(3.5, 4.5)}, ['a', 'b'], [[1, 2], [3.5, 4.5]]),
    (itertools.product('xy', [True]), 2, [['x', 'y'], [True, True]]),
    ([[1, 2], (3, 4)], 2, [[1, 3], [2, 4]]),
    (range(3), 1, [[0, 1, 2]]),
    ({'x'}, 1, [['x']]),
    ([Path('/a/b'), Scalar(), 1], 1, [['/a/b', 0.5, 1]]),
    ([(), ()], 0, []),
])
def test_forms(parameters: Any, names: Any, expected: Any) -> None:
    assert columns(parameters) == (names, expected)


@pytest.mark.parametrize('count', [1, BULK - 1, BULK, BULK + 1, 3 * BULK])
def test_chunks(count: int) -> None:
    for parameters in (iter(range(count)), {'a': range(count)}, [{'a': number} for number in range(count)]):
        chunks = list(Parameters(parameters).chunks())
        assert all(size == BULK for size, _ in chunks[:-1])
        assert [value for _, (column,) in chunks for value in column] == list(range(count))


def test_rows_are_read_once_and_when_they_are_needed() -> None:
    taken: list[int] = []
    rows = (taken.append(number) or number for number in range(3 * BULK))   # type: ignore[func-returns-value]
    chunks = Parameters(rows).chunks()
    next(chunks)
    assert len(taken) == BULK


@pytest.mark.parametrize('parameters', [
    3, 'text', b'text', [], {}, {'a': []}, {'a': 'text'}, {'a': 3}, {'a': [1], 'b': [1, 2]}, [{'not a name': 1}],
    [{1: 2}], [(1,), 2], [{'a': 1}, 2], [{'a': 1}, {'a': 1, 'b': 2}], [1, None], [1, [2]], [b'bytes'], [{'i': 1}]])
def test_others_are_refused(parameters: Any) -> None:
    with pytest.raises(DescriptionError, match='parameters'):
        list(Parameters(parameters).chunks())
