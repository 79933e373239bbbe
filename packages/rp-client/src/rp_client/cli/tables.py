"""Tables, times and sizes in the output of commands."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

MIN_COLUMN = 8
"""Characters that a column keeps at least when it is shortened."""


def print_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]], shorten: Collection[str] = ()) -> None:
    """Print rows below a head, in columns.

    Args:
        head: The names of the columns.
        rows: The cells of each row.
        shorten: Columns that may be cut, the longest first, for a terminal that is too narrow.
    """
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    if sys.stdout is not None and sys.stdout.isatty():
        room = os.get_terminal_size().columns
        if sum(widths) + 2 * (len(widths) - 1) > room:   # columns without any value go first
            used = [column for column in range(len(head)) if not column or {line[column] for line in lines[1:]} - {'-'}]
            lines = [tuple(line[column] for column in used) for line in lines]
            widths = [widths[column] for column in used]
        _fit(widths, [column for column, name in enumerate(lines[0]) if name in shorten], room)
    for line in lines:
        print('  '.join(cut(text, width).ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _fit(widths: list[int], columns: list[int], room: int) -> None:
    """Reduce the widths of some columns until all of them fit."""
    while columns and sum(widths) + 2 * (len(widths) - 1) > room:
        widest = max(columns, key=lambda column: widths[column])
        if widths[widest] <= MIN_COLUMN:
            return
        widths[widest] -= 1


def cut(text: str, width: int) -> str:
    """Return a text with at most so many characters."""
    return text if len(text) <= width else f'{text[:width - 1]}…'


def shown(value: object) -> str:
    """Return a value for a table; `-` if it is not known."""
    return '-' if value is None or value == '' else ' '.join(str(value).split())


def shown_time(seconds: float) -> str:
    """Return a time, in seconds since 1970, as local date and time."""
    return time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))


def shown_clock(seconds: float | None) -> str:
    """Return a time, in seconds since 1970, as local time of the day, or with the date if it was on another day."""
    if seconds is None:
        return '-'
    local = time.localtime(seconds)
    return time.strftime('%H:%M:%S' if local[:3] == time.localtime()[:3] else '%m-%d %H:%M', local)


def shown_span(seconds: float | None) -> str:
    """Return a number of seconds in three figures or so, with a unit; `-` if it is unknown."""
    if seconds is None:
        return '-'
    if 0 < seconds < 1:
        return f'{seconds * 1e3:.3g} ms' if seconds >= 1e-3 else f'{seconds * 1e6:.3g} µs'
    if seconds < 60:
        return f'{seconds:.2g} s' if seconds < 10 else f'{seconds:.0f} s'
    if seconds < 3600:
        return f'{seconds / 60:.1f} min'
    if seconds < 86400:
        return f'{seconds / 3600:.1f} h'
    return f'{seconds / 86400:.1f} d'


def shown_size(size: float | None) -> str:
    """Return a number of bytes with a unit; `-` if it is unknown."""
    if size is None:
        return '-'
    for unit in ('B', 'KB', 'MB'):
        if size < 1000:
            return f'{size:.0f} {unit}'
        size /= 1000
    return f'{size:.1f} GB'


_FORMS: Mapping[str, Any] = {
    **dict.fromkeys(('submitted', 'placed', 'started', 'ended'), shown_clock),
    **dict.fromkeys(('made', 'used'), shown_time),
    **dict.fromkeys(('duration', 'waiting', 'cpu', 'timeout', 'mean'), shown_span),
    **dict.fromkeys(('memory', 'read', 'written', 'gpu_memory', 'requested_memory', 'size'), shown_size)}


def shown_field(name: str, value: Any) -> str:
    """Return the value of an item of tasks, pilots and others, in the form that its name asks for."""
    if isinstance(value, dict):
        return json.dumps(value, default=str)
    return str(_FORMS.get(name, shown)(value))
