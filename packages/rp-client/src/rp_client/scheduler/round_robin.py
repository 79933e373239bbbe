"""The round-robin scheduler: each task goes to the next pilot, whatever the pilots are doing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rp_client.scheduler.base import Binding, Request, TaskScheduler


class RoundRobin(TaskScheduler):
    """Spreads tasks evenly; a task that asks for a pilot goes there, or waits until that pilot is added."""

    def __init__(self) -> None:
        super().__init__()
        self._pilots: list[str] = []
        self._next = 0

    def remove_pilots(self, pilots: Iterable[str]) -> None:
        gone = set(pilots)
        self._pilots = [pilot for pilot in self._pilots if pilot not in gone]

    def _add(self, pilots: Iterable[str]) -> None:
        self._pilots.extend(pilots)

    def _bind(self, requests: Sequence[Request]) -> list[Binding]:
        if not self._pilots:
            return []
        bound = []
        for request in requests:
            pilot = self._choose(request)
            if pilot:
                bound.append(Binding(request.uid, pilot))
        for uid, _ in bound:
            del self._waiting[uid]
        return bound

    def _choose(self, request: Request) -> str:
        """The place for a task; empty if it has to wait."""
        uid, wanted = request
        if wanted:
            return self.place(wanted, uid) if wanted in self._pilots or self.knows(wanted) else ''
        for _ in self._pilots:
            self._next += 1
            place = self.place(self._pilots[(self._next - 1) % len(self._pilots)], uid)
            if place:
                return place
        return ''
