"""The lock of an environment's directory: a file beside it, which only its owner can open.

The kernel releases the lock when the last process that has it open ends: the builder, its shell and its tools.
"""

from __future__ import annotations

import errno
import fcntl
import os
from types import TracebackType

from rp_agent.environments.sources import BuildError
from rp_api.system import private

_UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


def path_of(directory: str) -> str:
    """Return the path of the lock of a directory."""
    return f'{directory}.lock'


class BuildLock:
    """The lock of a directory, a context manager that waits for the lock; OwnershipError if it is another user's.

    Some file systems have no locks. Then only one agent may use the directory, and it is not locked (`alone`).
    """

    def __init__(self, directory: str, *, alone: bool) -> None:
        self._path = path_of(directory)
        self._alone = alone
        self.fd = -1

    def __enter__(self) -> BuildLock:
        self.fd = private.open_file(self._path, os.O_RDWR | os.O_CREAT, readable=True)
        try:
            os.fchmod(self.fd, 0o600)   # other users could hold a lock that they can open
            fcntl.flock(self.fd, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            if not self._alone:
                raise BuildError(f'the file system of {self._path} has no file locks ({error.strerror}), which '
                                 'environments that pilots share need: choose another directory') from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        try:
            if error is None:   # what the build has left in the background may go on
                fcntl.flock(self.fd, fcntl.LOCK_UN)
        except OSError as failure:
            if failure.errno not in _UNSUPPORTED:
                raise
        finally:
            os.close(self.fd)
