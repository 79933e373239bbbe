"""Tables of tasks: their rows, and the parameters of sweeps, by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from rp_api.batch import Chunk
from rp_api.coordination.records import Records
from rp_api.reasons.view import View
from rp_client.inspect.cached import CachedView
from rp_client.inspect.rows import COLUMNS, FLAG, INTEGER, NUMBER, TEXT, row_of

PAGE_ROWS = 16384
"""Rows of a page."""

Columns = dict[str, list[Any]]

_INTEGERS = range(-1 << 63, 1 << 63)
_CASTS: Mapping[str, Callable[[Any], Any]] = {TEXT: str, INTEGER: int, NUMBER: float, FLAG: bool}


class Table(NamedTuple):
    """A table: the kinds of its columns, and its pages of values, at least one; None stands for what is not known."""

    kinds: Mapping[str, str]
    pages: Iterator[Columns]


def table(tasks: Iterable[Mapping[str, Any]], view: View, parameters: Mapping[str, str]) -> Table:
    """Return the table of tasks.

    Args:
        tasks: The tasks, as the view has them, those of sweeps with their `parameters`; they are read as pages are
            asked for.
        view: The session.
        parameters: The kinds of the parameters, see `parameter_kinds`. Those with the name of another column get an
            underscore at its end.
    """
    kinds: dict[str, str] = {}
    for name, kind in parameters.items():
        while name in kinds or name in COLUMNS:
            name += '_'
        kinds[name] = kind
    kinds.update(COLUMNS)
    return Table(kinds, _pages(tasks, CachedView(view), parameters, list(kinds)))


def stored_table(records: Records) -> Table:
    """Return the table of all tasks of a session."""
    tasks = ({**task, 'parameters': records.parameters_of(task['uid'])} for _, task in records.tasks())
    return table(tasks, records, parameter_kinds(records.chunks()))


def parameter_kinds(chunks: Iterable[Chunk]) -> dict[str, str]:
    """Return the kinds of the parameters in chunks of sweeps, by name; those of mixed types are text."""
    found: dict[str, set[type]] = {}
    for chunk in chunks:
        for name, column in zip(chunk.names, chunk.columns, strict=False):
            large = any(type(value) is int and value not in _INTEGERS for value in column)
            found.setdefault(name, set()).update({str} if large else map(type, column))
    kinds: list[tuple[set[type], str]] = [({int}, INTEGER), ({int, float}, NUMBER), ({bool}, FLAG)]
    return {name: next((kind for allowed, kind in kinds if types <= allowed), TEXT) for name, types in found.items()}


def _pages(tasks: Iterable[Mapping[str, Any]], view: View, parameters: Mapping[str, str], heads: list[str]) -> Iterator[
        Columns]:
    casts = [(name, _CASTS[kind]) for name, kind in parameters.items()]
    rows = ((*_parameters(task.get('parameters') or {}, casts), *row_of(task, view).values()) for task in tasks)
    page = list(islice(rows, PAGE_ROWS))   # of plain values: the tasks are not kept
    yield {head: [row[number] for row in page] for number, head in enumerate(heads)}
    while page := list(islice(rows, PAGE_ROWS)):
        yield {head: [row[number] for row in page] for number, head in enumerate(heads)}


def _parameters(given: Mapping[str, Any], casts: Iterable[tuple[str, Callable[[Any], Any]]]) -> Iterator[Any]:
    return (None if (value := given.get(name)) is None else cast(value) for name, cast in casts)
