"""Threads that give way to calls where there is no core to spare."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress


def threads() -> set[int]:
    """The threads of this process."""
    return set(map(int, os.listdir('/proc/self/task')))


def give_way(those: Iterable[int]) -> None:
    """Have threads wait for a core rather than interrupt a call there; they run at once where a core is free."""
    for thread in those:
        with suppress(OSError):   # it has ended, or we may not: that costs some time, nothing else
            if os.sched_getscheduler(thread) == os.SCHED_OTHER:
                os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
