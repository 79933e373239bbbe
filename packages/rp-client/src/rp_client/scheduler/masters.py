"""Pilots of RAPTOR masters: the tasks for a master wait until it is bound to a pilot, and follow it there."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from rp_api import states
from rp_api.raptor_link import ANY
from rp_client.raptor import RaptorMaster
from rp_client.task import Task


class Followers:
    """The RAPTOR masters of a task manager, and the tasks that wait until a master is bound to a pilot."""

    def __init__(self) -> None:
        self._masters: dict[str, RaptorMaster] = {}
        self._waiting: dict[str, Task] = {}
        self._next = 0

    @property
    def waiting(self) -> list[Task]:
        """The waiting tasks."""
        return list(self._waiting.values())

    def __len__(self) -> int:
        return len(self._waiting)

    def know(self, task: Task) -> None:
        """Register a task if it is a master."""
        if isinstance(task, RaptorMaster):
            self._masters[task.uid] = task

    def place(self, tasks: Iterable[Task]) -> list[tuple[Task, str]]:
        """Return the tasks whose master is bound, with the uid of its pilot; the others wait."""
        found = []
        for common, row in groupby(tasks, lambda task: task.common):
            pilot = None if common.raptor_id == ANY else self._pilot_of(common.raptor_id)
            for task in row:
                at = self._any_pilot() if common.raptor_id == ANY else pilot
                if at is None:
                    self._waiting[task.uid] = task
                else:
                    found.append((task, at))
        return found

    def ready(self) -> list[tuple[Task, str]]:
        """Remove and return waiting tasks whose master is bound now, with the uid of its pilot."""
        waiting, self._waiting = self._waiting, {}
        return self.place(waiting.values())

    def forget(self, uid: str) -> Task | None:
        """Remove and return a waiting task; None if it does not wait."""
        return self._waiting.pop(uid, None)

    def orphans(self) -> list[tuple[Task, str]]:
        """Remove and return waiting tasks whose master ended without a pilot, with the reason."""
        found = []
        for task in list(self._waiting.values()):
            raptor_id = task.common.raptor_id
            masters = list(self._masters.values()) if raptor_id == ANY else [self._masters.get(raptor_id)]
            ended = [master for master in masters if master is not None and master.state in states.FINAL]
            if ended and len(ended) == len(masters):
                del self._waiting[task.uid]
                found.append((task, f'{ended[-1].uid} has ended before it ran the task: {ended[-1].exception}'))
        return found

    def _pilot_of(self, uid: str) -> str | None:
        master = self._masters.get(uid)
        return master.place if master else None

    def _any_pilot(self) -> str | None:
        """Return the next pilot with a running master, or else the last one that had a master."""
        bound = [master for master in self._masters.values() if master.place]
        live = [master for master in bound if master.state not in states.FINAL]
        if not live and len(bound) < len(self._masters):
            return None
        pilots = list(dict.fromkeys(str(master.place) for master in live or bound[-1:]))
        self._next += 1
        return pilots[self._next % len(pilots)] if pilots else None
