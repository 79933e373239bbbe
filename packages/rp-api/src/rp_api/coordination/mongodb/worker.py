"""Threads for blocking work: jobs that are repeated until they succeed, and polling for changes.

A job that fails because the database is unreachable is repeated, so jobs must be idempotent. Results are passed to the
event loop. Permanent errors are raised there.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from pymongo.errors import PyMongoError

from rp_api.backoff import backoff
from rp_api.coordination.mongodb import server
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop

BACKOFF_S = 0.05, 1.0
"""The first and the longest delay between attempts."""

QUICK_POLL_INTERVAL_S = 0.2
"""Seconds between polls that suffice when changes are expected."""

_log = logging.getLogger('radical.pilot.coordination')

Job = tuple[Callable[[], Any], Callable[[Any], object]]


class WorkerLink:
    """The reachability of the database for the threads of a connection; reports changes to the loop."""

    def __init__(self, loop: Loop, url: str, on_lost: Callable[[str], None], on_found: Callable[[], None]) -> None:
        self.loop = loop
        self.url = url
        self.closing = threading.Event()
        self._on_lost = on_lost
        self._on_found = on_found
        self._troubled: set[object] = set()
        self._lock = threading.Lock()

    @property
    def lost(self) -> bool:
        """True if the last attempt of some thread failed."""
        return bool(self._troubled)

    def attempt(self, who: object, work: Callable[[], Any]) -> tuple[bool, Any]:
        """Return whether some work succeeded, and its result; permanent errors are raised in the loop."""
        try:
            result = work()
        except PyMongoError as error:
            if not self.closing.is_set():
                self._failed(who, error)
            return False, None
        except Exception as error:   # must not be lost with this thread
            self.closing.set()
            self.loop.call_soon(_throw, error)
            return False, None
        self._succeeded(who)
        return True, result

    def _failed(self, who: object, error: PyMongoError) -> None:
        why = server.without_secrets(server.brief(error), self.url)
        if not server.passes(error):
            self.closing.set()
            self.loop.call_soon(_throw, CoordinationError(
                f'the MongoDB at {server.address(self.url)} reports an error: {why}'))
            return
        with self._lock:
            first = not self._troubled
            self._troubled.add(who)
        if first:
            _log.warning('the MongoDB at %s is unreachable: %s', server.address(self.url), why)
            self.loop.call_soon(self._on_lost, why)

    def _succeeded(self, who: object) -> None:
        if who in self._troubled:
            with self._lock:
                self._troubled.discard(who)
                healed = not self._troubled
            if healed:
                self.loop.call_soon(self._on_found)


class LinkThread(ABC):
    """A thread of a connection, which runs until its link is closed."""

    def __init__(self, link: WorkerLink, name: str) -> None:
        self._link = link
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait for the end after the link is closed; return False after the timeout."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @abstractmethod
    def _run(self) -> None:
        """Run in the thread."""


class Writer(LinkThread):
    """A thread that performs jobs one after the other, each until it succeeds, and calls `at_end()` after the last."""

    def __init__(self, link: WorkerLink, name: str, at_end: Callable[[], object]) -> None:
        super().__init__(link, name)
        self._at_end = at_end
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._ending = False

    def ask(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        """Queue `work()` for the thread; `done(result)` is called in the loop."""
        with self._changed:
            self._jobs.append((work, done))
            self._changed.notify()

    def finish(self) -> None:
        """Accept no more jobs, and end after the last one."""
        with self._changed:
            self._ending = True
            self._changed.notify()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            work, done = job
            failures = 0
            while not self._link.closing.is_set():
                succeeded, result = self._link.attempt(self, work)
                if succeeded:
                    self._link.loop.call_soon(done, result)
                    break
                failures += 1
                self._link.closing.wait(backoff(failures, *BACKOFF_S))
        self._link.closing.set()   # other threads must not use the closed client
        self._at_end()

    def _next(self) -> Job | None:
        with self._changed:
            while not self._jobs and not self._ending:
                self._changed.wait()
            return self._jobs.popleft() if self._jobs and not self._link.closing.is_set() else None


class Watcher(LinkThread):
    """A thread that polls for changes: soon after it has found some, and when it is called.

    `expecting` returns whether changes are expected of which no stream tells.
    """

    def __init__(self, link: WorkerLink, look: Callable[[], bool], intervals: tuple[float, float], name: str,
                 expecting: Callable[[], bool]) -> None:
        super().__init__(link, name)
        self._look = look
        self._shortest, self._longest = intervals
        self._usual = self._longest
        self._missed = False
        self._called = threading.Event()
        self._pause = self._shortest
        self._expecting = expecting

    def call(self) -> None:
        """Poll now."""
        self._called.set()

    def quicken(self) -> None:
        """Poll more often for a while, because changes are expected."""
        if self._pause > QUICK_POLL_INTERVAL_S:
            self.call()

    def join(self, timeout: float) -> bool:
        self.call()
        return super().join(timeout)

    def slow_down(self, longest: float) -> None:
        """Poll less often, because a change stream calls, unless it was found to miss changes."""
        if not self._missed:
            self._longest = longest

    def _run(self) -> None:
        called, failures = True, 0
        while not self._link.closing.is_set():
            self._called.clear()
            succeeded, found = self._link.attempt(self, self._look)
            if found and not called and self._pause > self._usual:
                self._missed = True   # there were changes without a call
                self._longest = self._usual
            failures = 0 if succeeded else failures + 1
            if failures:
                self._link.closing.wait(backoff(failures, *BACKOFF_S))
                continue
            if found:
                self._pause = self._shortest
            called = self._called.wait(self._pause)
            longest = QUICK_POLL_INTERVAL_S if self._expecting() else self._longest
            self._pause = self._shortest if called else min(1.5 * self._pause, longest)


def remaining(deadline: float) -> float:
    """Return the seconds until a deadline of the monotonic clock, at least 0."""
    return max(0.0, deadline - time.monotonic())


def _throw(error: Exception) -> None:
    raise error
