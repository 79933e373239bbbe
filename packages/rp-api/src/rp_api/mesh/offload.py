"""Blocking work, such as copying files, outside of the event loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rp_api.mesh.loop import Loop

if TYPE_CHECKING:
    from queue import SimpleQueue

THREADS = 4

Offload = Callable[[Callable[[], Any], Callable[[Any], object]], None]
"""Runs its first argument outside of the event loop, and its second argument in the loop with the result."""


class Helpers:
    """A few threads that do blocking work for an event loop; they start when they are first needed.

    They are daemons, so that work which never ends, as on a dead file server, does not keep the process from ending.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._threads: list[threading.Thread] = []
        self._pending = 0
        self._closed = False
        self._lock = threading.Lock()

    def run(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        """Run `work()` in a helper thread, and `done(result)` in the loop afterwards.

        An exception that leaves `work` is raised in the loop. After `close` nothing happens.
        """
        with self._lock:   # whoever closes is another thread
            if self._closed:
                return
            self._pending += 1
            self._jobs.put((work, done))
            if len(self._threads) < min(self._pending, THREADS):
                thread = threading.Thread(target=self._serve, name=f'helper_{len(self._threads)}', daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self, patience: float) -> None:
        """Start nothing more, and wait at most `patience` seconds for what is running."""
        with self._lock:
            self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        deadline = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    @cached_property
    def _jobs(self) -> SimpleQueue[tuple[Callable[[], Any], Callable[[Any], object]] | None]:
        """What waits for a thread; made with the first job, before there is any thread."""
        from queue import SimpleQueue  # many processes have no such work

        return SimpleQueue()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not self._closed:
                self._carry_out(*job)

    def _carry_out(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        try:
            result = work()
        except BaseException as error:   # whatever it is, it must not get lost with this thread
            self._loop.call_soon(_throw, error)
        else:
            self._loop.call_soon(done, result)
        with self._lock:
            self._pending -= 1


def _throw(error: BaseException) -> None:
    raise error
