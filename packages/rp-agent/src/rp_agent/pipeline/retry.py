"""Which tasks of a lost node run again on another one, and how they are made ready for that."""

from __future__ import annotations

from rp_agent.raptor.task_kind import concerns_raptor
from rp_agent.task import AgentTask

MOST = 3
"""Nodes on which a task is started at most: it may be the task that nodes are lost by."""

_LOST = 'scheduler.lost_nodes'


def may_run_again(task: AgentTask, started: bool) -> bool:
    """Whether a task that was on a lost node, where it may have been `started`, is to run on another one."""
    if task.cancelled or task.target_state is not None or concerns_raptor(task) or task.description['slots']:
        return False
    return not started or (bool(task.description['restartable']) and task.extra.get(_LOST, 0) + 1 < MOST)


def reset(task: AgentTask, started: bool) -> None:
    """Forget where a task was; what it had there was given back."""
    task.extra[_LOST] = task.extra.get(_LOST, 0) + started
    task.placement = task.request = task.slots = None
    task.ticket = -1
