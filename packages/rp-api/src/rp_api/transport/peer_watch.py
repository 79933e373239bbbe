"""Tells whether a peer lives: one on this host by its process, one elsewhere by the time when it was heard last."""

from __future__ import annotations

import time
from collections.abc import Callable

from rp_api.loop.event_loop import Loop
from rp_api.loop.process_handle import ProcessHandle


class PeerWatch:
    """A watch on one peer, by its signs of life; `start` adds its process, if it is on this host."""

    __slots__ = ('_process', 'heard')

    def __init__(self) -> None:
        self.heard = time.monotonic()
        self._process: ProcessHandle | None = None

    def hear(self) -> None:
        """The peer has given a sign of life."""
        self.heard = time.monotonic()

    @property
    def by_process(self) -> bool:
        """Whether the process itself is watched, so that silence means nothing."""
        return self._process is not None

    def start(self, loop: Loop, pid: int, started: int | None, died: Callable[[], object]) -> bool:
        """Have `died()` called once when the peer's process ends; False if it has ended already."""
        try:
            self._process = ProcessHandle.open(pid, started)
        except OSError:   # no more descriptors: it is watched like one on another host
            return True
        if self._process is None:
            return False
        self._process.watch(loop, died)
        return True

    def ended(self) -> bool:
        """Return True if the process is known to have ended."""
        return self._process is not None and self._process.wait(0)

    def silent(self, seconds: float) -> bool:
        """Return True if only silence can tell of the peer's end, and it has lasted longer than that."""
        return self._process is None and self.heard < time.monotonic() - seconds

    def stop(self) -> None:
        """Watch no more."""
        if self._process is not None:
            self._process.close()
            self._process = None
