"""The process that an object belongs to: a fork of it has a copy of the object, but not the threads that serve it."""

from __future__ import annotations

import os

from rp_api.errors import CoordinationError


class OwnerProcess:
    """Remembers the process in which it was made; `what` names the object that belongs to it."""

    __slots__ = ('_pid', '_what')

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()

    @property
    def here(self) -> bool:
        """Whether this is that process."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise `CoordinationError` in a fork of that process: what it asks for would never happen."""
        if os.getpid() != self._pid:
            raise CoordinationError(f'{self._what} belongs to process {self._pid}, and cannot be used in process '
                                    f'{os.getpid()}, a fork of that one: use it there, or open a session here')
