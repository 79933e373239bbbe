"""The outbox: tasks to be sent to the coordinator, by the pilot that they are bound to, and how they are packed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from rp_api.batch import Batch
from rp_api.coordination.contract import BULK
from rp_client.core.pilot import PilotRecord
from rp_client.core.sweep import FINAL, ChunkRecord
from rp_client.core.task import TaskRecord

MESSAGES_MAX = 4
"""Messages, one per shared description, in which a bulk of tasks is sent at most; more are sent as one message."""


class Outbox:
    """The tasks of one task manager that are to be sent, in the order in which they are sent; true if there are any."""

    def __init__(self) -> None:
        self._unbound: dict[str, TaskRecord] = {}
        self._boxes: dict[PilotRecord | None, dict[str, TaskRecord]] = {}

    def __bool__(self) -> bool:
        return bool(self._boxes)

    def keep(self, tasks: Iterable[TaskRecord]) -> bool:
        """Add tasks that are bound to no pilot yet, or never will be, unless the coordinator has them."""
        new = {task.uid: task for task in tasks if not task.stored}
        if new:
            self._boxes.setdefault(None, self._unbound).update(new)
        return bool(new)

    def add(self, pilot: PilotRecord, tasks: Iterable[TaskRecord]) -> None:
        """Add tasks that are bound to a pilot; they are not sent unbound before."""
        added = {task.uid: task for task in tasks}
        self._boxes.setdefault(pilot, {}).update(added)
        for uid in self._unbound.keys() & added.keys() if self._unbound else ():
            del self._unbound[uid]

    def next(self) -> tuple[PilotRecord | None, list[TaskRecord]]:
        """Remove and return the next message: its pilot, and tasks, if there are any; pilots take turns."""
        pilot, box = next(iter(self._boxes.items()))
        del self._boxes[pilot]
        tasks: list[TaskRecord] = []
        for task in box.values():   # a chunk is sent alone
            is_chunk = isinstance(task, ChunkRecord)
            if not (is_chunk and tasks):
                tasks.append(task)
            if is_chunk or len(tasks) == BULK:
                break
        for task in tasks:
            del box[task.uid]
        if box:
            self._boxes[pilot] = box   # behind the others
        return pilot, tasks

    def bound(self) -> list[PilotRecord]:
        """Return the pilots that tasks are to be sent to."""
        return [pilot for pilot in self._boxes if pilot is not None]

    def take(self, pilot: PilotRecord, wanted: Mapping[str, TaskRecord] | None = None) -> list[TaskRecord]:
        """Remove and return those of the tasks that are bound to a pilot; None: all."""
        box = self._boxes.get(pilot, {})
        if wanted is None:
            self._boxes.pop(pilot, None)
            return list(box.values())
        return [box.pop(uid) for uid in wanted if uid in box]

    def forget(self, uids: Sequence[str]) -> None:
        """Remove tasks."""
        for box in self._boxes.values():
            for uid in uids:
                box.pop(uid, None)

    def check(self) -> set[str]:
        """Return the tasks that are bound; raise AssertionError if an entry is wrong."""
        for task in self._unbound.values():
            assert not task.stored, task
        found: set[str] = set()
        for pilot in self.bound():
            for uid, task in self._boxes[pilot].items():
                assert (task.pilot, task.state in FINAL) == (pilot, False), task
                assert uid not in found | self._unbound.keys(), task
                found.add(uid)
        return found


def uids_of(task: TaskRecord) -> list[str]:
    """Return the uids by which the coordinator knows a task, or a chunk of tasks."""
    return task.unpacked().uids if isinstance(task, ChunkRecord) and not task.whole else [task.uid]


def batches(tasks: Sequence[TaskRecord]) -> list[Batch]:
    """Return the batches that insert new tasks: one for each row with a shared description, unless there are many."""
    if tasks and isinstance(tasks[0], ChunkRecord):   # it is alone
        return [Batch(tasks[0].common.packed, tasks[0].unpacked())]
    alike = [list(row) for _, row in groupby(tasks, attrgetter('common'))]
    if len(alike) > MESSAGES_MAX:
        return [Batch.of([(task.uid, task.sparse()) for task in tasks])]
    return [Batch(row[0].common.packed, [(task.uid, task.own) for task in row]) for row in alike]
