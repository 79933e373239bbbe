"""Detection of lost peers: by the process on this host, by missing heartbeats on other hosts."""

from __future__ import annotations

import time
from collections.abc import Callable

from rp_api.loop.event_loop import Loop
from rp_api.loop.process_handle import ProcessHandle


class PeerWatch:
    """A watch on one peer by its messages; `start` adds its process, if it is on this host."""

    __slots__ = ('_process', 'heard')

    def __init__(self) -> None:
        self.heard = time.monotonic()
        self._process: ProcessHandle | None = None

    def hear(self) -> None:
        """Record a message of the peer."""
        self.heard = time.monotonic()

    @property
    def by_process(self) -> bool:
        """True if the process itself is watched, so that missing messages mean nothing."""
        return self._process is not None

    def start(self, loop: Loop, pid: int, started: int | None, died: Callable[[], object]) -> bool:
        """Watch the peer's process, and call `died()` once when it ends; return False if it has ended already."""
        try:
            self._process = ProcessHandle.open(pid, started)
        except OSError:   # out of file descriptors: it is watched like a peer on another host
            return True
        if self._process is None:
            return False
        self._process.watch(loop, died)
        return True

    def ended(self) -> bool:
        """Return True if the process is known to have ended."""
        return self._process is not None and self._process.wait(0)

    def silent(self, seconds: float) -> bool:
        """Return True if only messages show that the peer lives, and none arrived for that many seconds."""
        return self._process is None and self.heard < time.monotonic() - seconds

    def stop(self) -> None:
        """Stop watching."""
        if self._process is not None:
            self._process.close()
            self._process = None
