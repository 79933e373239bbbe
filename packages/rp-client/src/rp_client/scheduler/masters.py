"""Pilots of RAPTOR masters: the tasks for a master wait until it is bound to a pilot, and follow it there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import attrgetter

from rp_api import states
from rp_api.constants import RAPTOR_MASTER, RAPTOR_WORKER
from rp_api.raptor_link import ANY
from rp_client.core.task import TaskRecord

_COMMON = attrgetter('common')


class Followers:
    """The RAPTOR masters of a task manager, and the tasks that wait until a master is bound to a pilot.

    `tasks` are all tasks of the task manager.
    """

    def __init__(self, tasks: Mapping[str, TaskRecord]) -> None:
        self._tasks = tasks
        self._masters: dict[str, TaskRecord] = {}
        self.waiting: dict[str, TaskRecord] = {}   # by uid
        self._next = 0

    def know(self, task: TaskRecord) -> None:
        """Register a task if it is a master."""
        if task.common.mode == RAPTOR_MASTER:
            self._masters[task.uid] = task

    def place(self, tasks: Iterable[TaskRecord]) -> list[tuple[str, list[TaskRecord]]]:
        """Return the tasks whose master is bound, in rows after the uid of its pilot; the others wait.

        Workers and calls are in different rows.
        """
        found: dict[tuple[str | None, bool], list[TaskRecord]] = {}
        for common, row in groupby(tasks, _COMMON):
            is_worker = common.mode == RAPTOR_WORKER
            if common.raptor_id == ANY:
                for task in row:
                    found.setdefault((self._any_pilot(), is_worker), []).append(task)
            else:
                found.setdefault((self._pilot_of(common.raptor_id), is_worker), []).extend(row)
        placed = []
        for (pilot, _), mine in found.items():
            if pilot is None:
                self.waiting.update((task.uid, task) for task in mine)
            else:
                placed.append((pilot, mine))
        return placed

    def ready(self) -> list[tuple[str, list[TaskRecord]]]:
        """Remove and return waiting tasks whose master is bound now, in rows after the uid of its pilot."""
        waiting, self.waiting = self.waiting, {}
        return self.place(waiting.values())

    def forget(self, uid: str) -> TaskRecord | None:
        """Remove and return a waiting task; None if it does not wait."""
        return self.waiting.pop(uid, None)

    def orphans(self) -> list[tuple[TaskRecord, str]]:
        """Remove and return waiting tasks whose master ended without a pilot, or is no master, with the reason."""
        found = []
        for task in list(self.waiting.values()):
            raptor_id = task.common.raptor_id
            if self.is_no_master(raptor_id):
                del self.waiting[task.uid]
                found.append((task, f'raptor_id of {task.uid} is {raptor_id}, which is not a RAPTOR master: its mode '
                                    f'is {self._tasks[raptor_id].common.mode!r}'))
                continue
            masters = list(self._masters.values()) if raptor_id == ANY else [self._masters.get(raptor_id)]
            ended = [master for master in masters if master is not None and master.state in states.FINAL]
            if ended and len(ended) == len(masters):
                del self.waiting[task.uid]
                found.append((task, f'{ended[-1].uid} has ended before it ran the task: {ended[-1].get("exception")}'))
        return found

    def is_no_master(self, raptor_id: str) -> bool:
        """Return whether that is the uid of a task that is not a master."""
        task = self._tasks.get(raptor_id)   # a master may not be registered yet
        return task is not None and task.common.mode != RAPTOR_MASTER

    def may_run(self, task: TaskRecord) -> bool:
        """Return whether a master that the task requests is live, on another pilot or none."""
        return any(master.state not in states.FINAL and (master.place is None or master.place != task.place)
                   for master in self._named(task.common.raptor_id))

    def without_master(self, tasks: Iterable[TaskRecord]) -> list[TaskRecord]:
        """Return one task for each master that tasks request and that was not submitted; final tasks do not count."""
        found = {}
        for common, row in groupby(tasks, lambda task: task.common):
            raptor_id = common.raptor_id
            if raptor_id not in found and not self._named(raptor_id):
                task = next((task for task in row if task.state not in states.FINAL), None)
                if task is not None:
                    found[raptor_id] = task
        return list(found.values())

    def _named(self, raptor_id: str) -> list[TaskRecord]:
        """Return the masters that a `raptor_id` stands for."""
        if raptor_id == ANY:
            return list(self._masters.values())
        master = self._masters.get(raptor_id)
        return [] if master is None else [master]

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
