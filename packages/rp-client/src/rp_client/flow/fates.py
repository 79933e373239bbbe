"""What becomes of the tasks that a pilot had when it ended, and on which its agent has not reported an end.

An agent that ends in order reports all tasks that it had. If it has died, nothing is known about them.
"""

from __future__ import annotations

from enum import Enum

from rp_api import states
from rp_api.failures.kinds import PILOT
from rp_api.failures.losses import is_suspect
from rp_api.failures.retry_rules import RetryRules
from rp_client.pilot import Pilot
from rp_client.task import RETURNED, Task


class Fate(Enum):
    """The consequence of the end of a pilot for a task."""

    AGAIN = 'it has not started, and runs elsewhere'
    LOST = 'it may have started, and runs elsewhere again'
    SUSPECT = 'it may be the cause of this end and of earlier ones, and fails'
    ENDED = 'it has ended with its pilot'


def is_ended_by_user(pilot: Pilot) -> bool:
    """Return whether a user has ended a pilot, with all tasks that it had."""
    return pilot.state == states.CANCELED and pilot._kept is None


def fate(task: Task, pilot: Pilot, *, moves: bool, unstarted: bool) -> Fate:
    """Return the fate of a task; `moves`: it may run on another pilot; `unstarted`: it has certainly not started."""
    if not moves:
        return Fate.ENDED
    if unstarted:
        return Fate.AGAIN
    if is_ended_by_user(pilot) or not _is_restartable(task):
        return Fate.ENDED
    if not pilot._announced and is_suspect(task._failures):
        return Fate.SUSPECT
    return Fate.LOST


def is_unstarted(task: Task, pilot: Pilot, *, unsent: bool) -> bool:
    """Return whether a pilot that has ended has certainly not started a task; `unsent` if it did not get the task."""
    return (unsent or pilot._never_ran or task._get(RETURNED) == pilot.uid
            or (pilot._kept is not None and task.uid not in pilot._kept))


def _is_restartable(task: Task) -> bool:
    return task._common.restartable and RetryRules(task._sparse()).restarts(PILOT)
