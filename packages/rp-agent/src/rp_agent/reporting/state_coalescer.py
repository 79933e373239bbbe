"""The state coalescer keeps the unsent states of tasks, of which only those that last are sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from itertools import repeat


class StateCoalescer:
    """The last state of each task by uid. A state has lasted when the task was in it for a whole round."""

    def __init__(self) -> None:
        self._new: dict[str, str] = {}   # states of this round
        self._old: dict[str, str] = {}   # states of earlier rounds, unless there is a new one

    def __bool__(self) -> bool:
        return bool(self._new or self._old)

    def add(self, uids: Iterable[str], state: str) -> None:
        """Add a state that tasks have reached."""
        self._new.update(dict.fromkeys(uids, state))

    def drop(self, uids: Collection[str]) -> None:
        """Discard the states of these tasks."""
        for known in (self._new, self._old):
            if known:
                deque(map(known.pop, uids, repeat(None)), 0)

    def all(self) -> dict[str, str]:
        """Take all states."""
        found = {**self._old, **self._new}
        self._new, self._old = {}, {}
        return found

    def of(self, uids: Iterable[str]) -> dict[str, str]:
        """Take the states of these tasks."""
        found = {}
        for uid in uids:
            before = self._old.pop(uid, None)
            state = self._new.pop(uid, before)
            if state is not None:
                found[uid] = state
        return found

    def lasting(self, others: Collection[str]) -> dict[str, str]:
        """Take the states that have lasted, except `others`, and begin a new round."""
        found = {uid: state for uid, state in self._old.items() if state not in others and uid not in self._new}
        for uid in found:
            del self._old[uid]
        self._old.update(self._new)
        self._new = {}
        return found
