"""Process handles: wait for the end of a process, watch it in a loop, and send signals to no other process."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

from rp_api.loop.event_loop import Loop
from rp_api.system.processes import open_process


class ProcessHandle:
    """A process file descriptor (pidfd), which is readable once the process has ended."""

    __slots__ = ('_fd', '_lock', '_loop')

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._loop: Loop | None = None

    @classmethod
    def open(cls, pid: int, started: int | None = None) -> ProcessHandle | None:
        """Return the process with that number and start time (see `open_process`), or None if it has ended."""
        fd = open_process(pid, started)
        return None if fd is None else cls(fd)

    @classmethod
    def of_child(cls, pid: int) -> ProcessHandle:
        """Return a child of this process that was not waited for; raise ProcessLookupError if it was reaped."""
        return cls(os.pidfd_open(pid))

    def fileno(self) -> int:
        """Return the descriptor, for `select`."""
        return self._fd

    def watch(self, loop: Loop, ended: Callable[[], object]) -> None:
        """Call `ended()` once in the loop when the process has ended; `close()` may be called in any thread."""
        def on_end() -> None:
            with self._lock:   # not between the steps of `close()`, after which the number may be another descriptor's
                loop.remove_fd(self._fd)
            ended()

        self._loop = loop
        loop.add_fd(self._fd, on_end)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait at most that many seconds, and return whether the process has ended."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(None if seconds is None else seconds * 1000))

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, number)

    def close(self) -> None:
        """Stop watching the process, and close the descriptor."""
        with self._lock:
            if self._loop is not None:
                self._loop.remove_fd(self._fd)
            os.close(self._fd)
