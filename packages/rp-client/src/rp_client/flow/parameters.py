"""The parameters of a sweep as columns of plain values, in chunks of rows.

Parameters are rows (dicts, tuples or single values, in a list or from an iterator) or a dict of columns. All rows have
the keys, or the length, of the first one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

from rp_api.coordination.contract import BULK
from rp_api.description.template import INDEX
from rp_api.errors import DescriptionError

_PLAIN = frozenset({str, int, float, bool})

Columns = list[list[Any]]


class Parameters:
    """The parameters of a sweep: `names` of its columns, or their number, and the `chunks` of the columns.

    Raises:
        DescriptionError: There are no rows, or the first one is of another type.
    """

    def __init__(self, parameters: Any) -> None:
        self.names: list[str] | int
        self._read: Callable[[Sequence[Any], int], Columns]
        self._bulks: Iterator[Sequence[Any]]
        if isinstance(parameters, Mapping):
            self._begin_columns(parameters)
            return
        if isinstance(parameters, str | bytes) or not isinstance(parameters, Iterable):
            raise DescriptionError(f'parameters are {parameters!r:.100}: allowed are rows (dicts, tuples or single '
                                   'values, in a list or from an iterator) and a dict of columns')
        rows = iter(parameters)
        first = list(islice(rows, 1))
        if not first:
            raise DescriptionError('parameters have no rows')
        self._begin_rows(first[0])
        self._bulks = _in_bulks(first, rows)

    @property
    def labels(self) -> list[str]:
        """The names of the columns, or their numbers from 1 if they have none."""
        return self.names if isinstance(self.names, list) else [str(number) for number in range(1, self.names + 1)]

    def chunks(self) -> Iterator[tuple[int, Columns]]:
        """Yield `BULK` rows at a time: their number and columns.

        Raises:
            DescriptionError: A row is not like the first one, or a value is no text, number or path.
        """
        done = 0
        for bulk in self._bulks:
            columns = self._read(bulk, done)
            for index, column in enumerate(columns):
                if not _PLAIN.issuperset(set(map(type, column))):
                    columns[index] = [_plain(value, self._label(index), done + row) for row, value in enumerate(column)]
            yield len(bulk), columns
            done += len(bulk)

    def _label(self, index: int) -> str:
        return repr(self.names[index]) if isinstance(self.names, list) else str(index + 1)

    def _begin_rows(self, first: Any) -> None:
        if isinstance(first, Mapping):
            self.names = _checked_names(first)
            self._read = _named(self.names)
        elif isinstance(first, tuple | list):
            self.names = len(first)
            self._read = _positional(len(first))
        else:
            self.names = 1
            self._read = lambda rows, _: [list(rows)]

    def _begin_columns(self, parameters: Mapping[str, Any]) -> None:
        self.names = _checked_names(parameters)
        columns = [_listed(name, parameters[name]) for name in self.names]
        sizes = {name: len(column) for name, column in zip(self.names, columns, strict=True)}
        if len(set(sizes.values())) > 1:
            raise DescriptionError(f'columns of parameters have different lengths: {sizes}')
        if not columns or not columns[0]:
            raise DescriptionError('parameters have no rows')
        self._bulks = (range(first, min(first + BULK, len(columns[0]))) for first in range(0, len(columns[0]), BULK))
        self._read = lambda rows, _: [column[rows[0]:rows[-1] + 1] for column in columns]


def _in_bulks(first: list[Any], rows: Iterator[Any]) -> Iterator[list[Any]]:
    bulk = [*first, *islice(rows, BULK - 1)]
    while bulk:
        yield bulk
        bulk = list(islice(rows, BULK))


def _named(names: Sequence[str]) -> Callable[[Sequence[Any], int], Columns]:
    """Return the function that reads the columns of rows that are dicts with these keys."""
    width = len(names)
    getters = [itemgetter(name) for name in names]

    def read(rows: Sequence[Any], done: int) -> Columns:
        try:
            if {*map(len, rows)} == {width}:
                return [list(map(getter, rows)) for getter in getters]
        except (KeyError, TypeError, IndexError):
            pass
        number, row = next((number, row) for number, row in enumerate(rows, done)
                           if not isinstance(row, Mapping) or set(row) != set(names))
        raise DescriptionError(f'row {number} of the parameters is {row!r:.100}: the keys of all rows are those of the '
                               f'first one, {", ".join(names)}')
    return read


def _positional(width: int) -> Callable[[Sequence[Any], int], Columns]:
    def read(rows: Sequence[Any], done: int) -> Columns:
        for number, row in enumerate(rows, done):
            if not isinstance(row, tuple | list) or len(row) != width:
                raise DescriptionError(f'row {number} of the parameters is {row!r:.100}: all rows have as many values '
                                       f'as the first one, {width}')
        return [list(column) for column in zip(*rows, strict=True)]
    return read


def _checked_names(row: Mapping[Any, Any]) -> list[str]:
    for name in row:
        if not isinstance(name, str) or not name.isidentifier() or name == INDEX:
            raise DescriptionError(f'a column of the parameters is called {name!r}: allowed are names like those of '
                                   f'variables, except {INDEX!r}, which is the number of the row')
    return list(row)


def _listed(name: str, column: Any) -> list[Any]:
    if isinstance(column, str | bytes | Mapping) or not isinstance(column, Iterable):
        raise DescriptionError(f'column {name!r} of the parameters is {column!r:.100}: it must be a list of values')
    tolist = getattr(column, 'tolist', None)   # of arrays
    return list(tolist() if callable(tolist) else column)


def _plain(value: Any, column: str, row: int) -> Any:
    """Return a value as plain data; raise DescriptionError if it has none."""
    if type(value) in _PLAIN:
        return value
    item = getattr(value, 'item', None)   # of scalars of NumPy
    found = os.fspath(value) if isinstance(value, os.PathLike) else item() if callable(item) else value
    for kind in (bool, str, int, float):
        if isinstance(found, kind):
            return kind(found)
    raise DescriptionError(f'column {column} of the parameters is {value!r:.100} in row {row}: allowed are texts, '
                           'numbers and paths')
