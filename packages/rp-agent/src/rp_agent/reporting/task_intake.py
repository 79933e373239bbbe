"""The task intake accepts each task once, and limits the number of tasks that the coordinator sends in advance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress

from rp_api.coordination.contract import NewTask
from rp_api.uid_set import UidSet

HIGH_WATER_TASKS = 1 << 16
"""High-water mark: tasks in the agent at which it stops the delivery, unless the pilot is large."""

PER_CORE = 8
"""High-water mark per core on a large pilot: tasks that keep it busy until more arrive."""


class Intake:
    """The record of tasks that have arrived or were cancelled before, and the flow control of their delivery.

    `hold(on)` is called to suspend and resume the delivery of tasks. It does not hold up commands, which can therefore
    overtake tasks.
    """

    def __init__(self, hold: Callable[[bool], None], cores: int) -> None:
        self._hold = hold
        self._high = max(HIGH_WATER_TASKS, PER_CORE * cores)
        self.holding = False
        """True if the delivery of tasks is suspended."""
        self._seen = UidSet()
        self._cancelled: set[str] = set()
        self._not_done = UidSet()   # tasks that have arrived, and ended otherwise or went elsewhere

    def new(self, tasks: Sequence[NewTask]) -> list[NewTask]:
        """Return the tasks that have not arrived before: a coordinator may deliver a task again."""
        return list(compress(tasks, self._seen.add_each([uid for uid, _ in tasks])))

    def has_seen(self, uid: str) -> bool:
        """Return whether a task of that uid has arrived."""
        return uid in self._seen

    def not_done(self, uids: Iterable[str]) -> None:
        """Remember tasks that have left the agent, but are not DONE here."""
        self._not_done.update(uids)

    def is_done(self, uid: str) -> bool:
        """Return whether a task that the agent does not have now is DONE here."""
        return uid in self._seen and uid not in self._not_done

    @property
    def expects_cancelled(self) -> bool:
        """True if tasks were cancelled that have not arrived."""
        return bool(self._cancelled)

    def is_cancelled(self, uid: str) -> bool:
        """Return whether `cancelled` would return True."""
        return uid in self._cancelled

    def cancelled(self, uid: str) -> bool:
        """Return whether a task was cancelled before it arrived, once."""
        if uid not in self._cancelled:
            return False
        self._cancelled.remove(uid)
        return True

    def cancel(self, uids: Sequence[str]) -> list[str]:
        """Remember the cancelled tasks that have not arrived yet, and return them."""
        absent = [uid for uid in uids if uid not in self._seen]
        self._cancelled.update(absent)
        return absent

    def in_hand(self, tasks: int) -> None:
        """Suspend the delivery at the high-water mark, and resume it at half of that.

        `tasks` run or wait only for resources.
        """
        if not self.holding and tasks >= self._high:
            self.holding = True
            self._hold(True)
        elif self.holding and tasks <= self._high // 2:
            self.holding = False
            self._hold(False)
