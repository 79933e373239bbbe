"""Threads for work that blocks: jobs that are repeated until they succeed, and looks at what is new.

A job that fails because the database is away is tried again, so jobs must have the same effect when they are carried
out twice. Results are given to the event loop. A failure that time does not heal is raised there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from pymongo.errors import PyMongoError

from rp_api.coordination.mongodb import server
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop

PAUSES = (0.05, 1.0)
"""Seconds between attempts: the first pause, and the longest one."""

QUICK = 0.2
"""Seconds between looks that are often enough when something is expected."""

_log = logging.getLogger('radical.pilot.coordination')

Job = tuple[Callable[[], Any], Callable[[Any], object]]


class Link:
    """Whether the database can be reached, as the threads of a connection find; tells the loop of changes."""

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
        """Whether the last attempt of some thread failed."""
        return bool(self._troubled)

    def attempt(self, who: object, work: Callable[[], Any]) -> tuple[bool, Any]:
        """Whether some work succeeded, and its result; what cannot be healed is raised in the loop."""
        try:
            result = work()
        except PyMongoError as error:
            if not self.closing.is_set():
                self._failed(who, error)
            return False, None
        except Exception as error:   # whatever it is, it must not get lost with this thread
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
                f'the MongoDB at {server.address(self.url)} refuses to work: {why}'))
            return
        with self._lock:
            first = not self._troubled
            self._troubled.add(who)
        if first:
            _log.warning('the MongoDB at %s is away: %s', server.address(self.url), why)
            self.loop.call_soon(self._on_lost, why)

    def _succeeded(self, who: object) -> None:
        if who in self._troubled:
            with self._lock:
                self._troubled.discard(who)
                healed = not self._troubled
            if healed:
                self.loop.call_soon(self._on_found)


class Writer:
    """A thread that carries out jobs one after the other, each until it succeeds, and `at_end()` after the last one."""

    def __init__(self, link: Link, name: str, at_end: Callable[[], object]) -> None:
        self._link = link
        self._at_end = at_end
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin with what was asked for."""
        self._thread.start()

    def ask(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        """Have `work()` done in the thread, after what was asked for before, and `done(result)` called in the loop."""
        with self._changed:
            self._jobs.append((work, done))
            self._changed.notify()

    def finish(self) -> None:
        """Take no more jobs, and end after the last one."""
        with self._changed:
            self._ending = True
            self._changed.notify()

    def join(self, timeout: float) -> bool:
        """Wait for the end; False if it did not come."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            work, done = job
            pause, longest = PAUSES
            while not self._link.closing.is_set():
                succeeded, result = self._link.attempt(self, work)
                if succeeded:
                    self._link.loop.call_soon(done, result)
                    break
                self._link.closing.wait(pause)
                pause = min(2 * pause, longest)
        self._link.closing.set()   # others may not use any more what is closed now
        self._at_end()

    def _next(self) -> Job | None:
        with self._changed:
            while not self._jobs and not self._ending:
                self._changed.wait()
            return self._jobs.popleft() if self._jobs and not self._link.closing.is_set() else None


class Watcher:
    """A thread that looks for what is new: soon again after it has found something, or when it is called."""

    def __init__(self, link: Link, look: Callable[[], bool], intervals: tuple[float, float], name: str) -> None:
        self._link = link
        self._look = look
        self._shortest, self._longest = intervals
        self._usual = self._longest
        self._missed = False
        self._called = threading.Event()
        self._pause = self._shortest
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def call(self) -> None:
        """Have it look now."""
        self._called.set()

    def quicken(self) -> None:
        """There will be something soon: look more often for a while."""
        if self._pause > QUICK:
            self.call()

    def join(self, timeout: float) -> bool:
        """Wait for the end, which comes when the link is closing; False if it did not come."""
        self._called.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def slow_down(self, longest: float) -> None:
        """Something else calls when there is news: look less often, unless it was found to miss some."""
        if not self._missed:
            self._longest = longest

    def _run(self) -> None:
        called = True
        while not self._link.closing.is_set():
            self._called.clear()
            succeeded, found = self._link.attempt(self, self._look)
            if found and not called and self._pause > self._usual:
                self._missed = True   # there was news, and nobody called
                self._longest = self._usual
            if found:
                self._pause = self._shortest
            elif not succeeded:
                self._pause = min(max(2 * self._pause, PAUSES[0]), PAUSES[1])
                self._link.closing.wait(self._pause)
                continue
            called = self._called.wait(self._pause)
            self._pause = self._shortest if called else min(1.5 * self._pause, self._longest)


def remaining(deadline: float) -> float:
    """Seconds until a deadline of the monotonic clock, not less than none."""
    return max(0.0, deadline - time.monotonic())


def _throw(error: Exception) -> None:
    raise error
