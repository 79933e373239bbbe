"""Calls that an application makes at masters: they go out as there is room, and each comes back once.

A caller has a thread of its own for the connections. Calls go to the master that has the fewest; what a lost master
had goes to the others. Once no master is left, every call without a result fails with the reason.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rp_api.errors import SerializationError
from rp_api.mesh.codec import MAX_BYTES
from rp_api.mesh.loop import Loop
from rp_raptor.application_link import BULK_BYTES, ApplicationLink, Master
from rp_raptor.line import Line
from rp_raptor.protocol import BULK

_WAITING, _WORKING = 0.05, 0.5
"""Seconds between looks at masters: as long as some are not up yet, and afterwards."""

WINDOW = 4096
"""Calls that are under way at several masters together, if nothing else is said."""

_LARGEST = MAX_BYTES - (1 << 20)
"""Bytes of the largest payload; the rest is for the message around it."""

Results = Callable[['array[int]', list[bytes]], object]
Failed = Callable[[Sequence[int], str], object]


class Caller:
    """Makes calls at the masters, which may still have to start.

    In the caller's thread, `on_results(numbers, payloads)` is called with results, and `on_failed(numbers, reason)`
    with calls that will have none: each call appears once, unless it was cancelled. `attributes` go with each call,
    see `rp_raptor.protocol`. If there are several masters, `window` calls are shared out among them, and the others
    wait here. Everything can be called from any thread.
    """

    def __init__(self, masters: Sequence[Master], on_results: Results, on_failed: Failed,
                 attributes: Mapping[str, Any] | None = None, window: int = WINDOW) -> None:
        self.definitions: dict[bytes, bytes] = {}
        self.results = on_results
        self._on_failed = on_failed
        self._attributes = attributes or None
        self._window = window
        self._backlog = Line()
        self._ended = ''
        self._numbers = array('Q')          # of calls that the loop has yet to take
        self._payloads: list[bytes] = []
        self._undefined: list[tuple[bytes, bytes]] = []
        self._unwanted: list[int] = []
        self._lock = threading.Lock()
        self._loop = Loop()
        name = f'stream.{os.urandom(8).hex()}'
        self._links = [ApplicationLink(self._loop, master, name, self) for master in masters]
        self._loop.call_soon(self._look)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def define(self, fid: bytes, blob: bytes) -> None:
        """Let the masters know a function, to which the calls that follow can refer."""
        with self._lock:
            self._undefined.append((fid, blob))

    def call(self, numbers: array[int], payloads: list[bytes]) -> None:
        """Make calls, each with a number that was never used before."""
        with self._lock:
            ended, idle = self._ended, not self._numbers
            if not ended:
                self._numbers.extend(numbers)
                self._payloads.extend(payloads)
        if ended:
            self._on_failed(numbers, ended)
        elif idle:
            self._loop.call_soon(self._take_fresh)

    def cancel(self, numbers: Sequence[int]) -> None:
        """Have calls dropped or interrupted; nobody will hear of them again."""
        with self._lock:
            idle = not self._unwanted
            self._unwanted.extend(numbers)
        if idle:
            self._loop.call_soon(self._cancel)

    def close(self) -> None:
        """Leave the masters; calls without a result are dropped, and nobody will hear of them again."""
        self._loop.call_soon(self._close)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def deal(self) -> None:
        """Give calls to the masters that have room."""
        backlog = self._backlog
        while backlog:
            free = {link: self._free(link) for link in self._links}
            link = max(self._links, key=free.__getitem__)
            if free[link] <= 0:
                break
            link.give(*backlog.take(min(free[link], BULK), BULK_BYTES), self._attributes)
        if backlog and all(link.lost for link in self._links):
            self._end('; '.join(link.lost for link in self._links))

    def take_back(self, calls: dict[int, bytes]) -> None:
        """Have calls go out again, before the others."""
        self._backlog.prepend(array('Q', calls), list(calls.values()))
        self._loop.call_soon(self.deal)

    def _free(self, link: ApplicationLink) -> int:
        """How many calls more a master may be given now."""
        others = sum(not other.lost for other in self._links) - 1
        if others < 1:
            return link.room
        return min(link.room, -(-self._window // (others + 1)) - len(link.calls))

    def _run(self) -> None:
        try:
            self._loop.run()
        except BaseException as error:   # whoever waits for results must hear of it
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

    def _take_fresh(self) -> None:
        numbers, payloads, undefined = self._fresh()
        for fid, blob in undefined:
            self.definitions[fid] = blob
            for link in self._links:
                link.define(fid, blob)
        self._backlog.append(numbers, payloads)
        self.deal()

    def _fresh(self) -> tuple[array[int], list[bytes], list[tuple[bytes, bytes]]]:
        with self._lock:
            fresh = self._numbers, self._payloads, self._undefined
            self._numbers, self._payloads, self._undefined = array('Q'), [], []
        return fresh

    def _cancel(self) -> None:
        self._take_fresh()   # they may be among these
        with self._lock:
            numbers, self._unwanted = self._unwanted, []
        self._backlog.remove(set(numbers))
        for link in self._links:
            link.cancel(numbers)

    def _end(self, reason: str) -> None:
        """No call has a result any more, now or later."""
        with self._lock:
            self._ended = reason
        numbers, _, _ = self._fresh()
        numbers += self._backlog.clear()
        for link in self._links:
            numbers.extend(link.calls)
            link.calls.clear()
        if numbers:
            self._on_failed(numbers, reason)

    def _close(self) -> None:
        for link in self._links:
            link.close()
        self._loop.stop()


def checked(payload: bytes) -> bytes:
    """The payload, if it is not too large to travel; else SerializationError."""
    if len(payload) > _LARGEST:
        raise SerializationError(f'the arguments of a call have {len(payload)} bytes, at most {_LARGEST} can travel')
    return payload
