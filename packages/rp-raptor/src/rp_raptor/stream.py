"""Calls of one function for everything that an iterable gives, of which only a window exists at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from queue import SimpleQueue
from typing import Any

from rp_raptor.application_link import Master
from rp_raptor.caller import WINDOW, checked
from rp_raptor.errors import CallLost
from rp_raptor.local import AnyCaller, is_local, open_caller
from rp_raptor.payload import call_encoder, decode_result, define, encode_chunk, outcomes_of
from rp_raptor.protocol import ATTRIBUTES

_BYTES = 64 << 20
"""Bytes of arguments under way from which on a stream makes no further call, whatever the window."""

_MANY_BYTES = 1 << 20   # of arguments that go out together
_BULK = 512
_PATIENCE = 0.002   # seconds that a call may wait for others to go out with it

Arrived = tuple[Sequence[int], list[bytes] | Exception]


class Call:
    """A call that was made: `item` is its argument, `index` the position of that in the iterable."""

    __slots__ = ('_error', '_value', 'index', 'item')

    def __init__(self, index: int, item: Any) -> None:
        self.index = index
        self.item = item
        self._value: Any = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f'<Call {self.index} {"failed" if self._error else "done"}>'

    @property
    def exception(self) -> BaseException | None:
        """What the call has raised, with the traceback of the worker as its `__cause__`; None if it has not."""
        return self._error

    def result(self) -> Any:
        """What the call has returned; raises what it has raised."""
        if self._error is not None:
            raise self._error
        return self._value

    def finish(self, result: bytes | Exception) -> None:
        """Take the result, or the reason why there is none."""
        if isinstance(result, bytes):
            try:
                self._value = decode_result(result)
            except Exception as error:
                self._error = error.with_traceback(None)
        else:
            self._error = result


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
    return _Stream(fid, enumerate(iterable), window, chunksize).run(handles, blob, checked_attributes(attributes))


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

    def __init__(self, fid: bytes, items: Iterator[tuple[int, Any]], window: int, chunksize: int) -> None:
        self._fid = fid
        self._items = items
        self._window = window
        self._chunksize = chunksize
        self._exhausted = False
        self._lost = ''
        self._take = self._take_calls if chunksize == 1 else self._take_chunk
        self._encode = call_encoder(fid)
        # what went as one, by its number, and the size of the arguments
        self._sent: dict[int, tuple[Call | list[Call], int]] = {}
        self._calls = self._bytes = 0                        # of those that were sent
        self._arrived: SimpleQueue[Arrived] = SimpleQueue()

    def run(self, masters: Sequence[Master], blob: bytes, attributes: Mapping[str, Any]) -> Iterator[Call]:
        """The calls, as they finish."""
        caller = open_caller(masters, self._put, self._fail, attributes, window=-(-self._window // self._chunksize))
        try:
            caller.define(self._fid, blob)
            while True:
                self._send(caller)
                if not self._sent:
                    return
                yield from self._finished(*self._arrived.get())
        finally:
            caller.close()

    def _put(self, numbers: Sequence[int], payloads: list[bytes]) -> None:
        """Take results, in the caller's thread."""
        self._arrived.put((numbers, payloads))

    def _fail(self, numbers: Sequence[int], reason: str) -> None:
        """No master is left."""
        self._lost = reason
        self._arrived.put((numbers, CallLost(reason)))

    def _send(self, caller: AnyCaller) -> None:
        """Make calls until the window is full, or until somebody waits for what has arrived."""
        if self._lost and not self._exhausted:
            if self._sent:
                return
            raise CallLost(self._lost)
        while not self._exhausted and self._calls < self._window and self._bytes < _BYTES:
            fresh = self._take(min(_BULK, self._window - self._calls))
            if fresh:
                caller.call(fresh)
                if not self._arrived.empty():
                    return

    def _take_calls(self, most: int) -> list[tuple[int, bytes]]:
        """The next calls, ready to be sent: at most that many, and what there is within `_PATIENCE`."""
        fresh: list[tuple[int, bytes]] = []
        encode, sent, size, made = self._encode, self._sent, 0, 0
        until = time.monotonic() + _PATIENCE
        for made, (index, item) in enumerate(self._items, 1):
            try:
                payload = checked(encode((item,)))
                fresh.append((index, payload))
            except Exception as error:   # this call fails, and not the whole stream
                payload = b''
                self._arrived.put(([index], error))
            sent[index] = Call(index, item), len(payload)
            size += len(payload)
            if made >= most or size >= _MANY_BYTES or time.monotonic() > until:
                break
        else:
            self._exhausted = True
        self._calls += made
        self._bytes += size
        return fresh

    def _take_chunk(self, _: int) -> list[tuple[int, bytes]]:
        """The next chunk of calls, which go as one under the number of the first."""
        calls = [Call(index, item) for index, item in islice(self._items, self._chunksize)]
        if len(calls) < self._chunksize:
            self._exhausted = True
        if not calls:
            return []
        number, payload = calls[0].index, b''
        try:
            payload = checked(encode_chunk(self._fid, [((call.item,), None) for call in calls]))
        except Exception as error:
            self._arrived.put(([number], error))
        self._sent[number] = calls, len(payload)
        self._calls += len(calls)
        self._bytes += len(payload)
        return [(number, payload)] if payload else []

    def _finished(self, numbers: Sequence[int], what: list[bytes] | Exception) -> Iterator[Call]:
        """The calls of those numbers, with the results that have arrived."""
        results: Iterable[bytes | Exception] = [what] * len(numbers) if isinstance(what, Exception) else what
        for number, result in zip(numbers, results, strict=True):
            call, size = self._sent.pop(number)
            self._bytes -= size
            if isinstance(call, Call):
                call.finish(result)
                yield call
                self._calls -= 1
            else:
                _finish_chunk(call, result)
                for each in call:
                    yield each
                    self._calls -= 1


def _finish_chunk(calls: list[Call], result: bytes | Exception) -> None:
    outcomes: Sequence[bytes | Exception] = [result] * len(calls)
    if isinstance(result, bytes):
        try:
            outcomes = outcomes_of(result, len(calls))
        except Exception as error:
            outcomes = [error] * len(calls)
    for call, outcome in zip(calls, outcomes, strict=True):
        call.finish(outcome)
