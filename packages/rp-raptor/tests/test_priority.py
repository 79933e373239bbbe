"""Threads that give way to calls."""

from __future__ import annotations

import os
import threading

from rp_raptor.rank.threads import give_way, threads


def test_only_the_threads_that_are_named_give_way() -> None:
    before, end = threads(), threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        new = threads() - before
        give_way([*new, 1 << 22])   # and one that has ended
        assert new == {thread.native_id}
        assert {os.sched_getscheduler(number) for number in new} == {os.SCHED_BATCH}
        assert {os.sched_getscheduler(number) for number in before & threads()} == {os.SCHED_OTHER}
    finally:
        end.set()
        thread.join()
