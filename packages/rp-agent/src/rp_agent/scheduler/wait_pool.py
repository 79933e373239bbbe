"""The tasks that wait for resources, and the order in which they are tried.

No I/O, no clock. Tasks are grouped by what they ask for, so that a shape for which there is no room is tried once and
not once per waiting task. Higher priorities go first; within a priority, tasks go in the order in which they came, but
a task that fits now does not wait for an earlier one of another shape that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar('T')


class WaitPool(Generic[T]):
    """Waiting tasks by uid, grouped by priority and shape."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, Hashable], dict[str, T]] = {}
        self._where: dict[str, tuple[int, Hashable]] = {}

    def __len__(self) -> int:
        return len(self._where)

    def add(self, uid: str, task: T, priority: int, shape: Hashable) -> None:
        """Let a task wait."""
        key = (-priority, shape)
        self._groups.setdefault(key, {})[uid] = task
        self._where[uid] = key

    def remove(self, uids: Iterable[str]) -> list[T]:
        """Take tasks out; gives those that were waiting."""
        removed = []
        for uid in uids:
            key = self._where.pop(uid, None)
            if key is not None:
                removed.append(self._groups[key].pop(uid))
                self._tidy(key)
        return removed

    def clear(self) -> list[T]:
        """Take all tasks out."""
        return self.remove(list(self._where))

    def place(self, fits: Callable[[T], bool]) -> list[T]:
        """Try the waiting tasks (`fits` places one, or says that there is no room); gives those that were placed."""
        placed = []
        for key in sorted(self._groups, key=lambda key: key[0]):
            group = self._groups[key]
            for uid, task in list(_until_refused(group, fits)):
                del group[uid], self._where[uid]
                placed.append(task)
            self._tidy(key)
        return placed

    def check(self) -> None:
        """Verify that each waiting task is in exactly one group, and that no group is empty."""
        assert all(self._groups.values())
        listed = [(uid, key) for key, group in self._groups.items() for uid in group]
        assert len(listed) == len(self._where)
        assert dict(listed) == self._where

    def _tidy(self, key: tuple[int, Hashable]) -> None:
        if not self._groups[key]:
            del self._groups[key]


def _until_refused(group: dict[str, T], fits: Callable[[T], bool]) -> Iterable[tuple[str, T]]:
    for uid, task in group.items():
        if not fits(task):
            return
        yield uid, task
