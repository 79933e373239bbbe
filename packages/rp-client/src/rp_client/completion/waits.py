"""Waiting for several tasks and futures: `rp.wait` and `rp.as_completed`, and the same in coroutines."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION, Future
from typing import Any, Generic, NamedTuple, TypeVar

from rp_api import states
from rp_client.completion.inbox import Inbox

T = TypeVar('T')


class DoneAndNotDone(NamedTuple):
    """The tasks and futures that are done, and the others."""

    done: set[Any]
    not_done: set[Any]


def wait(tasks: Iterable[Any], timeout: float | None = None, return_when: str = ALL_COMPLETED) -> DoneAndNotDone:
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


async def async_wait(tasks: Iterable[Any], timeout: float | None = None,
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

    def __init__(self, items: Iterable[Any], timeout: float | None, return_when: str) -> None:
        if return_when not in (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION):
            raise ValueError(f'return_when is {return_when!r}, allowed are: {ALL_COMPLETED}, {FIRST_COMPLETED}, '
                             f'{FIRST_EXCEPTION}')
        self.inbox = Inbox(items, timeout)
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

    def __init__(self, tasks: Iterable[T], timeout: float | None = None) -> None:
        self._inbox = Inbox(tasks, timeout)
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


def as_completed(tasks: Iterable[T], timeout: float | None = None) -> Completed[T]:
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
