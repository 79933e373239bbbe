"""Calls of one function for everything that an iterable gives, of which only a window exists at any moment."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from queue import Empty, Queue
from typing import Any

from rp_raptor.client.application_link import Master
from rp_raptor.client.call_intake import Intake
from rp_raptor.client.caller import WINDOW, is_local, open_caller
from rp_raptor.client.streamed import Call, UnderWay
from rp_raptor.errors import CallLost
from rp_raptor.wire.payload import call_encoder, define, encode_chunk, outcomes_of
from rp_raptor.wire.protocol import ATTRIBUTES

_BYTES = 64 << 20
"""Bytes of arguments under way from which on a stream makes no further call, whatever the window."""

_MANY_BYTES = 1 << 20   # of arguments that go out together
_BULK = 512
_BATCH_DELAY = 0.004   # seconds that a call may wait for others to go out with it

Outcomes = Sequence[bytes | Exception]


def stream(masters: Master | Iterable[Master], func: Callable[[Any], Any], iterable: Iterable[Any], *,
           window: int = WINDOW, chunksize: int = 1, **attributes: float) -> Iterator[Call]:
    """Call `func(item)` at one or several masters for each item; gives the calls as they finish.

    Items are taken from the iterable as the calls proceed: at most `window` calls are under way or finished and not
    taken yet. With a `chunksize`, that many calls go as one. `attributes` hold for each call (or chunk): `timeout` in
    seconds, and what it needs, `ranks`, `cores`, `gpus`. A call that fails is among the others and says so; CallLost
    is raised only when no master is left and there are more items. Nothing happens before the first call is asked for;
    what is under way when the iterator is closed is dropped.
    """
    handles = checked_masters(masters)
    for name, value in {'window': window, 'chunksize': chunksize}.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f'{name} is a number from 1 on, not {value!r}')
    fid, blob = define(func)
    return _Stream(fid, iterable, window, chunksize).run(handles, blob, checked_attributes(attributes))


def checked_masters(masters: Master | Iterable[Master]) -> list[Master]:
    """The masters as a list; TypeError or ValueError if there are none or something else is among them."""
    found: list[Any] = list(masters) if isinstance(masters, Iterable) else [masters]
    if not found:
        raise ValueError('at least one master is needed')
    for master in found:
        if is_local(master):
            if len(found) > 1:
                raise ValueError(f'{master.uid} runs in this process: its calls cannot be shared with other masters')
        elif not all(hasattr(master, name) for name in ('uid', 'state', 'access')):
            raise TypeError(f'a master is what submit_raptors() gives, not {master!r:.80}')
        elif hasattr(master, 'check_process'):   # in a fork of the application, nobody would tell that it is up
            master.check_process()
    return found


def checked_attributes(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes of calls; TypeError for unknown ones, ValueError for a value that is not allowed."""
    for name, value in attributes.items():
        if name not in ATTRIBUTES:
            raise TypeError(f'{name!r} is no attribute of a call: allowed are {", ".join(sorted(ATTRIBUTES))}')
        whole = name in ('ranks', 'cores')
        if type(value) not in ((int,) if whole else (int, float)) or value < whole:
            raise ValueError(f'{name} of a call is a {"number from 1 on" if whole else "number"}, not {value!r}')
    return attributes


class _Stream:
    """What is under way of a stream."""

    def __init__(self, fid: bytes, items: Iterable[Any], window: int, chunksize: int) -> None:
        self._fid = fid
        self._window = -(-window // chunksize)
        self._lost = ''
        if chunksize == 1:
            self._calls = UnderWay(enumerate(items), call_encoder(fid))
            self._finished: Callable[[array[int], Outcomes], Iterator[Call]] = self._calls.finished
        else:
            self._calls = UnderWay(_chunks(items, chunksize), self._encode_chunk)
            self._finished = self._finish_chunks
        # not a `SimpleQueue`, which at times waits for ever when it is to wait for a moment (CPython 3.10 to 3.12)
        self._arrived: Queue[tuple[array[int], Outcomes]] = Queue()

    def run(self, masters: Sequence[Master], blob: bytes, attributes: Mapping[str, Any]) -> Iterator[Call]:
        """The calls, as they finish."""
        caller = open_caller(masters, self._put, self._fail, attributes, window=self._window)
        try:
            caller.define(self._fid, blob)
            while True:
                self._send(caller)
                if not self._calls.count:
                    return
                yield from self._finished(*self._arrived.get())
                yield from self._more()
        finally:
            caller.close()

    def _more(self) -> Iterator[Call]:
        """What arrives before there is room for calls enough to be worth a message, or within `_BATCH_DELAY`."""
        while not self._calls.exhausted and self._window - self._calls.count < self._window // 8:
            try:
                arrived = self._arrived.get(timeout=_BATCH_DELAY)
            except Empty:
                return
            yield from self._finished(*arrived)

    def _put(self, numbers: array[int], payloads: list[bytes]) -> None:
        """Take results, in the caller's thread."""
        self._arrived.put((numbers, payloads))

    def _fail(self, numbers: Sequence[int], reason: str) -> None:
        """No master is left."""
        self._lost = reason
        self._arrived.put((array('Q', numbers), [CallLost(reason)] * len(numbers)))

    def _send(self, caller: Intake) -> None:
        """Make calls until the window is full, or until somebody waits for what has arrived."""
        calls = self._calls
        if self._lost and not calls.exhausted:
            if calls.count:
                return
            raise CallLost(self._lost)
        while not calls.exhausted and calls.count < self._window and calls.size < _BYTES:
            numbers, payloads, failed = calls.take(min(_BULK, self._window - calls.count), _MANY_BYTES, _BATCH_DELAY)
            for number, error in failed:
                self._arrived.put((array('Q', [number]), [error]))
            if numbers:
                caller.call(numbers, payloads)
                if not self._arrived.empty():
                    return

    def _encode_chunk(self, arguments: Sequence[list[Call]]) -> bytes:
        return encode_chunk(self._fid, [((call.item,), None) for call in arguments[0]])

    def _finish_chunks(self, numbers: array[int], results: Outcomes) -> Iterator[Call]:
        """The calls of the chunks of those numbers, with the results that have arrived."""
        for number, result in zip(numbers, results, strict=True):
            calls = self._calls.pop(number).item
            _finish_chunk(calls, result)
            yield from calls


def _chunks(items: Iterable[Any], size: int) -> Iterator[tuple[int, list[Call]]]:
    """The calls for the items in chunks, each of which goes as one under the number of its first call."""
    calls = itertools.starmap(Call, enumerate(items))
    while chunk := list(itertools.islice(calls, size)):
        yield chunk[0].index, chunk


def _finish_chunk(calls: list[Call], result: bytes | Exception) -> None:
    outcomes: Sequence[bytes | Exception] = [result] * len(calls)
    if isinstance(result, bytes):
        try:
            outcomes = outcomes_of(result, len(calls))
        except Exception as error:
            outcomes = [error] * len(calls)
    for call, outcome in zip(calls, outcomes, strict=True):
        call.finish(outcome)
