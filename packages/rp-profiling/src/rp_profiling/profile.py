"""Reads profiles back: rows of one file, or of all files below a directory, merged by time."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rp_profiling.files import profiles_below, text_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

_log = logging.getLogger('radical.pilot.profiling')


class Row(NamedTuple):
    """One event: `time` in epoch seconds, everything else as text, empty where it was not recorded."""

    time: float
    event: str
    comp: str
    thread: str
    uid: str
    state: str
    msg: str


def read_profile(path: str | os.PathLike[str]) -> list[Row]:
    """The rows of one profile, compressed or not, in the order of the file.

    Comments (the header, which may come again where a file was extended) and empty lines are skipped. A
    writer that dies leaves a torn row: it is left out if it lacks a field, and a warning says how many were.
    OSError is raised if the file cannot be read.
    """
    lines = b''.join(text_of(Path(path))).decode('utf-8', 'replace').split('\n')
    rows = [_parse(line) for line in lines if not _is_comment(line)]
    torn = rows.count(None)
    if torn:
        _log.warning('profile %s: %d torn rows left out', path, torn)
    return [row for row in rows if row is not None]


def read_profiles(directory: str | os.PathLike[str]) -> list[Row]:
    """The rows of all profiles in `directory` and below it, sorted by time.

    Rows of one file that carry the same time keep their order. NotADirectoryError is raised if there is no
    such directory.
    """
    root = Path(directory)
    if not root.is_dir():
        raise NotADirectoryError(f'no profiles can be read from {root}: it is not a directory')
    return _merge(read_profile(path) for path in profiles_below(root))


def _merge(profiles: Iterable[list[Row]]) -> list[Row]:
    rows = [row for profile in profiles for row in profile]
    rows.sort(key=lambda row: row.time)
    return rows


def _is_comment(line: str) -> bool:
    return line.startswith('#') or not line.strip()


def _parse(line: str) -> Row | None:
    """The row that stands in `line`, None if it is torn; commas beyond the sixth belong to the message."""
    fields = line.rstrip('\r\n').split(',', len(Row._fields) - 1)
    if len(fields) != len(Row._fields):
        return None
    try:
        when = float(fields[0])
    except ValueError:
        return None
    return Row(when, *fields[1:])
