"""Reads profiles row by row."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rp_profiling.read.files import text_of

if TYPE_CHECKING:
    import os

_log = logging.getLogger('radical.pilot.profiling')


class Row(NamedTuple):
    """One event: `time` in epoch seconds, all other fields as text, empty if they were not recorded."""

    time: float
    event: str
    comp: str
    thread: str
    uid: str
    state: str
    msg: str


def read_profile(path: str | os.PathLike[str]) -> list[Row]:
    """Return the rows of one profile, compressed or not, in the order of the file.

    Comments (the header, which may be repeated in an extended file) and empty lines are skipped, as are rows that a
    killed writer has left incomplete; a warning has their number.

    Args:
        path: The profile.

    Raises:
        OSError: If the file cannot be read.
    """
    lines = b''.join(text_of(Path(path))).decode('utf-8', 'replace').split('\n')
    rows = [_parse(line) for line in lines if not _is_comment(line)]
    torn = rows.count(None)
    if torn:
        _log.warning('profile %s: %d incomplete rows skipped', path, torn)
    return [row for row in rows if row is not None]


def _is_comment(line: str) -> bool:
    return line.startswith('#') or not line.strip()


def _parse(line: str) -> Row | None:
    """Return the row in `line`, None if it is incomplete; commas beyond the sixth belong to the message."""
    fields = line.rstrip('\r\n').split(',', len(Row._fields) - 1)
    if len(fields) != len(Row._fields):
        return None
    try:
        when = float(fields[0])
    except ValueError:
        return None
    return Row(when, *fields[1:])
