"""The round-robin scheduler: each task goes to the next pilot, whatever the pilots are doing."""

from __future__ import annotations

from rp_client.scheduler.base import TaskScheduler


class RoundRobin(TaskScheduler):
    """Spreads tasks evenly; a task that asks for a pilot goes there, or waits until that pilot is added."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def choose(self, uid: str) -> str:
        for _ in self.pilots:
            self._next += 1
            place = self.place(self.pilots[(self._next - 1) % len(self.pilots)], uid)
            if place:
                return place
        return ''
