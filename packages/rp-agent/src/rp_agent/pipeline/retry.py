"""Retry of the tasks of a lost node on other nodes."""

from __future__ import annotations

from rp_agent.raptor.task_kind import concerns_raptor
from rp_agent.task import AgentTask

MOST = 3
"""Most nodes on which a task is started: the task itself may be the reason for the loss of its nodes."""

_LOST = 'scheduler.lost_nodes'


def may_run_again(task: AgentTask, started: bool) -> bool:
    """Return whether a task of a lost node runs again on another one; `started` if it may have run there."""
    if task.cancelled or task.target_state is not None or concerns_raptor(task) or task.description['slots']:
        return False
    return not started or (bool(task.description['restartable']) and task.extra.get(_LOST, 0) + 1 < MOST)


def reset(task: AgentTask, started: bool) -> None:
    """Clear the placement of a task, whose resources were freed."""
    task.extra[_LOST] = task.extra.get(_LOST, 0) + started
    task.placement = task.request = task.slots = None
    task.ticket = -1
