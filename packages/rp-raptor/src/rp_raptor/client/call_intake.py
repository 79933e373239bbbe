"""Calls that any thread makes, on their way to a loop: what a caller is, wherever its calls go."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rp_api.loop.event_loop import Loop
from rp_api.system.owner_process import OwnerProcess

Definitions = list[tuple[bytes, bytes]]
Results = Callable[['array[int]', list[bytes]], object]
Failed = Callable[[Sequence[int], str], object]


class Intake(ABC):
    """Takes functions, calls and cancellations from any thread, and gives them to `_take` and `_drop` in the loop's.

    `on_results(numbers, payloads)` is told results, `on_failed(numbers, reason)` which calls will have none;
    `attributes` go with each call, see `rp_raptor.wire.protocol`. A fork of its process can make no calls.
    """

    def __init__(self, loop: Loop, on_results: Results, on_failed: Failed,
                 attributes: Mapping[str, Any] | None) -> None:
        self.process = OwnerProcess('this connection to RAPTOR masters')
        self._loop = loop
        self._on_results = on_results
        self._on_failed = on_failed
        self._attributes = dict(attributes) if attributes else None
        self._definitions: Definitions = []
        self._numbers = array('Q')          # of calls that the loop has yet to take
        self._payloads: list[bytes] = []
        self._unwanted: list[int] = []
        self._over = ''                     # why no call has a result any more
        self._lock = threading.Lock()

    def define(self, fid: bytes, blob: bytes) -> None:
        """Make a function known, to which the calls that follow can refer."""
        self.process.check()
        with self._lock:
            self._definitions.append((fid, blob))

    def call(self, numbers: array[int], payloads: list[bytes]) -> None:
        """Make calls, each with a number that was never used before."""
        self.process.check()
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
        """Have calls dropped or interrupted; nobody will hear of them again."""
        self.process.check()
        with self._lock:
            idle = not self._unwanted
            self._unwanted.extend(numbers)
        if idle:
            self._loop.call_soon(self._cancel)

    @abstractmethod
    def close(self) -> None:
        """Drop what has no result yet; nobody will hear of it again. Does nothing in a fork of its process."""

    @abstractmethod
    def _take(self, definitions: Definitions, numbers: array[int], payloads: list[bytes]) -> None:
        """Take functions and calls."""

    @abstractmethod
    def _drop(self, numbers: list[int]) -> None:
        """Cancel calls, all of which were taken before."""

    def _stop(self, reason: str) -> array[int]:
        """Take nothing more; gives the numbers of the calls that were not taken yet."""
        with self._lock:
            self._over = reason
        _, numbers, _ = self._fresh()
        return numbers

    def _take_fresh(self) -> None:
        self._take(*self._fresh())

    def _cancel(self) -> None:
        self._take_fresh()   # they may be among these
        with self._lock:
            numbers, self._unwanted = self._unwanted, []
        self._drop(numbers)

    def _fresh(self) -> tuple[Definitions, array[int], list[bytes]]:
        with self._lock:
            fresh = self._definitions, self._numbers, self._payloads
            self._definitions, self._numbers, self._payloads = [], array('Q'), []
        return fresh
