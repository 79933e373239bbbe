"""Tasks as tables: the columns, and their values from records of tasks.

A record is plain data as `rp_api.coordination.sessions.tasks` yields it, with `sandbox` and, for tasks of sweeps,
`parameters` where these are known. All times are in seconds since 1970, durations in seconds, sizes in bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from rp_api import states
from rp_api.batch import Chunk
from rp_api.by_value.function_name import function_name
from rp_api.failures.task_error import task_error
from rp_api.task_info.usage import TaskTimes
from rp_api.units import MB

TEXT, INTEGER, NUMBER, TIME, FLAG = 'text', 'integer', 'number', 'time', 'flag'
"""The kinds of columns."""

COLUMNS: Mapping[str, str] = {
    'uid': TEXT, 'name': TEXT, 'program': TEXT, 'state': TEXT, 'cause': TEXT, 'reason': TEXT, 'exit_code': INTEGER,
    'cached': FLAG, 'submitted': TIME, 'placed': TIME, 'started': TIME, 'ended': TIME, 'duration': NUMBER,
    'waiting': NUMBER, 'cpu': NUMBER, 'memory': INTEGER, 'read': INTEGER, 'written': INTEGER, 'switches': INTEGER,
    'gpu': NUMBER, 'gpu_memory': INTEGER, 'ranks': INTEGER, 'cores': INTEGER, 'gpus': NUMBER,
    'requested_memory': INTEGER, 'timeout': NUMBER, 'nodes': TEXT, 'pilot': TEXT, 'attempts': INTEGER,
    'sandbox': TEXT}
"""The columns of each table and their kinds; those of parameters come before them."""

PAGE_ROWS = 16384
"""Rows of a page."""

Columns = dict[str, list[Any]]

_INTEGERS = range(-1 << 63, 1 << 63)
_CASTS: Mapping[str, Callable[[Any], Any]] = {TEXT: str, INTEGER: int, NUMBER: float, FLAG: bool}


class Table(NamedTuple):
    """A table: the kinds of its columns, and its pages of values, at least one; None stands for what is not known."""

    kinds: Mapping[str, str]
    pages: Iterator[Columns]


def table(records: Iterable[Mapping[str, Any]], parameters: Mapping[str, str]) -> Table:
    """Return the table of tasks.

    Args:
        records: The records of the tasks; they are read as pages are asked for.
        parameters: The kinds of the parameters, see `parameter_kinds`. Those with the name of another column get an
            underscore at its end.
    """
    kinds: dict[str, str] = {}
    for name, kind in parameters.items():
        while name in kinds or name in COLUMNS:
            name += '_'
        kinds[name] = kind
    kinds.update(COLUMNS)
    return Table(kinds, _pages(records, parameters, list(kinds)))


def row(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a task by column, without its parameters."""
    return dict(zip(COLUMNS, _values(record), strict=True))


def parameter_kinds(chunks: Iterable[Chunk]) -> dict[str, str]:
    """Return the kinds of the parameters in chunks of sweeps, by name; those of mixed types are text."""
    found: dict[str, set[type]] = {}
    for chunk in chunks:
        for name, column in zip(chunk.names, chunk.columns, strict=False):
            large = any(type(value) is int and value not in _INTEGERS for value in column)
            found.setdefault(name, set()).update({str} if large else map(type, column))
    kinds: list[tuple[set[type], str]] = [({int}, INTEGER), ({int, float}, NUMBER), ({bool}, FLAG)]
    return {name: next((kind for allowed, kind in kinds if types <= allowed), TEXT) for name, types in found.items()}


def _pages(records: Iterable[Mapping[str, Any]], parameters: Mapping[str, str], heads: list[str]) -> Iterator[Columns]:
    casts = [(name, _CASTS[kind]) for name, kind in parameters.items()]
    rows = ((*_parameters(record.get('parameters') or {}, casts), *_values(record)) for record in records)
    page = list(islice(rows, PAGE_ROWS))   # of plain values: the records are not kept
    yield {head: [row[number] for row in page] for number, head in enumerate(heads)}
    while page := list(islice(rows, PAGE_ROWS)):
        yield {head: [row[number] for row in page] for number, head in enumerate(heads)}


def _parameters(given: Mapping[str, Any], casts: Iterable[tuple[str, Callable[[Any], Any]]]) -> Iterator[Any]:
    return (None if (value := given.get(name)) is None else cast(value) for name, cast in casts)


def _values(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of a row, in the order of `COLUMNS`."""
    description = record['description']
    times = TaskTimes(record.get('submitted'), *record.get('times') or ())
    usage = record.get('usage') or {}
    ranks = description.get('ranks') or 1
    cores, gpus = (ranks * description.get(name, each) for name, each in (('cores_per_rank', 1), ('gpus_per_rank', 0)))
    memory = ranks * description.get('mem_per_rank', 0) * MB
    return (record['uid'], description.get('name') or None, _program(description), record['state'], *_cause(record),
            record.get('exit_code'), bool(record.get('cached')), *times, times.duration, times.waiting,
            usage.get('cpu'), usage.get('memory'), usage.get('read'), usage.get('written'), usage.get('switches'),
            usage.get('gpu'), usage.get('gpu_memory'), ranks, cores, float(gpus), memory or None,
            description.get('timeout') or None, _nodes(record), record.get('pilot') or None, _attempts(record),
            record.get('sandbox'))


def _program(description: Mapping[str, Any]) -> str | None:
    """Return the name of the program or function; that of the mode for other code."""
    if executable := description.get('executable'):
        return os.path.basename(str(executable)) or str(executable)
    return function_name(description.get('function')) or description.get('mode')


def _cause(record: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the kind of a failure, and the sentence about it."""
    if record['state'] not in (states.FAILED, states.CANCELED):
        return None, None
    error = task_error(record['uid'], record['state'], record, {})
    return (error.kind, error.sentence) if error else (None, None)


def _nodes(record: Mapping[str, Any]) -> str | None:
    names = dict.fromkeys(slot['node_name'] for slot in record.get('slots') or () if slot.get('node_name'))
    return ','.join(names) or None


def _attempts(record: Mapping[str, Any]) -> int:
    """Return the number of attempts, as `Task.attempts`."""
    return len(record.get('history') or ()) + bool(record.get('attempts') and record.get('pilot'))
