"""The round-robin task scheduler: binds each task to the next pilot, independent of the pilots' load."""

from __future__ import annotations

from rp_client.scheduler.base import EachTask


class RoundRobin(EachTask):
    """Binds tasks to all pilots in turn; a pilot that cannot take a task now is skipped."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def choose(self, uid: str) -> str:
        """Return the place of a task in the next pilot that can take it.

        Args:
            uid: Uid of the task.

        Returns:
            The place; empty if no pilot can take the task now.
        """
        for _ in self.pilots:
            self._next += 1
            place = self.place(self.pilots[(self._next - 1) % len(self.pilots)], uid)
            if place:
                return place
        return ''
