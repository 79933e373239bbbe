"""Blocking work, such as copying files, outside of the event loop."""

from __future__ import annotations

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

    def run(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        """Run `work()` in a helper thread, and `done(result)` in the loop afterwards.

        An exception that leaves `work` is raised in the loop. Must be called in the thread of the loop.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix='helper')

        def finished(future: Future[Any]) -> None:
            if not future.cancelled():
                self._loop.call_soon(lambda: done(future.result()))

        self._pool.submit(work).add_done_callback(finished)

    def close(self, *, wait: bool) -> None:
        """Start nothing more; `wait` for what is running."""
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=True)
