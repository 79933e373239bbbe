"""Postpones Ctrl-C, and other signals that end a program, while a session is opened or closed.

Python runs signal handlers in the main thread between any two steps; an exception that they raise, such as
KeyboardInterrupt, would interrupt the closing of a session and leave processes behind.
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
    """Run the handlers of signals that arrive during the block at its end, each once.

    Has no effect in other threads than the main one. Signals without a handler keep their default effect.
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
