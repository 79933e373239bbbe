"""Calls of an application to masters: sent as masters have room, each answered once.

A caller runs its connections in a thread of its own. Calls go to the masters in proportion to their ranks, no faster
than their workers can take them; when ranks of one are idle, others give back calls that have not started (see
`rp_api.balancing`). The calls of a lost master go to the others. When no master is left, every call without a result
fails with the reason.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import ReferenceType, WeakSet

from rp_api.balancing.shares import requests, shares
from rp_api.errors import SerializationError
from rp_api.loop.event_loop import Loop
from rp_api.system.owner_process import OwnerProcess
from rp_api.wire.codec import MAX_BYTES
from rp_raptor.client.application_link import BULK_BYTES, ApplicationLink, MasterSide
from rp_raptor.objects.reference import Owned
from rp_raptor.wire.batch import Payloads, joined
from rp_raptor.wire.call_buffer import CallBuffer
from rp_raptor.wire.large_calls import size_of_call
from rp_raptor.wire.protocol import BULK
from rp_raptor.wire.store import ValueStore

_WAITING, _WORKING = 0.05, 0.5
"""Seconds between polls of the masters: until all are up, and after that."""

WINDOW = 4096
"""Default number of calls in flight."""

_MAX_PAYLOAD_BYTES = MAX_BYTES - (1 << 20)
"""Bytes of the largest payload; the remainder is for the message around it."""


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
        self._objects: list[ReferenceType[Owned]] = []   # those that the masters do not know yet
        self._shown: WeakSet[Owned] = WeakSet()
        self._last: ReferenceType[Owned] | None = None
        self._over = ''                     # the reason why no further call can have a result
        self._lock = threading.Lock()

    @property
    def ranks(self) -> int | None:
        """The number of calls that the workers can run at a time, if changes of it are reported as empty results."""
        return None

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
            self._objects += [owned.weak for owned in objects if owned not in self._shown]
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
        for weak in objects:
            if (owned := weak()) is not None:   # else its calls are dropped
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


class Caller(Intake):
    """Makes calls at masters, which may still be starting.

    Each call has one result or one failure, unless it was cancelled; both are reported in the caller's thread. All
    public methods may be called from any thread.
    """

    def __init__(self, masters: Sequence[MasterSide], on_results: Results, on_failed: Failed,
                 attributes: Mapping[str, Any] | None = None) -> None:
        super().__init__(Loop(), on_results, on_failed, attributes, getattr(masters[0], 'directory', None))
        self.definitions: dict[bytes, bytes] = {}
        self.results = on_results
        self._waiting = CallBuffer()
        self._held: Callable[[], object] | None = None   # called once no call is at a master
        self._idle = False   # it was called
        name = f'stream.{os.urandom(8).hex()}'
        width = None if len(masters) == 1 else int((attributes or {}).get('ranks', 1))
        self._links = [ApplicationLink(self._loop, master, name, self, width) for master in masters]
        self._loop.call_soon(self._look)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def ranks(self) -> int | None:
        """The number of calls that the workers can run at a time, as far as it is known."""
        return sum(link.ranks for link in self._links)

    def close(self) -> None:
        """Disconnect from the masters; calls without a result are dropped without a report."""
        if not self.process.here:
            return
        self._loop.call_soon(self._close)
        if self._thread is not threading.current_thread():
            self._thread.join()
        self.store.close()

    def hold(self, idle: Callable[[], object]) -> None:
        """Send no calls until `release`, and take those back that no rank has started; those that run finish.

        `idle` is called once, in the caller's thread, when no call is at a master any more.
        """
        self._loop.call_soon(lambda: self._hold(idle))

    def release(self) -> None:
        """Send calls again."""
        self._loop.call_soon(lambda: self._hold(None))

    def deal(self) -> None:
        """Give calls to the masters that have room; if none waits, let them give back calls for which others have."""
        if self._held is not None:
            self._call_back(self._held)
            return
        waiting = self._waiting
        while waiting and (dealt := shares(len(waiting), self._links)):
            for link, number in dealt:
                if waiting:
                    link.give(*waiting.take(min(number, BULK), BULK_BYTES), self._attributes)
        if waiting and all(link.lost for link in self._links):
            self._end('; '.join(link.lost for link in self._links))
        elif len(self._links) > 1:
            for link, number in requests(len(waiting), self._links):
                link.ask_back(number)

    def take_back(self, calls: dict[int, bytes]) -> None:
        """Queue calls again, before the others."""
        self._waiting.prepend(array('Q', calls), list(calls.values()))
        self._loop.call_soon(self.deal)

    def ranks_changed(self) -> None:
        """Send more calls of streams if more are needed now."""
        self.results(array('Q'), [])

    def object_ready(self, id: bytes, fault: str) -> None:
        """Do nothing: calls need not wait for their objects."""

    def _hold(self, idle: Callable[[], object] | None) -> None:
        self._held, self._idle = idle, False
        self.deal()

    def _call_back(self, idle: Callable[[], object]) -> None:
        """Ask the masters for the calls that have not started; report that they have none at all."""
        for link in self._links:
            if link.calls and not link.asked and not link.exhausted:
                link.ask_back(len(link.calls))
        if not self._idle and not any(link.calls for link in self._links):
            self._idle = True
            idle()

    def _run(self) -> None:
        try:
            self._loop.run()
        except BaseException as error:   # callers that wait for results must learn of it
            self._end(f'the thread for it has failed: {error!r}')
            raise
        finally:
            self._loop.close()

    def _look(self) -> None:
        for link in self._links:
            link.look()
        self.deal()
        waits = any(link.waits for link in self._links)
        self._loop.call_later(_WAITING if waits else _WORKING, self._look)

    def _take(self, definitions: Definitions, numbers: array[int], payloads: Payloads) -> None:
        for fid, blob in definitions:
            self.definitions[fid] = blob
            for link in self._links:
                link.define(fid, blob)
        self._waiting.append(numbers, payloads)
        self.deal()

    def _show(self, owned: Owned) -> None:
        for link in self._links:
            link.objects.show(owned)

    def _drop(self, numbers: list[int]) -> None:
        self._waiting.remove(set(numbers))
        for link in self._links:
            link.cancel(numbers)
        if self._held is not None:
            self.deal()

    def _end(self, reason: str) -> None:
        """Fail all calls without a result, and those still to come."""
        numbers = self._stop(reason)
        numbers += self._waiting.clear()
        for link in self._links:
            numbers.extend(link.calls)
            link.calls.clear()
        if numbers:
            self._on_failed(numbers, reason)

    def _close(self) -> None:
        for link in self._links:
            link.close()
        self._loop.stop()


def checked(payload: bytes) -> int:
    """Return the bytes of a call, files included; SerializationError if it is too large to send."""
    if len(payload) > _MAX_PAYLOAD_BYTES:
        raise SerializationError(f'the arguments of a call have {len(payload)} bytes, at most {_MAX_PAYLOAD_BYTES} '
                                 'can travel')
    return size_of_call(payload)


def is_local(master: object) -> bool:
    """Return whether the master runs in this process."""
    return hasattr(master, 'open_caller')


def open_caller(masters: Sequence[Any], on_results: Results, on_failed: Failed,
                attributes: Mapping[str, Any] | None = None, *, apart: bool = False) -> Intake:
    """Return a caller for one master in this process, or for any number of others (see `Caller`).

    With `apart`, results and failures are reported in a thread that may block.
    """
    if is_local(masters[0]):
        caller: Intake = masters[0].open_caller(on_results, on_failed, attributes, apart)
        return caller
    return Caller(masters, on_results, on_failed, attributes)
