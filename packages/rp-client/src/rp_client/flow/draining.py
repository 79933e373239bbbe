"""Pilots that are being drained: tasks that have not started run on other pilots, the others finish where they are.

The client takes back what it has not sent. It commands the agents of the pilots to return the rest of what has not
started; an agent reports a returned task with the info `returned`, which names the pilot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from rp_api import states
from rp_api.description.task import SERVICES
from rp_api.task_modes import SERVICE_MODES
from rp_client.pilot import Pilot
from rp_client.task import RETURNED, Task


class Draining:
    """The drained pilots and partitions of one task manager, by uid, and the tasks that are waited for there."""

    def __init__(self) -> None:
        self.places: set[str] = set()
        self._awaited: list[tuple[set[str], Future[None]]] = []

    def begin(self, pilots: Iterable[Pilot]) -> set[str]:
        """Add pilots, and return the uids of these and of their partitions."""
        places = {place.uid for pilot in pilots for place in (pilot, *pilot.partitions)}
        self.places |= places
        return places

    def end(self, pilots: Iterable[Pilot]) -> None:
        """Remove pilots that get tasks again."""
        self.places -= {place.uid for pilot in pilots for place in (pilot, *pilot.partitions)}

    def wait(self, tasks: Iterable[Task], drained: Future[None]) -> None:
        """Give `drained` a result when these tasks have left, except those that run until they are stopped."""
        uids = {task.uid for task in tasks if task._common.mode not in SERVICE_MODES}
        if uids:
            self._awaited.append((uids, drained))
        else:
            drained.set_result(None)

    def opened(self, chunk: str, tasks: Iterable[Task]) -> None:
        """Wait for the tasks of a chunk instead of the chunk."""
        for uids, _ in self._awaited:
            if chunk in uids:
                uids.remove(chunk)
                uids.update([task.uid for task in tasks])

    def left(self, tasks: Iterable[Task]) -> None:
        """Note tasks that are final, or bound to no pilot any more."""
        if not self._awaited:
            return
        gone = [task.uid for task in tasks]
        for uids, drained in list(self._awaited):
            uids.difference_update(gone)
            if not uids:
                self._awaited.remove((uids, drained))
                drained.set_result(None)

    def close(self) -> None:
        """End all waits."""
        awaited, self._awaited = self._awaited, []
        for _, drained in awaited:
            drained.set_result(None)


def may_move(task: Task) -> bool:
    """Return whether a task that has not started may run on another pilot: not with a master or service on this one."""
    common = task._common
    return not (common.raptor_id or common.pilot or common.mode in SERVICE_MODES or task._sparse().get(SERVICES))


def is_returned(task: Task, state: str, info: Mapping[str, Any] | None) -> bool:
    """Return whether this update, or record, says that the pilot of a task has returned it, before or after a start."""
    return (state in (states.AGENT_SCHEDULING, states.AGENT_EXECUTING) and info is not None
            and task._place is not None and info.get(RETURNED) == task._place and task.state not in states.FINAL)
