"""Tables, times and sizes in the output of commands."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass



def print_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Print rows below a head, in columns."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        print('  '.join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def shown_time(seconds: float) -> str:
    """Return a time, in seconds since 1970, as local date and time."""
    return datetime.fromtimestamp(seconds, timezone.utc).astimezone().strftime('%Y-%m-%d %H:%M:%S')


def shown_size(size: float | None) -> str:
    """Return a number of bytes with a unit; `-` if it is unknown."""
    if size is None:
        return '-'
    for unit in ('B', 'KB', 'MB'):
        if size < 1000:
            return f'{size:.0f} {unit}'
        size /= 1000
    return f'{size:.1f} GB'
