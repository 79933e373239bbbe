"""Reading files that tasks may have made anything of: a FIFO, whose reader waits for ever, or one without an end."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, open for reading; `OSError` for everything else."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, 'Not a regular file', os.fspath(path))
    return open(fd, 'rb')


def end_of(path: str | os.PathLike[str], limit: int) -> bytes:
    """The last bytes of a file, at most `limit`; none if it cannot be read."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read(limit)
    except OSError:
        return b''
