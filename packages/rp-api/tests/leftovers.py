"""What tests may not leave: open descriptors, processes."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress

from rp_api.system.processes import pidfd_open


def open_descriptors() -> set[tuple[int, int, int]]:
    """Number, device and inode of each, without the one that looks at them.

    A test holds against `<= before`, not `== before`: what an earlier test has left to the garbage collector may be
    closed meanwhile.
    """
    found = set()
    for name in os.listdir('/proc/self/fd'):
        with suppress(OSError):   # it was that of the directory
            status = os.fstat(int(name))
            found.add((int(name), status.st_dev, status.st_ino))
    return found


def end_of(pid: int, seconds: float = 30.0) -> bool:
    """Whether the process ends within that time."""
    descriptor = pidfd_open(pid)
    if descriptor is None:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def must_end(pids: list[int]) -> None:
    """Fail unless all these processes end by themselves; in any case none of them is left."""
    left = [pid for pid in pids if not end_of(pid)]
    for pid in left:
        with suppress(ProcessLookupError):   # it ends just now
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):   # it is one if this process takes orphans
            os.waitpid(pid, 0)
    assert not left, f'still running: {left}'
