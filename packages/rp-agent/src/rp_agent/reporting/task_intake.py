"""What an agent takes from its coordinator: each task once, and not many more than it can use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rp_api.uid_set import UidSet

MANY = 1 << 16
"""Tasks in hand from which on an agent asks for no more, on a pilot that is not large."""

PER_CORE = 8
"""The same for each core of a pilot: what has come must keep all of them busy until more comes."""


class Intake:
    """Remembers which tasks have come and which were cancelled before they did, and says when it is enough.

    `hold(on)` is called to have no more tasks sent, and to have them sent again. Commands come all the same, so they
    can overtake tasks.
    """

    def __init__(self, hold: Callable[[bool], None], cores: int) -> None:
        self._hold = hold
        self._high = max(MANY, PER_CORE * cores)
        self.holding = False
        """Whether no more tasks are asked for."""
        self._seen = UidSet()
        self._cancelled: set[str] = set()

    def new(self, descriptions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of the tasks that have not come before: a coordinator may deliver again."""
        return [description for description in descriptions if self._seen.add(description['uid'])]

    def cancelled(self, uid: str) -> bool:
        """Whether a task that has come now was cancelled before."""
        if uid not in self._cancelled:
            return False
        self._cancelled.remove(uid)
        return True

    def cancel(self, uids: Sequence[str]) -> None:
        """Remember those that are to be cancelled and have not come yet."""
        self._cancelled.update(uid for uid in uids if uid not in self._seen)

    def in_hand(self, tasks: int) -> None:
        """So many tasks run, or wait for nothing but room to run: ask for no more from a high-water mark on, until half
        of it is left.
        """
        if not self.holding and tasks >= self._high:
            self.holding = True
            self._hold(True)
        elif self.holding and tasks <= self._high // 2:
            self.holding = False
            self._hold(False)
