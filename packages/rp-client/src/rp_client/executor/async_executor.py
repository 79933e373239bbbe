"""`rp.aio.Executor`: the executor for coroutines."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, NoReturn

from rp_api import pickles
from rp_client.executor.executor import Executor as _Executor
from rp_client.executor.executor import Requests as _Requests
from rp_client.executor.executor import started


class AwaitableFuture(Future[Any]):
    """The future of a call or program, which can be awaited; cancelling the coroutine that waits cancels it."""

    def __init__(self, source: Future[Any]) -> None:
        super().__init__()
        self._source = source
        source.add_done_callback(self._copy)

    @property
    def task(self) -> Any:
        """The task that runs the program, or the RAPTOR master that has the call; None before it was submitted."""
        return getattr(self._source, 'task', None)

    @property
    def stdout(self) -> str:
        """The standard output of the call or program, once it is done."""
        return getattr(self._source, 'stdout', '')

    @property
    def stderr(self) -> str:
        """Its standard error."""
        return getattr(self._source, 'stderr', '')

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self).__await__()

    def __reduce__(self) -> NoReturn:
        pickles.refuse_future()

    def cancel(self) -> bool:
        """Cancel the call or program, also if it runs; False if it has a result."""
        return self._source.cancel()

    def running(self) -> bool:
        """Return whether the call or program runs."""
        return self._source.running()

    def _copy(self, source: Future[Any]) -> None:
        if source.cancelled():
            super().cancel()
            self.set_running_or_notify_cancel()
            return
        error = source.exception()
        if error is None:
            self.set_result(source.result())
        else:
            self.set_exception(error)


class AsyncRequests:
    """Calls and programs with certain requirements, see `Executor.options`."""

    def __init__(self, requests: _Requests) -> None:
        self._requests = requests

    def options(self, **requirements: Any) -> AsyncRequests:
        """Return an executor with other requirements of its calls and programs, see `rp.Executor.options`."""
        return AsyncRequests(self._requests.options(**requirements))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> AwaitableFuture:
        """Call `fn(*args, **kwargs)` on a worker of the pilot, see `rp.Executor.submit`; the future can be awaited."""
        return AwaitableFuture(self._requests.submit(fn, *args, **kwargs))

    def run(self, executable: Any, /, *args: Any, check: bool = True, **attributes: Any) -> AwaitableFuture:
        """Run a program on the pilot, see `rp.Executor.run`; the future of its `TaskResult` can be awaited."""
        return AwaitableFuture(self._requests.run(executable, *args, check=check, **attributes))

    async def map(self, fn: Callable[..., Any], *iterables: Iterable[Any],
                  buffersize: int | None = None) -> AsyncIterator[Any]:
        """Call `fn(*items)` for each tuple of items, and yield the results in the order of the items.

        When a call raises, the iterator raises the same and ends. Later calls are cancelled then, and when the iterator
        is closed. What an iterable raises comes after the results of the calls before.

        Args:
            fn: The function.
            *iterables: The arguments; the shortest iterable ends the map.
            buffersize: Calls that are made ahead of the results that were taken; default: all.

        Raises:
            ValueError: `buffersize` is less than 1.
        """
        if buffersize is not None and buffersize < 1:
            raise ValueError(f'buffersize must be at least 1, not {buffersize!r}')
        made = map(AwaitableFuture, started(partial(self._requests.submit, fn), zip(*iterables, strict=False), 1))
        waiting = deque(islice(made, buffersize))
        try:
            while waiting:
                value = await waiting[0]
                waiting.popleft()
                waiting.extend(islice(made, 1))
                yield value
        finally:
            for future in waiting:
                future.cancel()


class AsyncExecutor(AsyncRequests):
    """Runs Python functions, executables and MPI programs on a pilot, for coroutines.

        async with rp.aio.Executor(cores=4) as ex:
            f = ex.submit(fn, 3)
            g = ex.run('./simulate', '--seed', 7, ranks=2)
            print(await ex.submit(analyse, f, g))

    Futures are those of `concurrent.futures`, and can be awaited. The session opens with the `async with` statement; at
    its end, the executor waits for all calls and programs, or cancels them if the coroutine was cancelled.

    Args:
        **options: The arguments of `rp.Executor`.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument has a value that is not allowed.
    """

    def __init__(self, **options: Any) -> None:
        self._executor = _Executor(**options)
        super().__init__(self._executor)

    async def shutdown(self, *, cancel_futures: bool = False) -> None:
        """Take no further calls and programs, and end everything when these are done.

        Args:
            cancel_futures: Cancel calls and programs that have not started.
        """
        await asyncio.to_thread(self._executor.shutdown, cancel_futures=cancel_futures)

    async def __aenter__(self) -> AsyncExecutor:
        await asyncio.to_thread(self._executor._manager.open)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        ending = asyncio.ensure_future(asyncio.to_thread(self._executor.__exit__, kind, error, trace))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:   # while it waits for calls and programs
            with suppress(Exception):
                await asyncio.to_thread(self._executor._manager.abort)
            await ending
            raise
