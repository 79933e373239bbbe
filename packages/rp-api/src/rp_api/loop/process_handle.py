"""A handle of one process: its end can be waited for or watched by a loop, and signals reach no other process."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress

from rp_api.loop.event_loop import Loop
from rp_api.system.processes import open_process


class ProcessHandle:
    """A process file descriptor (pidfd), which is readable once the process has ended."""

    __slots__ = ('_fd', '_loop')

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop: Loop | None = None

    @classmethod
    def open(cls, pid: int, started: int | None = None) -> ProcessHandle | None:
        """The process with that number and start time, see `open_process`; None if it has ended."""
        fd = open_process(pid, started)
        return None if fd is None else cls(fd)

    @classmethod
    def of_child(cls, pid: int) -> ProcessHandle:
        """A child of this process that was not waited for; ProcessLookupError if it was reaped all the same."""
        return cls(os.pidfd_open(pid))

    def fileno(self) -> int:
        """The descriptor, for `select` and the like."""
        return self._fd

    def watch(self, loop: Loop, ended: Callable[[], object]) -> None:
        """Have the loop call `ended()` once, when the process has ended."""
        def on_end() -> None:
            loop.remove_fd(self._fd)
            ended()

        loop.add_fd(self._fd, on_end)
        self._loop = loop

    def wait(self, seconds: float | None = None) -> bool:
        """Return True when the process has ended, False if that takes longer than so many seconds."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(None if seconds is None else seconds * 1000))

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing to a process that has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, number)

    def close(self) -> None:
        """Watch the process no more, and free the descriptor."""
        if self._loop is not None:
            self._loop.remove_fd(self._fd)
        os.close(self._fd)
