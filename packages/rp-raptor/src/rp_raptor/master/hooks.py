"""The thread that calls the user's code, one call after the other, so that the master's loop never waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_Job = tuple[Callable[..., object], tuple[Any, ...]]

_log = logging.getLogger('radical.pilot.raptor')


class Hooks:
    """Calls functions in a thread, in order; hooks (`hook`) only after `open()`."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._early: list[_Job] | None = []
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call the function in the thread, and log what it raises. After `close` it runs in the caller's thread."""
        with self._lock:
            if not self._closed:
                self._jobs.put((function, args))
                return
        _call(function, args)

    def hook(self, function: Callable[..., object], *args: Any) -> None:
        """Call the function in the thread after `open()`."""
        with self._lock:
            if self._early is not None:
                self._early.append((function, args))
                return
        self._jobs.put((function, args))

    def open(self) -> None:
        """Call hooks from now on, starting with those that wait."""
        with self._lock:
            early, self._early = self._early or [], None
            for job in early:
                self._jobs.put(job)

    def close(self, timeout: float) -> None:
        """Stop the thread; wait at most `timeout` seconds for the calls that are queued."""
        with self._lock:
            self._closed = True
            self._jobs.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            _call(*job)


def _call(function: Callable[..., object], args: tuple[Any, ...]) -> None:
    try:
        function(*args)
    except Exception:
        _log.exception('%s has failed', getattr(function, '__qualname__', function))
