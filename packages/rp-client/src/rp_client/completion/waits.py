"""Waiting for several tasks and futures: `rp.wait` and `rp.as_completed`, and the same in coroutines."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION, Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from rp_api import states, units
from rp_client.engine.waiting import wait_for_event

if TYPE_CHECKING:
    import asyncio

T = TypeVar('T')

_ENDED = ('FINISHED', 'CANCELLED_AND_NOTIFIED')
"""States of a future that is done, as `concurrent.futures.wait` has them: who cancels a future ends it later."""


class DoneAndNotDone(NamedTuple):
    """The tasks and futures that are done, and the others."""

    done: set[Any]
    not_done: set[Any]


def wait(tasks: Iterable[Any], timeout: units.Time | None = None, return_when: str = ALL_COMPLETED) -> DoneAndNotDone:
    """Wait for tasks and futures.

    Args:
        tasks: Tasks, and futures of any kind of `concurrent.futures`, such as those of an `rp.raptor.Executor`.
        timeout: Seconds to wait at most; default: no limit.
        return_when: `ALL_COMPLETED` (default), `FIRST_COMPLETED` or `FIRST_EXCEPTION`, as for
            `concurrent.futures.wait`.

    Returns:
        Two sets: those that are done, whatever their result, and the others.

    Raises:
        TypeError: Something is neither a task nor a future.
        ValueError: `return_when` is unknown.
        RuntimeError: The session of a task was closed or has failed.
    """
    waiting = _Wait(tasks, timeout, return_when)
    try:
        while not waiting.is_over() and waiting.inbox.wait():
            pass
        return waiting.sets()
    finally:
        waiting.inbox.close()


async def async_wait(tasks: Iterable[Any], timeout: units.Time | None = None,
                     return_when: str = ALL_COMPLETED) -> DoneAndNotDone:
    """Wait for tasks and futures in a coroutine; see `rp.wait`. Cancelling the coroutine cancels no task."""
    waiting = _Wait(tasks, timeout, return_when)
    try:
        while not waiting.is_over() and await waiting.inbox.arrival():
            pass
        return waiting.sets()
    finally:
        waiting.inbox.close()


class _Wait:
    """A wait for several items, and which of them have ended."""

    def __init__(self, items: Iterable[Any], timeout: units.Time | None, return_when: str) -> None:
        if return_when not in (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION):
            raise ValueError(f'return_when is {return_when!r}, allowed are: {ALL_COMPLETED}, {FIRST_COMPLETED}, '
                             f'{FIRST_EXCEPTION}')
        self.inbox = FutureInbox(items, timeout)
        self._done: set[Any] = set()
        self._when = return_when
        self._satisfied = False

    def is_over(self) -> bool:
        """Take out what has ended, and return whether that is enough."""
        while (item := self.inbox.take()) is not None:
            self._done.add(item)
            self._satisfied |= self._when == FIRST_COMPLETED or (self._when == FIRST_EXCEPTION and _has_failed(item))
        return self._satisfied or not self.inbox.pending

    def sets(self) -> DoneAndNotDone:
        """Return the sets of items that have ended, and of the others."""
        return DoneAndNotDone(self._done, set(self.inbox.pending))


def _has_failed(item: Any) -> bool:
    if isinstance(item, Future):
        return not item.cancelled() and item.exception() is not None
    return bool(item.state == states.FAILED)


class Completed(Generic[T]):
    """Iterates over tasks and futures in the order in which they end, with `for` or `async for`.

    After `timeout` seconds, counted from its creation, it raises `TimeoutError`.
    """

    def __init__(self, tasks: Iterable[T], timeout: units.Time | None = None) -> None:
        self._inbox = FutureInbox(tasks, timeout)
        self._total = len(self._inbox.pending)

    def __iter__(self) -> Completed[T]:
        return self

    def __next__(self) -> T:
        while (item := self._take(StopIteration)) is None:
            if not self._inbox.wait():
                raise self._timeout()
        return item

    def __aiter__(self) -> Completed[T]:
        return self

    async def __anext__(self) -> T:
        while (item := self._take(StopAsyncIteration)) is None:
            if not await self._inbox.arrival():
                raise self._timeout()
        return item

    def __del__(self) -> None:
        if hasattr(self, '_inbox'):   # no lock is taken: this may happen at any time
            self._inbox.close()

    def _take(self, end: type[Exception]) -> T | None:
        item: T | None = self._inbox.take()
        if item is None and not self._inbox.pending:
            raise end
        return item

    def _timeout(self) -> TimeoutError:
        return TimeoutError(f'{len(self._inbox.pending)} of {self._total} tasks and futures have not ended in time')


def as_completed(tasks: Iterable[T], timeout: units.Time | None = None) -> Completed[T]:
    """Return an iterator over tasks and futures in the order in which they end.

    It works with `for`, and in coroutines with `async for`.

    Args:
        tasks: Tasks, and futures of any kind of `concurrent.futures`, such as those of an `rp.raptor.Executor`; each
            is returned once.
        timeout: Seconds from now until all have to be done; default: no limit.

    Raises:
        TypeError: Something is neither a task nor a future.
        TimeoutError: By the iterator, if the timeout has passed.
        RuntimeError: By the iterator, if the session of a task was closed or has failed.
    """
    return Completed(tasks, timeout)


class FutureInbox:
    """Collects items as they end; the methods are called by the waiting thread or coroutine, unless they say so."""

    def __init__(self, items: Iterable[Any], timeout: units.Time | None) -> None:
        self.pending = dict.fromkeys(_checked(items))   # in this order, without doubles
        self.closed = False
        self._ended: deque[Any] = deque()
        self._error: BaseException | None = None
        self._deadline = _deadline(timeout)
        self._wake: Callable[[], object] = _nothing
        for item in list(self.pending):
            if isinstance(item, Future):
                self._follow(item)
            else:
                item._listen(self)

    def take(self) -> Any | None:
        """Return an item that has ended, or None; raise `RuntimeError` if the others can never end."""
        if self._ended:
            item = self._ended.popleft()
            self.pending.pop(item, None)
            return item
        if self._error is not None and self.pending:
            raise RuntimeError(str(self._error)) from self._error
        return None

    def wait(self) -> bool:
        """Wait until there is something to take; return False at the end of the timeout."""
        event = threading.Event()
        self._wake = event.set
        if not self._ready():
            wait_for_event(event, self._deadline - time.monotonic())
        return self._ready()

    async def arrival(self) -> bool:
        """Wait as `wait` does, in a coroutine."""
        import asyncio

        event = asyncio.Event()
        self._wake = _LoopWaker(asyncio.get_running_loop(), event)
        if not self._ready():
            left = None if self._deadline == math.inf else max(0.0, self._deadline - time.monotonic())
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(event.wait(), left)
        return self._ready()

    def close(self) -> None:
        """Drop everything, as no thread waits any more."""
        self.closed = True
        self._wake = _nothing
        self._ended.clear()
        self.pending.clear()

    def _ready(self) -> bool:
        return bool(self._ended or self._error)

    def _follow(self, future: Future[Any]) -> None:
        """Register with a future, which calls `add_...` below, as the waiters of `concurrent.futures` do."""
        with future._condition:
            if future._state in _ENDED:
                self.ended(future)
            else:
                waiters = [waiter for waiter in future._waiters if not getattr(waiter, 'closed', False)]
                future._waiters[:] = [*waiters, self]   # type: ignore[list-item]

    # called in the threads that end items

    def ended(self, item: Any) -> None:
        """Note that a task is final, or a future done."""
        if not self.closed:
            self._ended.append(item)
            self._wake()

    add_result = add_exception = add_cancelled = ended

    def broke(self, error: BaseException) -> None:
        """Note that tasks will not end, as their session has ended before them."""
        self._error = error
        self._wake()


def _nothing() -> None:
    pass


class _LoopWaker:
    """Sets an event of a loop, once for many items."""

    __slots__ = ('_called', '_event', '_loop')

    def __init__(self, loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
        self._loop = loop
        self._event = event
        self._called = False

    def __call__(self) -> None:
        if not self._called:
            self._called = True
            with suppress(RuntimeError):   # the loop was closed, so no coroutine waits
                self._loop.call_soon_threadsafe(self._event.set)


def _checked(items: Iterable[Any]) -> list[Any]:
    if not isinstance(items, Iterable):
        raise TypeError(f'a list of tasks and futures is needed, not {items!r}')
    found = list(items)
    for item in found:
        if not isinstance(item, Future) and not hasattr(item, '_listen'):
            hint = ': wait for it with asyncio' if hasattr(item, '__await__') else ''
            raise TypeError(f'tasks and futures of concurrent.futures can be waited for here, not {item!r}{hint}')
    return found


def _deadline(timeout: units.Time | None) -> float:
    seconds = units.limit(timeout)
    return math.inf if seconds is None else time.monotonic() + seconds
