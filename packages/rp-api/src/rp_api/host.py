"""Facts about the host that a process runs on, and about processes there."""

from __future__ import annotations

import functools
import os


@functools.cache
def host_id() -> str:
    """A text that two processes share exactly when each can see the other's process id.

    It is made of the kernel's boot id and the PID namespace; the host name where there is no `/proc`.
    """
    try:
        with open('/proc/sys/kernel/random/boot_id', encoding='ascii') as file:
            return f'{file.read().strip()}:{os.readlink("/proc/self/ns/pid")}'
    except OSError:
        return os.uname().nodename


def pidfd_open(pid: int) -> int | None:
    """A file descriptor that becomes readable when the process ends; None if there is no such process."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
