"""Signals as events of an event loop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection

from rp_api.loop.event_loop import Loop


def watch(loop: Loop, numbers: Collection[int], received: Callable[[int], object]) -> None:
    """Call `received` in the event loop, between two events, for each of these signals, which have handlers."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer)

    def wake() -> None:
        for number in sorted(set(os.read(reader, 64)).intersection(numbers)):
            received(number)

    loop.add_fd(reader, wake)
