"""Writes a profile: one CSV row for each event, with the time at which it was recorded.

Rules of this file:

- Recording an event formats its row in memory (`rows`) and touches no file; one write takes some thousand rows to
  the file.
- Rows leave the memory only under the lock that is held until they are written, so the file has them in the order in
  which they were recorded.
- Tracing never harms what is traced: a write that fails ends the trace with one warning, and nothing is
  raised.

A profile has the columns of RADICAL-Pilot 1.103 (`HEADER`). Times are epoch seconds with seven decimals.
"""

from __future__ import annotations

import os
import threading
from time import time_ns
from typing import TYPE_CHECKING

from rp_profiling.rows import RowBuffer, clean, timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import FileIO

HEADER = '#time,event,comp,thread,uid,state,msg'
LOGGER = 'radical.pilot.profiling'

_ENABLING_VARIABLES = ('RADICAL_PILOT_PROFILE', 'RADICAL_PROFILE', 'RADICAL_DEFAULT_PROFILE')
_OFF = frozenset(('0', 'false', 'no', 'off'))


def profiling_enabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether profiles are to be written.

    The first variable of RADICAL_PILOT_PROFILE, RADICAL_PROFILE and RADICAL_DEFAULT_PROFILE that is set and
    not empty decides: `0`, `false`, `no` and `off` (in any case) switch profiles off. They are on by default.
    """
    for name in _ENABLING_VARIABLES:
        value = environ.get(name, '').strip()
        if value:
            return value.lower() not in _OFF
    return True


class Tracer(RowBuffer):
    """Records the events of one component in one file; with no path it records nothing.

    `enabled` tells whether events are kept: false without a path, after `close`, and after a failed write.
    Several threads may use one tracer. The file and its directory are made by the first flush; an existing
    file is extended. Rows reach the file after some thousand events, on `flush` and on `close`.
    """

    __slots__ = ('_file', '_lock', '_path', '_started', '_thread')

    def __init__(self, path: str | os.PathLike[str] | None, comp: str, thread: str = 'MainThread') -> None:
        super().__init__(comp, thread, path is not None)
        self._path = '' if path is None else os.fspath(path)
        self._thread = thread
        self._started = time_ns()
        self._file: FileIO | None = None
        self._lock = threading.Lock()

    def flush(self) -> None:
        """Write what has been recorded so far."""
        with self._lock:
            if self.enabled:
                rows = self._take()
                if rows:
                    self._write(rows)

    def close(self) -> None:
        """Write what is left and the event `END`, then keep nothing more; a second call does nothing."""
        with self._lock:
            if self.enabled:
                self.enabled = False
                self._write(self._take() + self._own_row('END', time_ns()))
                self._close_file()

    def _full(self) -> None:
        # if another thread is writing, it is not waited for: threads that record do not queue up for the disk
        if self._lock.acquire(blocking=False):
            try:
                if self.enabled:
                    self._write(self._take())
            finally:
                self._lock.release()

    def _own_row(self, event: str, when: int, msg: str = '') -> bytes:
        """A row that stands at a fixed place of the file and not among what is recorded."""
        return f'{timestamp(when)},{event},{clean(self.comp)},{clean(self._thread)},,,{clean(msg)}\n'.encode()

    def _write(self, rows: bytes) -> None:
        """Append `rows` to the file, which is opened if need be; give tracing up if that fails."""
        try:
            if self._file is None:
                self._file = _open(self._path)
                rows = self._preamble(self._file) + rows
            _write_all(self._file, rows)
        except (OSError, ValueError) as error:  # ValueError: a path that no file can have
            self._give_up(error)

    def _preamble(self, file: FileIO) -> bytes:
        """What stands before the first row: the header if the file is new, and the time synchronisation."""
        size = file.seek(0, os.SEEK_END)
        start = b''
        if size == 0:
            start = f'{HEADER}\n'.encode()
        elif not _ends_line(file, size):
            start = b'\n'  # a writer died in its last row; that row must not run into ours
        # taken when the tracer was made, so that no row of this profile is older
        return start + self._own_row('sync_abs', self._started, _sync_message(timestamp(self._started)))

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:  # network file systems may report a failed write only now
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        import contextlib
        import logging

        self.enabled = False
        self._take()
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # the failure that matters is the one reported below
                file.close()
        logging.getLogger(LOGGER).warning('profile %s ends here, it cannot be written: %s', self._path, error)


def _open(path: str) -> FileIO:
    # unbuffered: each batch is one write, and a failure shows at that write and not at some later one
    parent = os.path.dirname(path)
    if parent:
        os.makedirs(parent, exist_ok=True)
    return open(path, 'ab+', buffering=0)


def _ends_line(file: FileIO, size: int) -> bool:
    file.seek(size - 1)
    return file.read(1) == b'\n'


def _write_all(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _sync_message(now: str) -> str:
    """The message of `sync_abs`: the clock is taken as it is (mode `sys`), no time server is asked."""
    return f'{os.uname().nodename}:{_address()}:{now}:{now}:sys'


def _address() -> str:
    """The IPv4 address that this host has towards other networks, 127.0.0.1 if it has none.

    Connecting a datagram socket only asks the local routing table: nothing is sent and no name is looked up.
    The target is a documentation address (RFC 5737).
    """
    import socket

    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(('192.0.2.1', 9))
            return str(probe.getsockname()[0])
    except OSError:
        return '127.0.0.1'
