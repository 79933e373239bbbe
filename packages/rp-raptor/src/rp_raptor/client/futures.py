"""The standard library's `concurrent.futures`, with calls that run on RAPTOR workers."""

from __future__ import annotations

import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from itertools import count, islice
from typing import Any

from rp_raptor.client.application_link import Master
from rp_raptor.client.caller import WINDOW, checked, open_caller
from rp_raptor.client.stream import checked_attributes, checked_masters
from rp_raptor.definitions import Definitions
from rp_raptor.errors import CallLost
from rp_raptor.wire.payload import decode_result, discard, encode_chunk, outcomes_of


class _Future(futures.Future[Any]):
    """A future that can be cancelled for as long as it has no result: the call is dropped, or interrupted."""

    def __init__(self, number: int, decode: Callable[[bytes], Any], drop: Callable[[int], object]) -> None:
        super().__init__()
        self.decode = decode
        self._number = number
        self._drop = drop

    def cancel(self) -> bool:
        if not super().cancel():
            return False
        self._drop(self._number)
        return True


class Executor(futures.Executor):
    """A `concurrent.futures.Executor` whose calls run at one or several masters, which may still have to start.

    `attributes` hold for each call: `timeout` in seconds, and what it needs, `ranks`, `cores`, `gpus`. What a call
    raises has the traceback of the worker as its `__cause__`. A call fails with CallLost if no master is left.
    """

    def __init__(self, masters: Master | Iterable[Master], **attributes: float) -> None:
        handles, needs = checked_masters(masters), checked_attributes(attributes)
        self._lock = threading.Lock()
        self._numbers = count()
        self._futures: dict[int, _Future] = {}
        self._shut = False
        self._caller = open_caller(handles, self._take_results, self._fail, needs, apart=True)
        self._definitions = Definitions(self._caller.define)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        """Have `fn(*args, **kwargs)` called; gives its future.

        SerializationError if the function or an argument cannot travel, RuntimeError after `shutdown`, and in a fork of
        the process that has made the executor.
        """
        self._caller.process.check()   # before anything is locked: another thread may have had it locked at the fork
        with self._lock:
            payload = self._definitions.encode(fn, args, kwargs)
        return self._start(payload, decode_result)

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None,
            chunksize: int = 1, buffersize: int | None = None) -> Iterator[Any]:
        """An iterator of `fn(*items)` for each tuple of items, in their order; chunks of `chunksize` go as one.

        The first `buffersize` calls (4096, or what is given) are made now and the others as results are taken, so
        that iterables can be endless. TimeoutError if a result is not there `timeout` seconds after this call. With
        an exception of a call, the iterator ends, and the calls that follow are cancelled.
        """
        window = WINDOW if buffersize is None else buffersize
        for name, value in {'chunksize': chunksize, 'buffersize': window}.items():
            if not isinstance(value, int) or value < 1:
                raise ValueError(f'{name} is a number from 1 on, not {value!r}')
        self._caller.process.check()
        with self._lock:
            fid = self._definitions.define(fn)
        started = self._start_chunks(fid, zip(*iterables, strict=False), chunksize)
        waiting = deque(islice(started, -(-window // chunksize)))
        return _in_order(started, waiting, None if timeout is None else time.monotonic() + timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls, and leave the masters when all results are there: wait for that if `wait` is true.

        With `cancel_futures`, calls without a result are cancelled, also those that run. Does nothing in a fork of the
        process that has made the executor.
        """
        if not self._caller.process.here:
            return
        with self._lock:
            self._shut = True
        left = list(self._futures.values())
        if cancel_futures:
            for future in left:
                future.cancel()
        if wait:
            futures.wait(left)
        if wait or not self._futures:
            self._caller.close()

    def _start(self, payload: bytes, decode: Callable[[bytes], Any]) -> _Future:
        checked(payload)
        with self._lock:
            if self._shut:
                raise RuntimeError('cannot schedule new futures after shutdown')
            number = next(self._numbers)
            future = self._futures[number] = _Future(number, decode, self._drop)
        self._caller.call(array('Q', [number]), [payload])
        return future

    def _start_chunks(self, fid: bytes, items: Iterator[tuple[Any, ...]], chunksize: int) -> Iterator[_Future]:
        """Make the calls of a map, chunk by chunk; results of futures are lists of payloads."""
        while chunk := [(args, None) for args in islice(items, chunksize)]:
            def decode(payload: bytes, number: int = len(chunk)) -> list[bytes]:
                return outcomes_of(payload, number)
            yield self._start(encode_chunk(fid, chunk), decode)

    def _drop(self, number: int) -> None:
        """A future was cancelled."""
        future = self._futures.pop(number, None)
        if future is not None:   # else a result has come at the same time
            future.set_running_or_notify_cancel()
            self._caller.cancel([number])
            self._leave_if_done()

    def _take_results(self, numbers: Sequence[int], payloads: list[bytes]) -> None:
        for number, payload in zip(numbers, payloads, strict=True):
            future = self._futures.pop(number, None)
            if future is None or not future.set_running_or_notify_cancel():
                discard(payload)
                continue
            try:
                value = future.decode(payload)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(value)
        self._leave_if_done()

    def _fail(self, numbers: Sequence[int], reason: str) -> None:
        for number in numbers:
            future = self._futures.pop(number, None)
            if future is not None and future.set_running_or_notify_cancel():
                future.set_exception(CallLost(reason))
        self._leave_if_done()

    def _leave_if_done(self) -> None:
        if self._shut and not self._futures:
            self._caller.close()


def _in_order(started: Iterator[_Future], waiting: deque[_Future], deadline: float | None) -> Iterator[Any]:
    """The results of a map; each one that is taken lets another call be made."""
    try:
        while waiting:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            outcomes = waiting[0].result(left)
            waiting.popleft()
            waiting.extend(islice(started, 1))
            for outcome in outcomes:
                yield decode_result(outcome)
    finally:
        for future in waiting:
            future.cancel()
