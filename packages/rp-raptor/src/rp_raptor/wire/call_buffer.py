"""A queue of calls: ids in one array and payloads in one list, so that bulks are slices."""

from __future__ import annotations

from array import array
from collections.abc import Collection
from itertools import accumulate, compress

_TIDY = 4096
"""Calls taken from the front whose memory is freed together."""


class CallBuffer:
    """Calls in order: new ones are appended, repeated ones go to the front."""

    __slots__ = ('_first', '_ids', '_payloads')

    def __init__(self) -> None:
        self._ids = array('Q')
        self._payloads: list[bytes] = []
        self._first = 0   # the entries before it are taken

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
        """Return the ids of the first calls without taking them."""
        return self._ids[self._first:self._first + most]

    def take(self, most: int, most_bytes: int) -> tuple[array[int], list[bytes]]:
        """Take calls from the front: at most `most`, as many as `most_bytes` of payloads allow, but one at least."""
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
        """Take at most `most` calls from the end, and return their ids."""
        begin = max(self._first, len(self._payloads) - most)
        ids = self._ids[begin:]
        del self._ids[begin:], self._payloads[begin:]
        return ids

    def remove(self, unwanted: Collection[int]) -> array[int]:
        """Remove those of the calls that are here, and return their ids."""
        self._tidy()
        found = array('Q', [id for id in self._ids if id in unwanted])
        if found:
            kept = [id not in unwanted for id in self._ids]
            self._payloads = list(compress(self._payloads, kept))
            self._ids = array('Q', compress(self._ids, kept))
        return found

    def clear(self) -> array[int]:
        """Remove all calls, and return their ids."""
        return self.take_last(len(self))

    def _tidy(self) -> None:
        del self._ids[:self._first], self._payloads[:self._first]
        self._first = 0
