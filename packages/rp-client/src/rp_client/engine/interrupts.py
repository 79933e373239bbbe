"""Ctrl-C, and other signals that end a program, wait for the end of what must not stay half done.

Python runs the handler of a signal in the main thread, between any two steps, and what it raises, such as
KeyboardInterrupt, ends whatever is going on there. A session that was half closed would leave processes.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ENDING: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals with which users and batch systems end a program."""

_Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def postponed() -> Iterator[None]:
    """Have the handlers of these signals run at the end of the block, each once, if their signal comes meanwhile.

    In other threads than the main one there is nothing to postpone. Signals without a handler have their usual effect.
    """
    handlers: dict[int, _Handler] = {}
    came: dict[int, FrameType | None] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                handler = signal.getsignal(number)
                if callable(handler):
                    handlers[number] = handler
                    signal.signal(number, came.__setitem__)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number, frame in came.items():
            handlers[number](number, frame)
