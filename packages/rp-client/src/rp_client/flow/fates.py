"""The fates of the tasks of a pilot that has ended without a report on them, or that is drained.

An agent that ends in order reports all tasks that it had. If it has died, nothing is known about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from enum import Enum
from typing import Any

from rp_api import states
from rp_api.description.task import SERVICES
from rp_api.failures.kinds import PILOT
from rp_api.failures.losses import is_suspect
from rp_api.failures.retry_rules import RetryRules
from rp_api.task_modes import SERVICE_MODES
from rp_client.core.pilot import PilotRecord
from rp_client.core.task import RETURNED, TaskRecord


class Fate(Enum):
    """The consequence of the end of a pilot for a task."""

    AGAIN = 'it has not started, and runs elsewhere'
    LOST = 'it may have started, and runs elsewhere again'
    SUSPECT = 'it may be the cause of this end and of earlier ones, and fails'
    ENDED = 'it has ended with its pilot'


def is_ended_by_user(pilot: PilotRecord) -> bool:
    """Return whether a user has ended a pilot, with all tasks that it had."""
    return pilot.state == states.CANCELED and pilot.kept is None


def fate(task: TaskRecord, pilot: PilotRecord, *, moves: bool, unstarted: bool) -> Fate:
    """Return the fate of a task; `moves`: it may run on another pilot; `unstarted`: it has certainly not started."""
    if not moves:
        return Fate.ENDED
    if unstarted:
        return Fate.AGAIN
    if is_ended_by_user(pilot) or not _is_restartable(task):
        return Fate.ENDED
    if not pilot.announced and is_suspect(task.failures):
        return Fate.SUSPECT
    return Fate.LOST


def is_unstarted(task: TaskRecord, pilot: PilotRecord, *, unsent: bool) -> bool:
    """Return whether a pilot that has ended has certainly not started a task; `unsent` if it did not get the task."""
    return (unsent or pilot.never_ran or task.get(RETURNED) == pilot.uid
            or (pilot.kept is not None and task.uid not in pilot.kept))


def _is_restartable(task: TaskRecord) -> bool:
    return task.common.restartable and RetryRules(task.sparse()).restarts(PILOT)


BACK = (states.AGENT_SCHEDULING, states.AGENT_EXECUTING)
"""The states in which an agent returns a task, before or after it was started."""


class Draining:
    """The drained pilots and partitions of one task manager, by uid, and the tasks that are waited for there."""

    def __init__(self) -> None:
        self.places: set[str] = set()
        self.awaited: list[tuple[set[str], Future[None]]] = []

    def begin(self, pilots: Iterable[PilotRecord]) -> set[str]:
        """Add pilots, and return the uids of these and of their partitions."""
        places = {place.uid for pilot in pilots for place in (pilot, *pilot.partitions)}
        self.places |= places
        return places

    def end(self, pilots: Iterable[PilotRecord]) -> None:
        """Remove pilots that get tasks again."""
        self.places -= {place.uid for pilot in pilots for place in (pilot, *pilot.partitions)}

    def wait(self, tasks: Iterable[TaskRecord], drained: Future[None]) -> None:
        """Give `drained` a result when these tasks have left, except those that run until they are stopped."""
        uids = {task.uid for task in tasks if task.common.mode not in SERVICE_MODES}
        if uids:
            self.awaited.append((uids, drained))
        else:
            drained.set_result(None)

    def opened(self, chunk: str, tasks: Iterable[TaskRecord]) -> None:
        """Wait for the tasks of a chunk instead of the chunk."""
        for uids, _ in self.awaited:
            if chunk in uids:
                uids.remove(chunk)
                uids.update([task.uid for task in tasks])

    def left(self, tasks: Iterable[TaskRecord]) -> None:
        """Note tasks that are final, or bound to no pilot any more."""
        gone = [task.uid for task in tasks]
        for uids, drained in list(self.awaited):
            uids.difference_update(gone)
            if not uids:
                self.awaited.remove((uids, drained))
                drained.set_result(None)

    def close(self) -> None:
        """End all waits."""
        awaited, self.awaited = self.awaited, []
        for _, drained in awaited:
            drained.set_result(None)


def may_move(task: TaskRecord) -> bool:
    """Return whether a task that has not started may run on another pilot: not with a master or service on this one."""
    common = task.common
    return not (common.raptor_id or common.pilot or common.mode in SERVICE_MODES or task.sparse().get(SERVICES))


def is_returned(task: TaskRecord, state: str, info: Mapping[str, Any] | None) -> bool:
    """Return whether this update, or record, says that the pilot of a task has returned it, before or after a start."""
    return (state in BACK and info is not None
            and task.place is not None and info.get(RETURNED) == task.place and task.state not in states.FINAL)
