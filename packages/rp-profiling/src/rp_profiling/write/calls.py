"""Writes the records of the function calls that one process runs: 16 bytes for each call.

A file (`<name>.calls`) is a header and records, all in little-endian order. The header is `MAGIC`, the version of the
format and the length of a JSON text (4 bytes each), and that text, filled with blanks to a multiple of 16 bytes. It has
the `worker` and its `rank`, the `clock` of the host as profiles state it, when the rank has `begun`, and the `offset`
in nanoseconds that leads from the times of records to the epoch.

A record is the start of a call, in nanoseconds of the monotonic clock, and a word with the nanoseconds that it took,
times 256, and what it was: its kind, its outcome, and flags. The last record of a process that has ended in order is
`END`.

Tracing never harms the traced program: a failed write ends the records with one warning.
"""

from __future__ import annotations

import json
import os
import struct
from time import monotonic_ns, time_ns
from typing import Any

from rp_profiling.write.host_clock import HostClock

MAGIC = b'RPCALLS\n'
VERSION = 1
HEAD = struct.Struct('<8sII')
RECORD = 16
"""Bytes of a record."""

ENDING = '.calls'

DONE, FAILED, INTERRUPTED = 0, 1, 2
"""Outcomes of a call; interrupted calls were cancelled or exceeded their timeout."""

FUNCTION, TASK = 0, 4
"""Kinds of a call: a function, also as one of a chunk, or a described task."""

PART = 16
"""Flag: a part of a call of several ranks, and not the first one, which stands for the call."""

ASYNC = 32
"""Flag: an asynchronous call, which shares its rank with others."""

END = 255

OUTCOMES = 3
"""Mask of the outcome."""

_TRIES = 1000
LOGGER = 'radical.pilot.profiling'


class CallFile:
    """A new file of records: it never extends another one. `ok` is false after a failed write.

    Args:
        directory: The directory of the file, which exists.
        worker: The uid of the worker.
        rank: The number of the process in it.
    """

    def __init__(self, directory: str, worker: str, rank: int) -> None:
        self.ok = True
        self._path = os.path.join(directory, f'{worker}.{rank}')
        self._fd = -1
        try:
            self._fd = self._open()
        except OSError as error:
            self._give_up(error)
        self.write(header(worker, rank))

    def write(self, records: bytes) -> None:
        """Append records."""
        if not self.ok:
            return
        try:
            rest = memoryview(records)
            while rest:
                rest = rest[os.write(self._fd, rest):]
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _open(self) -> int:
        """Open a new file: a rank that was started again has another one."""
        for number in range(_TRIES):
            path = f'{self._path}.{number}{ENDING}' if number else f'{self._path}{ENDING}'
            try:
                return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                continue
        raise FileExistsError(f'{_TRIES} files {self._path}.*{ENDING} exist')

    def _give_up(self, error: OSError) -> None:
        import logging

        self.ok = False
        self.close()
        logging.getLogger(LOGGER).warning('the records of calls %s%s end here, they cannot be written: %s', self._path,
                                          ENDING, error)


def content(path: str | os.PathLike[str]) -> tuple[dict[str, Any], bytes]:
    """Return what the header of a file says, and its records.

    Raises:
        ValueError: The file is of another kind or version, or its header is broken.
    """
    with open(path, 'rb') as file:
        data = file.read()
    if len(data) < HEAD.size or not data.startswith(MAGIC):
        raise ValueError(f'{path} has no records of calls')
    _, version, size = HEAD.unpack_from(data)
    if version != VERSION:
        raise ValueError(f'{path} has records of calls in version {version} of their format, but this reader knows '
                         f'version {VERSION}')
    try:
        said = json.loads(data[HEAD.size:HEAD.size + size])
        return {**said, 'begun': int(said['begun']), 'offset': int(said['offset'])}, data[HEAD.size + size:]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f'{path} has records of calls with a broken header: {error!r}') from error


def header(worker: str, rank: int) -> bytes:
    """Return the header of a file."""
    now, begun = time_ns(), monotonic_ns()
    said = {'worker': worker, 'rank': rank, 'clock': HostClock().statement(now), 'begun': begun, 'offset': now - begun}
    text = json.dumps(said).encode()
    text += b' ' * (-(HEAD.size + len(text)) % RECORD)
    return HEAD.pack(MAGIC, VERSION, len(text)) + text
