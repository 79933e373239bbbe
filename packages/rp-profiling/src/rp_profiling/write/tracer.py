"""Writes a profile: one CSV row for each event, with the time at which it was recorded.

Rules of this module:

- Recording an event keeps it in memory (`rows`) and touches no file; some thousand rows are formatted at a time, and
  written at once.
- Rows are taken from memory under the lock that is held until they are written, so the file has the order of recording.
- Tracing never harms the traced program: a failed write ends the trace with one warning and raises nothing. Only the
  opening of the file is repeated if file descriptors are exhausted; until then rows wait in memory.

A profile has the columns of RADICAL-Pilot 1.103 (`HEADER`). Times are epoch seconds with seven decimals. A compressed
profile (`<name>.prof.gz`) has a gzip member for each write: it can be read while the writer runs, and after it was
killed.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from time import time_ns
from typing import TYPE_CHECKING

from rp_profiling.levels import FULL
from rp_profiling.write.detail import USUAL, Detail
from rp_profiling.write.host_clock import HostClock
from rp_profiling.write.rows import RowBuffer, clean, timestamp

if TYPE_CHECKING:
    from io import FileIO

HEADER = '#time,event,comp,thread,uid,state,msg'
LOGGER = 'radical.pilot.profiling'

WAITING = 16 << 20
"""Bytes of rows that may wait for a file that cannot be opened."""

_ROW = re.compile(rb'[0-9]+\.[0-9]+(,[^,"\0-\x1f]*){6}\n')

_SHORT = (errno.EMFILE, errno.ENFILE)


class Tracer(RowBuffer):
    """Records the events of one component in one file.

    `enabled` is true while events are kept: false without a path or detail, after `close`, and after a failed write.
    `full_detail` is true if single steps of each entity are wanted, too. Several threads may use one tracer. The first
    flush creates the file and its directory; an existing file is extended. Rows reach the file after some thousand
    events, by `flush` and by `close`.

    Args:
        path: The profile; None for a tracer that records nothing.
        comp: The name of the component, a field of each row.
        thread: The name of the thread, a field of each row.
        clock: The clock of this host, whose statement at the opening of the file is part of it.
        detail: The events that are recorded, and the compression.
    """

    __slots__ = ('_clock', '_detail', '_file', '_lock', '_path', '_started', '_thread', '_waiting', 'full_detail')

    def __init__(self, path: str | os.PathLike[str] | None, comp: str, thread: str = 'MainThread',
                 clock: HostClock | None = None, detail: Detail = USUAL) -> None:
        super().__init__(comp, thread, path is not None and detail.on, detail.left_out)
        self._path = '' if path is None else os.fspath(path) + ('.gz' if detail.gzip else '')
        self._detail = detail
        self.full_detail = path is not None and detail.events == FULL
        self._thread = thread
        self._started = self._time()
        self._clock = clock or HostClock()
        self._waiting = b''
        self._file: FileIO | None = None
        self._lock = threading.Lock()

    @property
    def begun(self) -> bool:
        """True if the file was opened."""
        return self._file is not None

    def open(self) -> None:
        """Create the file, or extend it, before there are events: a killed writer shows in its trace."""
        with self._lock:
            if self.enabled and self._file is None:
                self._write(self._take())

    def flush(self) -> None:
        """Write all events recorded so far."""
        with self._lock:
            if self.enabled:
                rows = self._take()
                if rows or self._waiting:
                    self._write(rows)

    def relate(self, moment: str, when: int, uid: str) -> None:
        """Record a moment that a profile of another host has, too; `when` is its time by the clock of this host."""
        with self._lock:
            if self.enabled:
                self._write(b''.join((self._take(), self._own_row('sync_rel', when, moment, uid))))

    def copy(self, rows: bytes) -> None:
        """Write rows of another profile, with their own times; lines that are no rows are left out."""
        with self._lock:
            if self.enabled:
                self._write(b''.join((self._take(), *filter(_ROW.fullmatch, rows.splitlines(keepends=True)))))

    def close(self) -> None:
        """Write pending events and `END`, and record nothing more; a second call does nothing."""
        with self._lock:
            if self.enabled:
                self.enabled = False
                self._write(b''.join((self._take(), self._own_row('END', self._time()))), last=True)
                self._close_file()

    def close_in_handler(self) -> None:
        """Do the same in a handler of a signal; nothing if the handler has interrupted a write."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
            self.close()

    def break_off(self) -> None:
        """Write pending events without `END`, as the recorder did not reach its end, and record nothing more."""
        with self._lock:
            if self.enabled:
                self.enabled = False
                rows = self._take()
                if rows or self._waiting:
                    self._write(rows, last=True)
                self._close_file()

    def _full(self) -> None:
        # if another thread is writing, this one does not wait: threads that record must not queue for the disk
        if self._lock.acquire(blocking=False):
            try:
                if self.enabled:
                    self._write(self._take())
            finally:
                self._lock.release()

    def _time(self) -> int:
        """Return the time in nanoseconds since the epoch."""
        return time_ns()

    def _own_row(self, event: str, when: int, msg: str = '', uid: str = '') -> bytes:
        """Return a row of the tracer itself, with a given time."""
        source = f'{clean(self.comp)},{clean(self._thread)}'
        return f'{timestamp(when)},{event},{source},{clean(uid)},,{clean(msg)}\n'.encode()

    def _write(self, rows: bytes | memoryview, last: bool = False) -> None:
        """Append rows to the file, which is opened if needed; end the trace if that fails."""
        try:
            if self._file is None:
                self._waiting = b''.join((self._waiting, rows))
                self._file = _open(self._path)
                rows, self._waiting = self._preamble(self._file) + self._waiting, b''
            _write_all(self._file, _compressed(rows) if self._detail.gzip else rows)
        except (OSError, ValueError) as error:  # ValueError: an invalid path
            short = self._file is None and isinstance(error, OSError) and error.errno in _SHORT
            if last or not short or len(self._waiting) >= WAITING:
                self._give_up(error)

    def _preamble(self, file: FileIO) -> bytes:
        """Return the rows before the first event: the header of a new file, the statement on the clock, the detail."""
        size = file.seek(0, os.SEEK_END)
        start = b''
        if size == 0:
            start = f'{HEADER}\n'.encode()
        elif self._detail.gzip or not _ends_line(file, size):
            start = b'\n'  # a killed writer may have left an incomplete row
        # the time of the tracer's creation, so that no row of this profile is older
        start += self._own_row('sync_abs', self._started, self._clock.statement(self._started))
        if self._detail.left_out:
            start += self._own_row('trace_detail', self._started, self._detail.events)
        return start

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:  # network file systems may report a failed write here
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        import contextlib
        import logging

        self.enabled = False
        self._waiting = b''
        self._take()
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # the first failure is reported below
                file.close()
        logging.getLogger(LOGGER).warning('profile %s ends here, it cannot be written: %s', self._path, error)


def _open(path: str) -> FileIO:
    # unbuffered: each batch is one write, which reports its own failure
    parent = os.path.dirname(path)
    if parent:
        os.makedirs(parent, exist_ok=True)
    return open(path, 'ab+', buffering=0)


def _compressed(rows: bytes | memoryview) -> bytes:
    """Return the rows as one gzip member."""
    import zlib

    # level 1: rows are similar, so higher levels cost more and save little; 31 selects the gzip format
    compressor = zlib.compressobj(1, zlib.DEFLATED, 31)
    return compressor.compress(rows) + compressor.flush()


def _ends_line(file: FileIO, size: int) -> bool:
    file.seek(size - 1)
    return file.read(1) == b'\n'


def _write_all(file: FileIO, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
