"""A `concurrent.futures.Executor` whose calls run on RAPTOR workers."""

from __future__ import annotations

import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from itertools import count, islice
from typing import Any, NoReturn
from weakref import ReferenceType

from rp_api import pickles, units
from rp_api.balancing.chunks import chunks
from rp_api.errors import SerializationError
from rp_raptor.client.application_link import MasterSide
from rp_raptor.client.caller import WINDOW, Caller, checked, open_caller
from rp_raptor.client.stream import check_positive, checked_attributes, checked_masters
from rp_raptor.definitions import Definitions, PreparedDefinition
from rp_raptor.errors import CallLost
from rp_raptor.objects.reference import Owned, pending, taken
from rp_raptor.wire.large_calls import lease_of
from rp_raptor.wire.payload import decode_result, discard, encode_call, encode_chunk, outcomes_of
from rp_raptor.wire.store import Lease


class _Future(futures.Future[Any]):
    """A future that can be cancelled until it has a result: the call is dropped or interrupted."""

    def __init__(self, number: int, decode: Callable[[bytes], Any], drop: Callable[[int], object],
                 lease: Lease | None) -> None:
        super().__init__()
        self.decode = decode
        self.objects: tuple[Owned, ...] = ()   # that the arguments refer to
        self.lease = lease   # of files with arguments
        self._number = number
        self._drop = drop

    def __reduce__(self) -> NoReturn:
        pickles.refuse_future()

    def cancel(self) -> bool:
        """Cancel the call; False if it has a result."""
        if not super().cancel():
            return False
        self._drop(self._number)
        return True


class Executor(futures.Executor):
    """A `concurrent.futures.Executor` whose calls run on the workers of one or several masters.

    The exception of a call has the worker's traceback as its `__cause__`. A call fails with `CallLost` when no master
    is left that could run it.

    Args:
        masters: One handle or several, as `submit_raptors()` returns them; the masters may still be starting.
        **attributes: Limits and resources of each call: `timeout`, `ranks`, `cores`, `gpus`.

    Raises:
        TypeError: If something else than a master is given, or an attribute is unknown.
        ValueError: If no master is given, or the value of an attribute is not allowed.
    """
    def __init__(self, masters: MasterSide | Iterable[MasterSide], **attributes: float) -> None:
        handles, needs = checked_masters(masters), checked_attributes(attributes)
        self._wide = needs.get('ranks', 1) > 1
        self._lock = threading.Lock()
        self._numbers = count()
        self._futures: dict[int, _Future] = {}
        self._shut = False
        self.finished = 0   # the number of calls that have got a result
        self._on_idle: Callable[[], object] | None = None
        self._caller = open_caller(handles, self._take_results, self._fail, needs, apart=True)
        self._objects: dict[bytes, list[ReferenceType[Owned]]] = {}   # that defined functions refer to
        self._definitions = Definitions(self._define, self._caller.store)

    def submit(self, fn: Callable[..., Any] | PreparedDefinition, /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        """Schedule `fn(*args, **kwargs)` on a worker.

        Args:
            fn: The function, as it is now; it travels by reference or by value, as cloudpickle decides.
            *args: Positional arguments of the function.
            **kwargs: Keyword arguments of the function.

        Returns:
            The future of the result. It can be cancelled while the call runs. It fails with a `SerializationError` if
            the function or an argument cannot be serialized, or is too large.

        Raises:
            TypeError: If `fn` is not callable.
            RuntimeError: After `shutdown`, and in a fork of the process that made the executor.
        """
        self._caller.process.check()   # before anything is locked: another thread may have had it locked at the fork
        try:
            with self._lock:
                self._check_open()
                fid, payload = self._definitions.encode(fn, args, kwargs)
            objects = fn.objects if isinstance(fn, PreparedDefinition) else self._objects_of(fid)
            return self._start(payload, decode_result, objects)
        except SerializationError as error:
            return self._failed(error)

    def prepare(self, fn: Callable[..., Any]) -> PreparedDefinition:
        """Return a function as it is now, for `submit` at a later time; SerializationError if it has no such form."""
        with self._lock:
            prepared = self._definitions.prepare(fn)
            return prepared._replace(objects=taken() + self._objects_of(prepared.fid))

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: units.Time | None = None,
            chunksize: int = 1, buffersize: int | None = None) -> Iterator[Any]:
        """Call `fn(*items)` for each tuple of items, and yield the results in the order of the items.

        The first `buffersize` calls are made now and the others as results are taken, so that iterables may be endless.
        When a call raises, the iterator raises the same and ends, and later calls are cancelled. What an iterable
        raises comes after the results of the calls before.

        Args:
            fn: The function.
            *iterables: The arguments; the shortest iterable ends the map.
            timeout: Seconds from now until all results have to be there; None for no limit.
            chunksize: Calls that are sent and run as one; 1 for calls over several ranks.
            buffersize: Calls in flight at most, 4096 by default.

        Returns:
            An iterator of the results.

        Raises:
            TimeoutError: By the iterator, if a result is missing at the end of `timeout`.
            SerializationError: By the iterator, if the function or an argument cannot be serialized, or is too large.
            ValueError: If `chunksize` or `buffersize` is not a positive number.
            RuntimeError: As for `submit`.
        """
        seconds = units.limit(timeout)
        window = WINDOW if buffersize is None else buffersize
        check_positive(chunksize=chunksize, buffersize=window)
        self._caller.process.check()
        try:
            with self._lock:
                fid = self._definitions.define(fn)
                objects = taken() + self._objects_of(fid)
        except SerializationError as error:
            return _in_order(iter(()), deque([self._failed(error)]), None)
        if self._wide:
            chunksize = 1
        started = self._start_chunks(fid, zip(*iterables, strict=False), chunksize, objects)
        waiting = deque(islice(started, -(-window // chunksize)))
        return _in_order(started, waiting, None if seconds is None else time.monotonic() + seconds)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further calls, and disconnect from the masters when all results have arrived.

        Does nothing in a fork of the process that made the executor.

        Args:
            wait: Return only when all results have arrived.
            cancel_futures: Cancel all calls without a result, running ones included.
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

    @property
    def unfinished(self) -> int:
        """The number of calls without a result."""
        return len(self._futures)

    def on_idle(self, callback: Callable[[], object]) -> None:
        """Call `callback`, in a thread of the executor, whenever the last call without a result has got one."""
        self._on_idle = callback

    def hold(self, idle: Callable[[], object]) -> None:
        """Hold calls until `release`. Those that no rank has started return; those that run finish.

        Afterwards no worker has a call, and workers can be ended without a loss.

        Args:
            idle: Called once, in a thread of the executor, when no call runs any more.

        Raises:
            RuntimeError: The master runs in this process.
        """
        self._elsewhere().hold(idle)

    def release(self) -> None:
        """Start calls again, after `hold`."""
        self._elsewhere().release()

    def abandon(self, error: BaseException) -> None:
        """Fail all calls without a result with an error, running ones included."""
        numbers = list(self._futures)
        self._caller.cancel(numbers)
        self._fail_all(numbers, error)

    def _elsewhere(self) -> Caller:
        if not isinstance(self._caller, Caller):
            raise RuntimeError('calls of a master in its own process cannot be held')
        return self._caller

    def _start(self, payload: bytes, decode: Callable[[bytes], Any], objects: tuple[Owned, ...]) -> _Future:
        """Make a call of a function that refers to the objects."""
        checked(payload)
        lease = lease_of(payload)
        with self._lock:
            self._check_open()
            number = next(self._numbers)
            future = self._futures[number] = _Future(number, decode, self._drop, lease)
        if pending:
            objects += taken()
        if objects:
            future.objects = objects
            self._caller.show(objects)
        self._caller.call(array('Q', [number]), [bytes(payload)])
        return future

    def _check_open(self) -> None:
        if self._shut:
            raise RuntimeError('cannot schedule new futures after shutdown')

    def _start_chunks(self, fid: bytes, items: Iterator[tuple[Any, ...]], chunksize: int,
                      objects: tuple[Owned, ...]) -> Iterator[_Future]:
        """Make the calls of a map in chunks, or one by one over several ranks, which run no chunks.

        The result of each future is a list of payloads. A future fails if its chunk cannot be encoded, and the last one
        if the items raise an exception.
        """
        store = self._caller.store
        for chunk in chunks(((args, None) for args in items), chunksize):
            if isinstance(chunk, Exception):
                yield self._failed(chunk)
                return

            def decode(payload: bytes, number: int = len(chunk)) -> list[bytes]:
                return [payload] if self._wide else outcomes_of(payload, number)
            self._check_open()
            try:
                call = encode_call(fid, chunk[0][0], None, store) if self._wide else encode_chunk(fid, chunk, store)
                yield self._start(call, decode, objects)
            except SerializationError as error:
                yield self._failed(error)

    def _failed(self, error: BaseException) -> _Future:
        """Return the future of a call that cannot be made."""
        future = _Future(next(self._numbers), decode_result, self._drop, None)
        future.set_exception(error)
        return future

    def _define(self, fid: bytes, blob: bytes) -> None:
        objects = taken()
        if objects:
            self._objects[fid] = [owned.weak for owned in objects]
        self._caller.define(fid, blob)

    def _objects_of(self, fid: bytes | None) -> tuple[Owned, ...]:
        """Return the objects that a defined function refers to, as far as there are references to them."""
        found = self._objects.get(fid, ()) if fid else ()
        return tuple(owned for weak in found if (owned := weak()) is not None)

    def _take_out(self, number: int) -> _Future | None:
        """Return the future of a call that is over, whose objects and files are kept no longer; None if cancelled."""
        future = self._futures.pop(number, None)
        if future is None:
            return None
        future.objects, future.lease = (), None
        return future if future.set_running_or_notify_cancel() else None

    def _drop(self, number: int) -> None:
        """Drop the call of a cancelled future."""
        if number in self._futures:   # otherwise a result has arrived at the same time
            self._take_out(number)
            self._caller.cancel([number])
            self._leave_if_done()

    def _take_results(self, numbers: Sequence[int], payloads: Sequence[bytes]) -> None:
        if not numbers:   # the number of ranks has changed
            return
        self.finished += len(numbers)
        for number, payload in zip(numbers, payloads, strict=True):
            future = self._take_out(number)
            if future is None:
                discard(payload)
                continue
            try:
                value = future.decode(payload)
            except BaseException as error:
                future.set_exception(error.with_traceback(None))   # which would refer to the future
            else:
                future.set_result(value)
        self._leave_if_done()

    def _fail(self, numbers: Sequence[int], reason: str) -> None:
        self._fail_all(numbers, CallLost(reason))

    def _fail_all(self, numbers: Iterable[int], error: BaseException) -> None:
        for number in numbers:
            future = self._take_out(number)
            if future is not None:
                future.set_exception(error)
        self._leave_if_done()

    def _leave_if_done(self) -> None:
        if self._futures:
            return
        if self._on_idle is not None:
            self._on_idle()
        if self._shut:
            self._caller.close()


def _in_order(started: Iterator[_Future], waiting: deque[_Future], deadline: float | None) -> Iterator[Any]:
    """Yield the results of a map; each one taken makes room for another call."""
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
