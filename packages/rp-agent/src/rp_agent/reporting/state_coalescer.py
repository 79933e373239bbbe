"""The state coalescer keeps the unsent states of tasks, of which only those that last are sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Protocol

_UID = attrgetter('uid')


class HasUid(Protocol):
    """A task."""

    uid: str


class StateCoalescer:
    """The last state of each task by uid. A state has lasted when the task was in it for a whole round."""

    def __init__(self) -> None:
        self._last: list[HasUid] = []    # the last bulk, which mostly comes again in another state,
        self._state = ''                 # and its state
        self._new: dict[str, str] = {}   # other states of this round
        self._old: dict[str, str] = {}   # states of earlier rounds, unless there is a new one

    def __bool__(self) -> bool:
        return bool(self._last or self._new or self._old)

    def add(self, tasks: Sequence[HasUid], state: str) -> None:
        """Add a state that tasks have reached."""
        bulk = list(tasks)
        if bulk != self._last:
            self._store_last()
            self._last = bulk
        self._state = state

    def drop(self, tasks: Sequence[HasUid]) -> None:
        """Discard the states of these tasks."""
        if self._last == tasks:
            self._last = []
        self.drop_uids([task.uid for task in tasks])

    def drop_uids(self, uids: Collection[str]) -> None:
        """Discard the states of the tasks with these uids."""
        self._store_last()
        for known in (self._new, self._old):
            if known:
                deque(map(known.pop, uids, repeat(None)), 0)

    def all(self) -> dict[str, str]:
        """Take all states."""
        self._store_last()
        found = {**self._old, **self._new}
        self._new, self._old = {}, {}
        return found

    def of(self, uids: Iterable[str]) -> dict[str, str]:
        """Take the states of these tasks."""
        self._store_last()
        found = {}
        for uid in uids:
            before = self._old.pop(uid, None)
            state = self._new.pop(uid, before)
            if state is not None:
                found[uid] = state
        return found

    def lasting(self, others: Collection[str]) -> dict[str, str]:
        """Take the states that have lasted, except `others`, and begin a new round."""
        self._store_last()
        found = {uid: state for uid, state in self._old.items() if state not in others and uid not in self._new}
        for uid in found:
            del self._old[uid]
        self._old.update(self._new)
        self._new = {}
        return found

    def _store_last(self) -> None:
        if self._last:
            self._new.update(zip(map(_UID, self._last), repeat(self._state), strict=False))
            self._last = []
