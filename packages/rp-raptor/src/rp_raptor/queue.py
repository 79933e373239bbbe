"""The calls that a worker has and no rank has yet: in order, in bulks, and with what is special about some of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from itertools import accumulate
from typing import Any

from rp_raptor.desk import Call

_BYTES = 1 << 20
"""Payloads of more bytes than this do not go into one bulk."""

Attributes = dict[int, dict[str, Any]]


class CallQueue:
    """Calls in the order in which they came; `wide` are those that need several ranks.

    `width(attributes)` says how many ranks a call needs.
    """

    def __init__(self, width: Callable[[dict[str, Any]], int]) -> None:
        self.wide: deque[Call] = deque()
        self._calls: deque[Call] = deque()
        self._width = width
        self._attributes: Attributes = {}

    def __len__(self) -> int:
        return len(self._calls) + len(self.wide)

    @property
    def narrow(self) -> int:
        """How many calls wait that need one rank."""
        return len(self._calls)

    def add(self, ids: list[int], payloads: list[bytes], attributes: Attributes | None) -> None:
        """Append calls; attributes of those that differ from the default."""
        calls = zip(ids, payloads, strict=True)
        if not attributes:
            self._calls.extend(calls)
            return
        self._attributes.update(attributes)
        for call in calls:
            self._line(call[0]).append(call)

    def put_back(self, calls: list[Call]) -> None:
        """Put calls before all others, in this order."""
        if self._attributes:
            for call in reversed(calls):
                self._line(call[0]).appendleft(call)
        else:
            self._calls.extendleft(reversed(calls))

    def bulk(self, size: int) -> tuple[list[int], list[bytes]]:
        """Take the next calls, at most so many; a call with a timeout is alone, so that it is known when it starts."""
        take = self._calls.popleft
        calls = [take() for _ in range(min(size, len(self._calls)))]
        ids, payloads = [id for id, _ in calls], [payload for _, payload in calls]
        count = self._fitting(ids, payloads)
        if count < len(calls):
            self._calls.extendleft(reversed(calls[count:]))
            del ids[count:], payloads[count:]
        return ids, payloads

    def _fitting(self, ids: list[int], payloads: list[bytes]) -> int:
        """How many of the calls go into one bulk."""
        count = len(ids)
        if self._attributes:
            timed = next((number for number, id in enumerate(ids) if self.timeout(id)), count)
            count = max(timed, 1)
        if sum(map(len, payloads)) > _BYTES:
            sizes = accumulate(map(len, payloads))
            count = min(count, max(1, sum(size <= _BYTES for size in sizes)))
        return count

    def timeout(self, id: int) -> float:
        """Seconds that a call may take; 0 for any time."""
        attributes = self._attributes.get(id)
        return float(attributes.get('timeout') or 0) if attributes else 0.0

    def attributes(self, id: int) -> dict[str, Any]:
        """What is special about a call."""
        return self._attributes.get(id, {})

    def pop_last(self, count: int) -> list[int]:
        """Take away calls from the end, at most so many; gives their ids."""
        back: list[int] = []
        for line in self._calls, self.wide:
            while line and len(back) < count:
                back.append(line.pop()[0])
        self.forget(back)
        return back

    def remove(self, ids: Collection[int]) -> list[int]:
        """Take away these calls; gives the ids of those that were here."""
        found = [id for line in (self._calls, self.wide) for id, _ in line if id in ids]
        if found:
            self._calls = deque(call for call in self._calls if call[0] not in ids)
            self.wide = deque(call for call in self.wide if call[0] not in ids)
            self.forget(found)
        return found

    def forget(self, ids: Iterable[int]) -> None:
        """Forget what is special about calls that are done."""
        if self._attributes:
            for id in ids:
                self._attributes.pop(id, None)

    def clear(self) -> None:
        """Drop all calls."""
        for line in self._calls, self.wide:
            self.forget(id for id, _ in line)
            line.clear()

    def _line(self, id: int) -> deque[Call]:
        attributes = self._attributes.get(id)
        return self.wide if attributes and self._width(attributes) > 1 else self._calls
