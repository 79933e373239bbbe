"""The lock of an environment's directory: a file beside it, which also records whether the environment is complete.

The kernel releases the lock when the last process that has it open ends. The tools of a builder inherit it, so that
another builder does not start while a tool of a killed one still writes.
"""

from __future__ import annotations

import errno
import fcntl
import os
from types import TracebackType

from rp_agent.environments.sources import BuildError

_UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
_LIMIT = 256

BUILDING, COMPLETE = 'building', 'complete'


def path_of(directory: str) -> str:
    """Return the path of the lock of a directory."""
    return f'{directory}.lock'


class BuildLock:
    """The lock of a directory, a context manager that waits for the lock.

    Some file systems have no locks. Then only one agent may use the directory, and it is not locked (`alone`).
    """

    def __init__(self, directory: str, *, alone: bool) -> None:
        self._path = path_of(directory)
        self._alone = alone
        self.fd = -1

    def __enter__(self) -> BuildLock:
        operation = fcntl.LOCK_EX
        try:
            self.fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except PermissionError:   # the user named an environment of another user, which can only be read
            self.fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            operation = fcntl.LOCK_SH
        try:
            fcntl.flock(self.fd, operation)
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
            fcntl.flock(self.fd, fcntl.LOCK_UN)   # also for processes that inherited it and still run
        except OSError as failure:
            if failure.errno not in _UNSUPPORTED:
                raise
        finally:
            os.close(self.fd)

    def read(self) -> tuple[str, str]:
        """Return the state of the environment and its identity; empty if nothing was built."""
        state, _, identity = os.pread(self.fd, _LIMIT, 0).decode(errors='replace').strip().partition(' ')
        return state, identity

    def write(self, state: str, identity: str) -> None:
        """Record a state of the environment."""
        os.pwrite(self.fd, f'{state} {identity}\n'.encode(), 0)   # both states have the same length
