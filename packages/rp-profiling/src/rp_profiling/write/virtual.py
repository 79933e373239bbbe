"""Writes profiles of events on a virtual clock, as in a simulation: the same files, with the times of that clock.

Times are seconds since `EPOCH`, so that a simulation writes the same bytes in each run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rp_profiling.write.rows import clean, timestamp
from rp_profiling.write.tracer import HEADER, Tracer

if TYPE_CHECKING:
    from io import FileIO

EPOCH = 946_684_800
"""The start of virtual clocks: 2000-01-01, UTC."""

HOST = 'simulated'
"""The host name of all virtual clocks."""

_FULL_AT = 4096
"""Rows per write."""


class VirtualTracer(Tracer):
    """A tracer with the times of `clock`, in seconds; without a path it records nothing."""

    __slots__ = ('_lines', '_now', '_seconds', '_source', '_stamp')

    def __init__(self, path: str | os.PathLike[str] | None, comp: str, clock: Callable[[], float],
                 thread: str = 'MainThread') -> None:
        self._seconds = clock
        super().__init__(path, comp, thread)
        self._lines: list[str] = []
        self._source = f'{clean(comp)},{clean(thread)}'
        self._now = -1.0
        self._stamp = ''

    def record(self, event: str, uid: str = '', state: str = '', msg: str = '') -> None:
        """Record one event."""
        if self.enabled:
            self._add(f'{self._when()},{event},{self._source},{clean(uid)},{state},{clean(msg)}\n')

    def record_many(self, uid: str, events: tuple[str, ...], msg: str = '') -> None:
        """Record the `events` of one entity in their order; `msg` belongs to the first one."""
        if self.enabled:
            when, end = self._when(), f',{self._source},{clean(uid)},,'
            rows = [f'{when},{event}{end}\n' for event in events]
            if msg and rows:
                rows[0] = f'{when},{events[0]}{end}{clean(msg)}\n'
            self._add(''.join(rows))

    def record_bulk(self, event: str, uids: Iterable[str], state: str = '', msg: str = '') -> None:
        """Record one event for each of `uids`."""
        if self.enabled:
            start, end = f'{self._when()},{event},{self._source}', f'{state},{clean(msg)}\n'
            self._add(''.join([f'{start},{clean(uid)},{end}' for uid in uids]))

    def record_each(self, event: str, entities: Iterable[tuple[str, str]]) -> None:
        """Record one event for each of `entities`, pairs of a uid and a message."""
        if self.enabled:
            start = f'{self._when()},{event},{self._source}'
            self._add(''.join([f'{start},{clean(uid)},,{clean(msg)}\n' for uid, msg in entities]))

    def _time(self) -> int:
        return round((EPOCH + self._seconds()) * 1e9)

    def _preamble(self, file: FileIO) -> bytes:
        now = timestamp(self._started)
        return f'{HEADER}\n'.encode() + self._own_row('sync_abs', self._started, f'{HOST}:127.0.0.1:{now}:{now}:sys')

    def _when(self) -> str:
        """Return the current time in the format of rows."""
        now = self._seconds()
        if now != self._now:
            self._now, self._stamp = now, f'{EPOCH + now:.7f}'
        return self._stamp

    def _add(self, rows: str) -> None:
        self._lines.append(rows)
        if len(self._lines) >= _FULL_AT:
            self._full()

    def _take(self) -> bytes:
        rows = ''.join(self._lines).encode()
        self._lines.clear()
        return rows
