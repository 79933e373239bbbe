"""Calls that a master's own code makes, in the same way as an application does."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from rp_api.mesh.loop import Loop
from rp_raptor.caller import WINDOW, Caller
from rp_raptor.exchange import Exchange
from rp_raptor.lanes import Lane

Results = Callable[['array[int]', list[bytes]], object]
Failed = Callable[[Sequence[int], str], object]


class LocalCaller:
    """Makes calls in the master itself, where `rp_raptor.caller.Caller` does so for an application.

    In the loop's thread, `on_results(numbers, payloads)` is called with results, and `on_failed(numbers, reason)` with
    calls that will have none. The methods up to `end` can be called from any thread.
    """

    def __init__(self, loop: Loop, exchange: Exchange, deal_soon: Callable[[], object], on_results: Results,
                 on_failed: Failed, attributes: Mapping[str, Any] | None,
                 closed: Callable[[LocalCaller], object]) -> None:
        self._loop = loop
        self._closed = closed
        self._exchange = exchange
        self._deal_soon = deal_soon
        self._on_results = on_results
        self._on_failed = on_failed
        self._attributes = dict(attributes or {})
        self._numbers = array('Q')          # of calls that the loop has yet to take
        self._payloads: list[bytes] = []
        self._unwanted: list[int] = []
        self._lock = threading.Lock()
        self._lane: Lane | None = None
        self._over = ''
        loop.call_soon(self._open)

    def define(self, fid: bytes, blob: bytes) -> None:
        """Let the workers know a function, to which the calls that follow can refer."""
        self._loop.call_soon(self._define, fid, blob)

    def call(self, numbers: array[int], payloads: list[bytes]) -> None:
        """Make calls, each with a number that was never used before."""
        with self._lock:
            over, idle = self._over, not self._numbers
            if not over:
                self._numbers.extend(numbers)
                self._payloads.extend(payloads)
        if over:
            self._on_failed(numbers, over)
        elif idle:
            self._loop.call_soon(self._take_fresh)

    def cancel(self, numbers: Sequence[int]) -> None:
        """Have calls dropped or interrupted; their results, which still come, are not passed on any more."""
        with self._lock:
            idle = not self._unwanted
            self._unwanted.extend(numbers)
        if idle:
            self._loop.call_soon(self._cancel)

    def close(self) -> None:
        """Drop what has no result yet."""
        self._loop.call_soon(self._close)

    def end(self, reason: str) -> None:
        """No call has a result any more, now or later."""
        with self._lock:
            self._over = reason
        numbers, _ = self._fresh()
        if numbers:
            self._on_failed(numbers, reason)

    # what the exchange tells

    def started(self, ids: array[int]) -> None:
        """Nothing that anybody waits for."""

    def results(self, ids: array[int], payloads: list[bytes]) -> None:
        """Pass results on."""
        self._on_results(ids, payloads)

    # in the loop

    def _open(self) -> None:
        self._lane = self._exchange.open(self)

    def _define(self, fid: bytes, blob: bytes) -> None:
        if self._lane is not None:
            self._exchange.define(self._lane, fid, blob)

    def _take_fresh(self) -> None:
        numbers, payloads = self._fresh()
        if self._lane is not None and numbers:
            attributes = dict.fromkeys(numbers, self._attributes) if self._attributes else None
            self._exchange.calls(self._lane, numbers, payloads, attributes)
            self._deal_soon()

    def _fresh(self) -> tuple[array[int], list[bytes]]:
        with self._lock:
            fresh = self._numbers, self._payloads
            self._numbers, self._payloads = array('Q'), []
        return fresh

    def _cancel(self) -> None:
        self._take_fresh()   # they may be among these
        with self._lock:
            numbers, self._unwanted = self._unwanted, []
        if self._lane is not None:
            self._exchange.cancel(self._lane, numbers)

    def _close(self) -> None:
        if self._lane is not None:
            self._exchange.close(self._lane)
            self._lane = None
            self._closed(self)


AnyCaller: TypeAlias = Caller | LocalCaller


def is_local(master: object) -> bool:
    """Whether this is a master that runs in this process."""
    return hasattr(master, 'open_caller')


def open_caller(masters: Sequence[Any], on_results: Results, on_failed: Failed,
                attributes: Mapping[str, Any] | None = None, *, window: int = WINDOW, apart: bool = False) -> AnyCaller:
    """A way to make calls at masters: one that runs in this process, or any others (see `Caller`).

    With `apart`, results and failures are told in a thread that may wait for something.
    """
    if is_local(masters[0]):
        caller: LocalCaller = masters[0].open_caller(on_results, on_failed, attributes, apart)
        return caller
    return Caller(masters, on_results, on_failed, attributes, window)
