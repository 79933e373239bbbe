"""Streams: calls of one function for each item of an iterable, with a bounded number in flight."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from queue import Empty, Queue
from typing import Any

from rp_api import units
from rp_api.balancing.chunks import chunks
from rp_raptor.client.application_link import MasterSide
from rp_raptor.client.caller import WINDOW, Intake, is_local, open_caller
from rp_raptor.client.streamed import Call, UnderWay
from rp_raptor.errors import CallLost
from rp_raptor.objects.reference import Owned, taken
from rp_raptor.wire.payload import call_encoder, call_start, define, encode_chunk, outcomes_of, pickled_function
from rp_raptor.wire.protocol import ATTRIBUTES

_MAX_BYTES, _MIN_BYTES = 64 << 20, 16 << 20
"""Bytes of arguments in flight at which a stream makes no further call, whatever the window.

It is as little as ranks need, because memory that was used shortly before is in the caches of CPUs.
"""

_CALLS_PER_RANK = 8   # in flight, for which there are so many bytes

_MANY_BYTES = 1 << 20   # bytes of arguments in one message
_BULK = 512
_BATCH_DELAY = 0.004   # seconds that a call may wait for others to share its message

Outcomes = Sequence[bytes | Exception]


def stream(masters: MasterSide | Iterable[MasterSide], func: Callable[..., Any], iterable: Iterable[Any], *,
           window: int = WINDOW, chunksize: int = 1, **attributes: float) -> Iterator[Call]:
    """Call `func(item)` for each item at one or several masters, and yield the calls as they finish.

    Items are taken from the iterable as calls proceed. Nothing happens before the first call is requested from the
    iterator; closing it drops the calls in flight. A failed call is yielded as the others are and has an `exception`.

    Args:
        masters: One handle or several, as `submit_raptors()` returns them; the masters may still be starting.
        func: A function of one argument.
        iterable: The arguments; it may be endless.
        window: Calls at most that are in flight, or finished and not taken yet.
        chunksize: Calls that are sent and run as one; 1 for calls over several ranks.
        **attributes: Limits and resources of each call or chunk: `timeout`, `ranks`, `cores`, `gpus`.

    Returns:
        An iterator of finished calls, in any order. A call has `index` (the position of its item), `item`, `exception`
        and `result()`.

    Raises:
        TypeError: If something else than a master is given, or an attribute is unknown.
        ValueError: If no master is given, or a value is not allowed.
        SerializationError: If the function cannot be serialized.
        CallLost: By the iterator, if no master is left and there are more items.
        Exception: By the iterator, if the iterable raises it, after the calls before.
    """
    handles = checked_masters(masters)
    check_positive(window=window, chunksize=chunksize)
    pickled = pickled_function(func)
    needs = checked_attributes(attributes)
    size = chunksize if needs.get('ranks', 1) == 1 else 1
    return _Stream(pickled, iterable, window, size).run(handles, needs, taken())


def check_positive(**values: Any) -> None:
    """Raise ValueError unless the values are positive whole numbers."""
    for name, value in values.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f'{name} must be a whole number of at least 1, not {value!r}')


def checked_masters(masters: MasterSide | Iterable[MasterSide]) -> list[MasterSide]:
    """Return the masters as a list; TypeError or ValueError if there is none, or something else is among them."""
    found: list[Any] = list(masters) if isinstance(masters, Iterable) else [masters]
    if not found:
        raise ValueError('at least one master is needed')
    for master in found:
        if is_local(master):
            if len(found) > 1:
                raise ValueError(f'{master.uid} runs in this process: its calls cannot be shared with other masters')
        elif not all(hasattr(master, name) for name in ('uid', 'state', 'access')):
            raise TypeError(f'a master must be a handle that submit_raptors() returns, not {master!r:.80}')
        elif hasattr(master, 'check_process'):   # a fork of the application would never learn that the master is up
            master.check_process()
    return found


def checked_attributes(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes of calls; TypeError for an unknown name, ValueError for a value that is not allowed."""
    found = dict(attributes)
    if isinstance(found.get('timeout'), str | timedelta):
        found['timeout'] = units.limit(found['timeout'])
    for name, value in found.items():
        if name not in ATTRIBUTES:
            raise TypeError(f'{name!r} is not an attribute of a call: allowed are {", ".join(sorted(ATTRIBUTES))}')
        whole = name in ('ranks', 'cores')
        if type(value) not in ((int,) if whole else (int, float)) or value < whole:
            raise ValueError(f'{name} of a call must be a {"whole number of at least 1" if whole else "number"}, '
                             f'not {value!r}')
    return found


class _Stream:
    """The state of one stream: the results that have arrived.

    It does not refer to its calls: the caller refers to it, and calls refer to the caller. Objects of calls that are
    dropped are released without the cyclic collector.
    """

    def __init__(self, func: bytes, items: Iterable[Any], window: int, chunksize: int) -> None:
        self._func = func
        self._items = items
        self._chunksize = chunksize
        self._window = -(-window // chunksize)
        self._lost = ''
        # not a `SimpleQueue`: its `get` with a short timeout may block for ever (CPython 3.10 to 3.12)
        self._arrived: Queue[tuple[array[int], Outcomes]] = Queue()

    def run(self, masters: Sequence[MasterSide], attributes: Mapping[str, Any],
            objects: Sequence[Owned]) -> Iterator[Call]:
        """Yield the calls as they finish; the function refers to the objects."""
        caller = open_caller(masters, self._put, self._fail, attributes)
        try:
            caller.show(objects)
            calls = self._begin(caller)
            while True:
                self._send(calls, caller)
                if not calls.count:
                    break
                yield from self._finished(calls, *self._arrived.get())
                yield from self._more(calls, caller)
        finally:
            caller.close()
        calls.end()

    def _begin(self, caller: Intake) -> UnderWay:
        """Define the function, and prepare its calls."""
        fid, definition = define(self._func, caller.store.results)
        caller.define(fid, definition)
        if self._chunksize == 1:
            return UnderWay(enumerate(self._items), call_encoder(fid, caller.store), caller.show, call_start(fid))

        def encode(arguments: Sequence[list[Call]]) -> bytes:
            return encode_chunk(fid, [((call.item,), None) for call in arguments[0]], caller.store)
        return UnderWay(_chunks(self._items, self._chunksize), encode, caller.show)

    def _finished(self, calls: UnderWay, numbers: array[int], results: Outcomes) -> Iterator[Call]:
        """Return an iterator of the calls with these results."""
        return (calls.finished if self._chunksize == 1 else partial(_finish_chunks, calls))(numbers, results)

    def _more(self, calls: UnderWay, caller: Intake) -> Iterator[Call]:
        """Finish calls until there is room for a worthwhile message, or nothing arrives for `_BATCH_DELAY`."""
        limit = _limit(calls, caller)
        while not calls.exhausted and (self._window - calls.count < self._window // 8 or calls.size > limit * 3 // 4):
            try:
                arrived = self._arrived.get(timeout=_BATCH_DELAY)
            except Empty:
                return
            yield from self._finished(calls, *arrived)

    def _put(self, numbers: array[int], payloads: Sequence[bytes]) -> None:
        """Queue results; called in the caller's thread."""
        self._arrived.put((numbers, payloads))

    def _fail(self, numbers: Sequence[int], reason: str) -> None:
        """Fail calls, as no master is left."""
        self._lost = reason
        self._arrived.put((array('Q', numbers), [CallLost(reason)] * len(numbers)))

    def _send(self, calls: UnderWay, caller: Intake) -> None:
        """Make calls until the window is full or a result has arrived."""
        if self._lost and not calls.exhausted:
            if calls.count:
                return
            raise CallLost(self._lost)
        while not calls.exhausted and calls.count < self._window and calls.size < (limit := _limit(calls, caller)):
            numbers, payloads, failed = calls.take(min(_BULK, self._window - calls.count), _MANY_BYTES, limit,
                                                   _BATCH_DELAY)
            for number, error in failed:
                self._arrived.put((array('Q', [number]), [error]))
            if numbers:
                caller.call(numbers, payloads)
                if not self._arrived.empty():
                    return


def _limit(calls: UnderWay, caller: Intake) -> int:
    """Return the bytes of arguments at which no further call is made."""
    ranks = caller.ranks
    needed = _MAX_BYTES if ranks is None else _CALLS_PER_RANK * ranks * (calls.size // (calls.count or 1))
    return max(_MIN_BYTES, min(_MAX_BYTES, needed))


def _chunks(items: Iterable[Any], size: int) -> Iterator[tuple[int, list[Call]]]:
    """Yield the calls for the items in chunks; a chunk has the number of its first call."""
    for chunk in chunks(itertools.starmap(Call, enumerate(items)), size):
        if isinstance(chunk, Exception):
            raise chunk
        yield chunk[0].index, chunk


def _finish_chunks(under_way: UnderWay, numbers: array[int], results: Outcomes) -> Iterator[Call]:
    """Yield the calls of the chunks with those numbers, with their results."""
    for number, result in zip(numbers, results, strict=True):
        calls = under_way.pop(number).item
        _finish_chunk(calls, result)
        yield from calls


def _finish_chunk(calls: list[Call], result: bytes | Exception) -> None:
    outcomes: Sequence[bytes | Exception] = [result] * len(calls)
    if isinstance(result, bytes):
        try:
            outcomes = outcomes_of(result, len(calls))
        except Exception as error:
            outcomes = [error] * len(calls)
    for call, outcome in zip(calls, outcomes, strict=True):
        call.finish(outcome)
