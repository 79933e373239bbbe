"""The base class of callers: takes calls from any thread and moves them to a loop."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import ReferenceType, WeakSet

from rp_api.loop.event_loop import Loop
from rp_api.system.owner_process import OwnerProcess
from rp_raptor.objects.reference import Owned
from rp_raptor.wire.batch import Payloads, joined
from rp_raptor.wire.store import ValueStore

Definitions = list[tuple[bytes, bytes]]
Results = Callable[['array[int]', Sequence[bytes]], object]
Failed = Callable[[Sequence[int], str], object]


class Intake(ABC):
    """Takes functions, calls and cancellations from any thread, and passes them to `_take` and `_drop` in the loop.

    `on_results(numbers, payloads)` receives results, `on_failed(numbers, reason)` the calls that will have no result;
    `attributes` apply to each call, see `rp_raptor.wire.protocol`. A fork of the process cannot make calls. The files
    of large arguments are in `store`, and on disk in the directory `overflow` if memory has no room for them.
    """

    def __init__(self, loop: Loop, on_results: Results, on_failed: Failed,
                 attributes: Mapping[str, Any] | None, overflow: str | None = None) -> None:
        self.process = OwnerProcess('this connection to RAPTOR masters')
        self.store = ValueStore(overflow)
        self._loop = loop
        self._on_results = on_results
        self._on_failed = on_failed
        self._attributes = dict(attributes) if attributes else None
        self._definitions: Definitions = []
        self._numbers = array('Q')          # calls that the loop has not taken yet
        self._payloads: list[Sequence[bytes]] = []
        self._unwanted: list[int] = []
        self._objects: list[Owned] = []     # those that the masters do not know yet
        self._shown: WeakSet[Owned] = WeakSet()
        self._last: ReferenceType[Owned] | None = None
        self._over = ''                     # the reason why no further call can have a result
        self._lock = threading.Lock()

    def define(self, fid: bytes, blob: bytes) -> None:
        """Define a function that later calls refer to."""
        self.process.check()
        with self._lock:
            self._definitions.append((fid, blob))

    def show(self, objects: Sequence[Owned]) -> None:
        """Make objects known that later calls refer to."""
        if len(objects) == 1 and objects[0].weak is self._last:   # the usual case
            return
        with self._lock:
            self._last = objects[-1].weak if objects else None
            self._objects += [owned for owned in objects if owned not in self._shown]
            self._shown.update(objects)

    def call(self, numbers: array[int], payloads: Sequence[bytes]) -> None:
        """Make calls; each number must be new."""
        self.process.check()
        with self._lock:
            over, idle = self._over, not self._numbers
            if not over:
                self._numbers.extend(numbers)
                self._payloads.append(payloads)
        if over:
            self._on_failed(numbers, over)
        elif idle:
            self._loop.call_soon(self._take_fresh)

    def cancel(self, numbers: Sequence[int]) -> None:
        """Drop or interrupt calls; their results are discarded."""
        self.process.check()
        with self._lock:
            idle = not self._unwanted
            self._unwanted.extend(numbers)
        if idle:
            self._loop.call_soon(self._cancel)

    @abstractmethod
    def close(self) -> None:
        """Drop all calls without a result, without a report. Does nothing in a fork of the process."""

    @abstractmethod
    def _take(self, definitions: Definitions, numbers: array[int], payloads: Payloads) -> None:
        """Take functions and calls."""

    @abstractmethod
    def _show(self, owned: Owned) -> None:
        """Make an object known to the masters."""

    @abstractmethod
    def _drop(self, numbers: list[int]) -> None:
        """Cancel calls that `_take` has received."""

    def _stop(self, reason: str) -> array[int]:
        """Accept no further calls, and return the numbers of the calls that were not taken yet."""
        with self._lock:
            self._over = reason
        _, numbers, _ = self._fresh()
        return numbers

    def _take_fresh(self) -> None:
        fresh = self._fresh()
        with self._lock:
            objects, self._objects = self._objects, []
        for owned in objects:
            self._show(owned)
        self._take(*fresh)

    def _cancel(self) -> None:
        self._take_fresh()   # the calls to cancel may be among these
        with self._lock:
            numbers, self._unwanted = self._unwanted, []
        self._drop(numbers)

    def _fresh(self) -> tuple[Definitions, array[int], Payloads]:
        with self._lock:
            definitions, numbers, payloads = self._definitions, self._numbers, self._payloads
            self._definitions, self._numbers, self._payloads = [], array('Q'), []
        return definitions, numbers, joined(payloads)
