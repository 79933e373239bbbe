"""A queue of calls in batches, and results that wait to be sent: each costs little for a call."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import compress

from rp_raptor.wire.batch import Payloads, joined
from rp_raptor.wire.protocol import BULK

MAX_GATHERED_RESULTS = 64
"""Results of a message at most that are gathered; more of them are sent at once."""

MAX_GATHERED_BYTES = 1 << 20
"""Bytes of gathered results at which they are sent."""


class CallBuffer:
    """Calls in order: new ones are appended, repeated ones go to the front."""

    __slots__ = ('_batches', '_count')

    def __init__(self) -> None:
        self._batches: deque[tuple[array[int], Payloads]] = deque()   # none of them empty
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, ids: array[int], payloads: Sequence[bytes]) -> None:
        """Add calls after all others."""
        if ids:
            self._batches.append((ids, joined([payloads])))
            self._count += len(ids)

    def prepend(self, ids: array[int], payloads: Sequence[bytes]) -> None:
        """Put calls before all others."""
        if ids:
            self._batches.appendleft((ids, joined([payloads])))
            self._count += len(ids)

    def first(self, most: int) -> array[int]:
        """Return the ids of the first calls without taking them."""
        found = array('Q')
        for ids, _ in self._batches:
            found += ids[:most - len(found)]
            if len(found) == most:
                break
        return found

    def take(self, most: int, most_bytes: int) -> tuple[array[int], Payloads]:
        """Take calls from the front: at most `most`, as many as `most_bytes` of payloads allow, but one at least."""
        taken: list[tuple[array[int], Payloads]] = []
        count = 0
        while self._batches and count < most:
            ids, payloads = self._batches[0]
            fitting = payloads.fitting(most - count, most_bytes)
            if not fitting:
                if count:
                    break
                fitting = 1
            self._batches.popleft()
            if fitting < len(ids):
                self._batches.appendleft((ids[fitting:], payloads[fitting:]))
                ids, payloads = ids[:fitting], payloads[:fitting]
            taken.append((ids, payloads))
            count += fitting
            most_bytes = max(0, most_bytes - payloads.size())
        self._count -= count
        if len(taken) == 1:
            return taken[0]
        return array('Q', [id for ids, _ in taken for id in ids]), joined([payloads for _, payloads in taken])

    def take_last(self, most: int) -> array[int]:
        """Take at most `most` calls from the end, and return their ids."""
        taken: list[array[int]] = []
        while self._batches and most > 0:
            ids, payloads = self._batches.pop()
            if len(ids) > most:
                self._batches.append((ids[:-most], payloads[:-most]))
                ids = ids[-most:]
            taken.append(ids)
            most -= len(ids)
        found = array('Q', [id for ids in reversed(taken) for id in ids])
        self._count -= len(found)
        return found

    def remove(self, unwanted: Collection[int]) -> array[int]:
        """Remove those of the calls that are here, and return their ids."""
        found = array('Q')
        batches, self._batches, self._count = self._batches, deque(), 0
        for ids, payloads in batches:
            kept = [id not in unwanted for id in ids]
            if not all(kept):
                found.extend(id for id in ids if id in unwanted)
                ids, payloads = array('Q', compress(ids, kept)), Payloads(compress(payloads, kept))
            self.append(ids, payloads)
        return found

    def clear(self) -> array[int]:
        """Remove all calls, and return their ids."""
        return self.take_last(len(self))


class ResultGatherer:
    """Gathers results that come in many small messages, to send them in one; `send(ids, payloads)` gets them."""

    __slots__ = ('_bytes', '_ids', '_payloads', '_send')

    def __init__(self, send: Callable[[array[int], Payloads], object]) -> None:
        self._send = send
        self._ids = array('Q')
        self._payloads: list[Sequence[bytes]] = []
        self._bytes = 0

    def add(self, ids: array[int], payloads: Sequence[bytes]) -> None:
        """Take results; `flush` has to follow."""
        batch = joined([payloads])
        if len(batch) > MAX_GATHERED_RESULTS:
            self._send(ids, batch)
            return
        self._ids += ids
        self._payloads.append(batch)
        self._bytes += batch.size()
        if len(self._ids) >= BULK or self._bytes >= MAX_GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send all results."""
        if self._ids:
            ids, payloads = self._ids, joined(self._payloads)
            self._ids, self._payloads, self._bytes = array('Q'), [], 0
            self._send(ids, payloads)
