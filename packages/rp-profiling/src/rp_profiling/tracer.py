"""Writes a profile: one CSV row for each event, with the time at which it was recorded.

Rules of this file:

- `record` does nothing but append to a list; rows are formatted and written once a few thousand have
  gathered.
- Entries leave the list only from its front and only under the lock, so no thread can lose a row to a flush.
- Tracing never harms what is traced: a write that fails ends the trace with one warning, and nothing is
  raised.

A profile has the columns of RADICAL-Pilot 1.103 (`HEADER`). Times are epoch seconds with seven decimals.
"""

from __future__ import annotations

import os
import threading
from time import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from io import FileIO

    Entry = tuple[float, str, str | tuple[str, ...], str, str]

HEADER = '#time,event,comp,thread,uid,state,msg'
LOGGER = 'radical.pilot.profiling'

_SEPARATORS = HEADER.count(',')
_FLUSH_AT = 4096
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


class Tracer:
    """Records the events of one component in one file; with no path it records nothing.

    `enabled` tells whether events are kept: false without a path, after `close`, and after a failed write.
    Several threads may use one tracer. The file and its directory are made by the first flush; an existing
    file is extended. Rows reach the file after some thousand events, on `flush` and on `close`.
    """

    __slots__ = (
        '_bulk_rows',
        '_entries',
        '_file',
        '_lock',
        '_path',
        '_source',
        '_started',
        'comp',
        'enabled',
    )

    def __init__(self, path: str | os.PathLike[str] | None, comp: str, thread: str = 'MainThread') -> None:
        self.enabled = path is not None
        self.comp = comp
        self._path = '' if path is None else os.fspath(path)
        self._source = f'{_clean(comp)},{_clean(thread)}'
        self._started = time()
        self._entries: list[Entry] = []
        self._bulk_rows = 0
        self._file: FileIO | None = None
        self._lock = threading.Lock()

    def record(self, event: str, uid: str = '', state: str = '', msg: str = '') -> None:
        """Keep one event, at the present time."""
        if not self.enabled:
            return
        entries = self._entries
        entries.append((time(), event, uid, state, msg))
        if len(entries) >= _FLUSH_AT:
            self._flush_unless_busy()

    def record_bulk(self, event: str, uids: Sequence[str], state: str = '', msg: str = '') -> None:
        """Keep one event for each of `uids`, all at the present time."""
        if not self.enabled or not uids:
            return
        self._entries.append((time(), event, tuple(uids), state, msg))
        # several threads may make this count inexact; it only decides when to write
        self._bulk_rows += len(uids)
        if self._bulk_rows >= _FLUSH_AT:
            self._flush_unless_busy()

    def flush(self) -> None:
        """Write what has been recorded so far."""
        with self._lock:
            if self.enabled and self._entries:
                self._write(self._take())

    def close(self) -> None:
        """Write what is left and the event `END`, then keep nothing more; a second call does nothing."""
        with self._lock:
            if self.enabled:
                self.enabled = False
                rows = self._take()
                rows.append(_row((time(), 'END', '', '', ''), '', self._source))
                self._write(rows)
                self._close_file()

    def _flush_unless_busy(self) -> None:
        """Write, unless another thread is doing so: threads that record do not queue up for the disk."""
        if self._lock.acquire(blocking=False):
            try:
                if self.enabled:
                    self._write(self._take())
            finally:
                self._lock.release()

    def _take(self) -> list[str]:
        """The rows of all entries recorded so far, which are removed."""
        count = len(self._entries)
        batch = self._entries[:count]
        del self._entries[:count]
        self._bulk_rows = 0
        return [row for entry in batch for row in _rows(entry, self._source)]

    def _write(self, rows: list[str]) -> None:
        """Append `rows` to the file, which is opened if need be; give tracing up if that fails."""
        try:
            if self._file is None:
                self._file = _open(self._path)
                rows = [*self._preamble(self._file), *rows]
            _write_all(self._file, ('\n'.join(rows) + '\n').encode())
        except (OSError, ValueError) as error:  # ValueError: a path that no file can have
            self._give_up(error)

    def _preamble(self, file: FileIO) -> Iterator[str]:
        """What stands before the first row: the header if the file is new, and the time synchronisation."""
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            yield HEADER
        elif not _ends_line(file, size):
            yield ''  # a writer died in its last row; that row must not run into ours
        # taken when the tracer was made, so that no row of this profile is older
        yield _row((self._started, 'sync_abs', '', '', _sync_message(self._started)), '', self._source)

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
        self._entries.clear()
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # the failure that matters is the one reported below
                file.close()
        logging.getLogger(LOGGER).warning('profile %s ends here, it cannot be written: %s', self._path, error)


def _rows(entry: Entry, source: str) -> list[str]:
    uid = entry[2]
    return (
        [_row(entry, each, source) for each in uid] if isinstance(uid, tuple) else [_row(entry, uid, source)]
    )


def _row(entry: Entry, uid: str, source: str) -> str:
    """One row of seven fields without its line end; `source` is component and thread, already clean."""
    when, event, _, state, msg = entry
    row = f'{when:.7f},{event},{source},{uid},{state},{msg}'
    if row.count(',') == _SEPARATORS and '"' not in row and row.isprintable():
        return row
    return f'{when:.7f},{_clean(event)},{source},{_clean(uid)},{_clean(state)},{_clean(msg)}'


def _clean(field: str) -> str:
    """`field` without what would end a field or a row, or what a CSV reader takes for a quote."""
    text = str(field).replace(',', ';').replace('"', "'")
    return text if text.isprintable() else ''.join(each if each.isprintable() else ' ' for each in text)


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


def _sync_message(now: float) -> str:
    """The message of `sync_abs`: the clock is taken as it is (mode `sys`), no time server is asked."""
    return f'{os.uname().nodename}:{_address()}:{now:.7f}:{now:.7f}:sys'


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
