"""Detection of objects used in a fork: it has copies of the objects, but not the threads that serve them."""

from __future__ import annotations

import os

from rp_api.errors import CoordinationError


class OwnerProcess:
    """Remembers the process in which it was created; `what` names its object in messages."""

    __slots__ = ('_pid', '_what')

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()

    @property
    def here(self) -> bool:
        """True in the process that created it."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise `CoordinationError` in a fork of that process, where requests would never be processed."""
        if os.getpid() != self._pid:
            raise CoordinationError(f'{self._what} belongs to process {self._pid}, and cannot be used in process '
                                    f'{os.getpid()}, a fork of that one: use it there, or open a session here')
