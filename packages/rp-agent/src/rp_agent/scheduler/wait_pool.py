"""The tasks that wait for resources, and the order in which they are tried.

No I/O, no clock. Tasks are grouped by what they ask for, so that a shape for which there is no room is tried once and
not once per waiting task, and not again before something was freed (`wake`). Higher priorities go first; within a
priority, tasks go in the order in which they came, but a task that fits now does not wait for an earlier one of another
shape that does not.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar('T')

Key = tuple[int, Hashable]


class WaitPool(Generic[T]):
    """Waiting tasks by uid, grouped by priority and shape."""

    def __init__(self) -> None:
        self._groups: dict[Key, dict[str, tuple[int, T]]] = {}
        self._where: dict[str, Key] = {}
        self._full: set[Hashable] = set()
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._where)

    def add(self, uid: str, task: T, priority: int, shape: Hashable) -> None:
        """Let a task wait; `ValueError` if it does already."""
        if uid in self._where:
            raise ValueError(f'{uid} waits already')
        key = (-priority, shape)
        self._groups.setdefault(key, {})[uid] = (self._arrivals, task)
        self._where[uid] = key
        self._arrivals += 1

    def remove(self, uids: Iterable[str]) -> list[T]:
        """Take tasks out; gives those that were waiting."""
        return [self._take(uid) for uid in uids if uid in self._where]

    def clear(self) -> list[T]:
        """Take all tasks out."""
        return self.remove(list(self._where))

    def wake(self) -> None:
        """Something was freed: every shape is worth a try again."""
        self._full.clear()

    def place(self, fits: Callable[[T], bool]) -> list[T]:
        """Try the waiting tasks (`fits` places one, or says that there is no room); gives those that were placed."""
        placed = []
        heads = [(key[0], self._first(key), key[1]) for key in self._groups if key[1] not in self._full]
        heapq.heapify(heads)
        while heads:
            urgency, (_, uid), shape = heapq.heappop(heads)
            if shape in self._full:   # since it was tried with a higher priority
                continue
            key = (urgency, shape)
            if not fits(self._groups[key][uid][1]):
                self._full.add(shape)
                continue
            placed.append(self._take(uid))
            if key in self._groups:
                heapq.heappush(heads, (urgency, self._first(key), shape))
        return placed

    def check(self) -> None:
        """Verify that each waiting task is in exactly one group, in the order of arrival, and that none is empty."""
        assert all(self._groups.values())
        listed = [(uid, key) for key, group in self._groups.items() for uid in group]
        assert len(listed) == len(self._where)
        assert dict(listed) == self._where
        for group in self._groups.values():
            arrivals = [arrival for arrival, _ in group.values()]
            assert arrivals == sorted(arrivals)

    def _first(self, key: Key) -> tuple[int, str]:
        """Number of arrival (which no two tasks share) and uid of the first task of a group."""
        uid, (arrival, _) = next(iter(self._groups[key].items()))
        return arrival, uid

    def _take(self, uid: str) -> T:
        key = self._where.pop(uid)
        _, task = self._groups[key].pop(uid)
        if not self._groups[key]:
            del self._groups[key]
        return task
