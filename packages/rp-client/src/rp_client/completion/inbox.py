"""The inbox of a wait: collects tasks and futures as they end, for a thread or a coroutine that takes them out.

Each item costs the same, however many there are. Nothing is removed from a task or future when a wait ends: what is
closed is dropped by the next wait for the same task or future.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from numbers import Real
from typing import TYPE_CHECKING, Any

from rp_client.engine.waiting import wait_for_event

if TYPE_CHECKING:
    import asyncio

_ENDED = ('FINISHED', 'CANCELLED_AND_NOTIFIED')
"""States of a future that is done, as `concurrent.futures.wait` has them: who cancels a future ends it later."""


class Inbox:
    """Collects items as they end; the methods are called by the waiting thread or coroutine, unless they say so."""

    def __init__(self, items: Iterable[Any], timeout: float | None) -> None:
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
        """Have a future call `add_...` below, as the waiters of `concurrent.futures` do."""
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


def _deadline(timeout: float | None) -> float:
    if not isinstance(timeout, Real | None):
        raise TypeError(f'timeout is {timeout!r}, it must be a number of seconds, or None for no limit')
    return math.inf if timeout is None else time.monotonic() + timeout
