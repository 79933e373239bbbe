"""Interruption of transfers: when their task is cancelled, and when the process ends.

A stager declares with `interruptible` when its work has become pointless. A transport asks `interrupted` again and
again. If something outside of the process goes on otherwise, it does so in `transferring`, for whose end the process
waits briefly before it ends itself.
"""

from __future__ import annotations

import atexit
import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rp_api.staging.files import fault

STOP_TIMEOUT = 5.0
"""Seconds that the end of the process waits for interrupted transfers at most."""

_work = threading.local()
_ended = threading.Condition()
_running = 0
_exiting = False


@contextmanager
def interruptible(cancelled: Callable[[], bool]) -> Iterator[None]:
    """Interrupt transfers of this thread, in the body, as soon as `cancelled()` is true; this thread calls it."""
    _work.cancelled = cancelled
    try:
        yield
    finally:
        del _work.cancelled


@contextmanager
def transferring() -> Iterator[None]:
    """Delay the end of the process until the body has noticed it."""
    global _running
    with _ended:
        _running += 1
    try:
        yield
    finally:
        with _ended:
            _running -= 1
            _ended.notify_all()


def interrupted() -> bool:
    """Return whether the transfer in this thread has to stop."""
    return _exiting or getattr(_work, 'cancelled', bool)()


def check_interruption(url: str) -> None:
    """Raise an OSError if the transfer of a URL in this thread has to stop."""
    if interrupted():
        raise fault(errno.ECANCELED, url, 'The transfer was interrupted')


@atexit.register
def _stop() -> None:
    global _exiting
    _exiting = True
    with _ended:
        _ended.wait_for(lambda: not _running, STOP_TIMEOUT)
