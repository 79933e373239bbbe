"""States of tasks that the client has not been told of yet: one that does not last need not be told at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable


class StateCoalescer:
    """The last state of each task, by uid, in rounds: it has lasted when the task has been in it for a whole round."""

    def __init__(self) -> None:
        self._new: dict[str, str] = {}   # those of this round
        self._old: dict[str, str] = {}   # those that were there before it, unless there is a new one

    def __bool__(self) -> bool:
        return bool(self._new or self._old)

    def add(self, uids: Iterable[str], state: str) -> None:
        """Tasks have reached a state."""
        new = self._new
        for uid in uids:
            new[uid] = state

    def drop(self, uids: Collection[str]) -> None:
        """Nobody needs to hear of the states of these tasks any more."""
        for known in (self._new, self._old):
            if known:
                for uid in uids:
                    known.pop(uid, None)

    def all(self) -> dict[str, str]:
        """All states, which count as told now."""
        found = {**self._old, **self._new}
        self._new, self._old = {}, {}
        return found

    def of(self, uids: Iterable[str]) -> dict[str, str]:
        """Those of these tasks, which count as told now."""
        found = {}
        for uid in uids:
            before = self._old.pop(uid, None)
            state = self._new.pop(uid, before)
            if state is not None:
                found[uid] = state
        return found

    def lasting(self, others: Collection[str]) -> dict[str, str]:
        """The states that have lasted, but for certain `others`, which count as told now; a new round begins."""
        found = {uid: state for uid, state in self._old.items() if state not in others and uid not in self._new}
        for uid in found:
            del self._old[uid]
        self._old.update(self._new)
        self._new = {}
        return found
