"""Calls that wait, in order: ids in one array and payloads in one list, so that bulks of them are slices."""

from __future__ import annotations

from array import array
from collections.abc import Collection
from itertools import accumulate, compress

_TIDY = 4096
"""Calls that were taken from the front whose room is freed together."""


class CallBuffer:
    """Calls in order. They come at the end or, if they have waited before, at the front."""

    __slots__ = ('_first', '_ids', '_payloads')

    def __init__(self) -> None:
        self._ids = array('Q')
        self._payloads: list[bytes] = []
        self._first = 0   # what is before that is gone

    def __len__(self) -> int:
        return len(self._payloads) - self._first

    def append(self, ids: array[int], payloads: list[bytes]) -> None:
        """Add calls after all others."""
        self._ids.extend(ids)
        self._payloads.extend(payloads)

    def prepend(self, ids: array[int], payloads: list[bytes]) -> None:
        """Put calls before all others."""
        self._ids[:self._first] = ids
        self._payloads[:self._first] = payloads
        self._first = 0

    def first(self, most: int) -> array[int]:
        """The ids of the first calls, which stay."""
        return self._ids[self._first:self._first + most]

    def take(self, most: int, most_bytes: int) -> tuple[array[int], list[bytes]]:
        """Take the first calls away: at most so many, and no second one if their payloads get too large with it."""
        begin, end = self._first, self._first + most
        payloads = self._payloads[begin:end]
        if sum(map(len, payloads)) > most_bytes:
            sizes = accumulate(map(len, payloads))
            del payloads[max(1, sum(size <= most_bytes for size in sizes)):]
        end = begin + len(payloads)
        ids = self._ids[begin:end]
        self._payloads[begin:end] = [b''] * len(payloads)
        self._first = end
        if end == len(self._payloads) or (end >= _TIDY and 2 * end >= len(self._payloads)):
            self._tidy()
        return ids, payloads

    def take_last(self, most: int) -> array[int]:
        """Take the last calls away, at most so many; gives their ids."""
        begin = max(self._first, len(self._payloads) - most)
        ids = self._ids[begin:]
        del self._ids[begin:], self._payloads[begin:]
        return ids

    def remove(self, unwanted: Collection[int]) -> array[int]:
        """Take these calls away, as far as they are here; gives the ids of those that were."""
        self._tidy()
        found = array('Q', [id for id in self._ids if id in unwanted])
        if found:
            kept = [id not in unwanted for id in self._ids]
            self._payloads = list(compress(self._payloads, kept))
            self._ids = array('Q', compress(self._ids, kept))
        return found

    def clear(self) -> array[int]:
        """Take all calls away; gives their ids."""
        return self.take_last(len(self))

    def _tidy(self) -> None:
        del self._ids[:self._first], self._payloads[:self._first]
        self._first = 0
