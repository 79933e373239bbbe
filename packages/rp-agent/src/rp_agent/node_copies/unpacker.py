"""The program that unpacks an archive from standard input, on a node; each (sub-)agent starts one per copy.

    unpacker DIRECTORY NAME PARENT

One of several on a node unpacks, under a lock that ends with the process; the others wait for it. It writes one line
for each event to standard output: `waits` another process unpacks the copy; `wants` the archive is to be sent; `taken
BYTES` so many were read; `ready PATH` the copy is there; `failed REASON`. It ends with its parent.
"""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import sys

from rp_agent.lineage import die_with_parent
from rp_agent.node_copies.archive import CopyError, unpack

TAKEN = 1 << 16
"""Bytes between two lines on the progress."""


class Input(io.RawIOBase):
    """Standard input, which reports its progress."""

    def __init__(self) -> None:
        self._taken = 0

    def readable(self) -> bool:
        """Return true."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:   # type: ignore[override]
        """Read at most `TAKEN` bytes."""
        data = os.read(0, min(len(buffer), TAKEN))
        buffer[:len(data)] = data
        self._taken += len(data)
        _say(f'taken {self._taken}')
        return len(data)


def main() -> int:
    """Unpack the archive and return the exit code."""
    directory, name, parent = sys.argv[1:]
    die_with_parent(int(parent))
    try:
        _say(f'ready {_copy(directory, name)}')
    except (OSError, CopyError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        _say(f'failed {directory}: {reason}'.replace('\n', ' '))
        return 1
    return 0


def _copy(directory: str, name: str) -> str:
    """Return the path of the copy when it is complete."""
    path = os.path.join(directory, name)
    lock = os.open(f'{path}.lock', os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say('waits')
        fcntl.flock(lock, fcntl.LOCK_EX)
    if not os.path.isdir(path):   # else another process has unpacked it
        part = f'{path}.part'
        shutil.rmtree(part, ignore_errors=True)   # of a process that was killed
        _say('wants')
        try:
            unpack(io.BufferedReader(Input(), TAKEN), part, path)
            os.rename(part, path)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return path


def _say(line: str) -> None:
    os.write(1, f'{line}\n'.encode(errors='surrogateescape'))
