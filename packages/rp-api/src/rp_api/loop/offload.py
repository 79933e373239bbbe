"""Blocking work, such as copying files, in threads outside of the event loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rp_api.loop.event_loop import Loop

if TYPE_CHECKING:
    from queue import SimpleQueue

THREADS = 4

Work = Callable[[], Any]
Done = Callable[[Any], object]
Failed = Callable[[BaseException], object]

Offload = Callable[[Work, Done, Failed], None]
"""Runs its first argument outside of the event loop, then in the loop the second one with the result, or the third one
with the exception."""


class Helpers:
    """A few threads for the blocking work of an event loop; they are started on demand.

    They are daemons, so that work which never ends, as on a dead file server, does not prevent the end of the process.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._threads: list[threading.Thread] = []
        self._pending = 0
        self._closed = False
        self._lock = threading.Lock()

    def run(self, work: Work, done: Done, failed: Failed) -> None:
        """Run `work()` in a thread, then `done(result)` in the loop, or `failed(error)` if it raises.

        It also fails if no thread can be started. After `close` it is ignored.
        """
        with self._lock:   # another thread may close
            if self._closed:
                return
            self._pending += 1
            self._jobs.put((work, done, failed))
            if len(self._threads) < min(self._pending, THREADS):
                self._start_thread()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._serve, name=f'helper_{len(self._threads)}', daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            if not self._threads:   # otherwise the others do the work
                self._pending -= 1
                _, _, failed = self._jobs.get()   # type: ignore[misc]  # the only job
                self._loop.call_soon(failed, error)
        else:
            self._threads.append(thread)

    def close(self, timeout: float) -> None:
        """Start no more work, and wait at most `timeout` seconds for running work."""
        with self._lock:
            self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    @cached_property
    def _jobs(self) -> SimpleQueue[tuple[Work, Done, Failed] | None]:
        """The waiting jobs; created with the first one, before any thread."""
        from queue import SimpleQueue  # many processes have no such work

        return SimpleQueue()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not self._closed:
                self._carry_out(*job)

    def _carry_out(self, work: Work, done: Done, failed: Failed) -> None:
        try:
            result = work()
        except BaseException as error:   # it concerns only the caller of `run`
            self._loop.call_soon(failed, error)
        else:
            self._loop.call_soon(done, result)
        with self._lock:
            self._pending -= 1
