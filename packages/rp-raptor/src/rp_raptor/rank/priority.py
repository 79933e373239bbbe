"""Lowers the priority of threads that compete with calls for a core."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress


def threads() -> set[int]:
    """Return the ids of this process's threads."""
    return set(map(int, os.listdir('/proc/self/task')))


def give_way(those: Iterable[int]) -> None:
    """Give threads a lower priority, so that they do not preempt a call; they run at once where a core is free."""
    for thread in those:
        with suppress(OSError):   # the thread has ended, or this is not permitted: a loss of speed only
            if os.sched_getscheduler(thread) == os.SCHED_OTHER:
                os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
