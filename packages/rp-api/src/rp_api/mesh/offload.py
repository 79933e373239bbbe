"""Blocking work, such as copying files, outside of the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rp_api.mesh.loop import Loop

THREADS = 4

Offload = Callable[[Callable[[], Any], Callable[[Any], object]], None]
"""Runs its first argument outside of the event loop, and its second argument in the loop with the result."""


class Helpers:
    """A few threads that do blocking work for an event loop; they start when they are first needed."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False
        self._lock = threading.Lock()

    def run(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        """Run `work()` in a helper thread, and `done(result)` in the loop afterwards.

        An exception that leaves `work` is raised in the loop. After `close` nothing happens.
        """
        def finished(future: Future[Any]) -> None:
            if not future.cancelled():
                self._loop.call_soon(lambda: done(future.result()))

        with self._lock:   # whoever closes is another thread
            if self._closed:
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix='helper')
            future = self._pool.submit(work)
        future.add_done_callback(finished)

    def close(self, *, wait: bool) -> None:
        """Start nothing more; `wait` for what is running."""
        with self._lock:
            self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=True)
