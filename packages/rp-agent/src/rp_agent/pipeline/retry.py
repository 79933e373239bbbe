"""Tasks that run again, on other nodes or in a further attempt: who may, and what is cleared before."""

from __future__ import annotations

from rp_agent.raptor.task_kind import concerns_raptor
from rp_agent.resource_manager.base import Allocation
from rp_agent.task import HISTORY, AgentTask
from rp_api.failures.kinds import NODE
from rp_api.failures.retry_rules import RetryRules

_ATTRIBUTES = frozenset({'retries', 'expect', 'restartable'})


def concerns_attempts(task: AgentTask) -> bool:
    """Return whether a task has attributes that matter after its run."""
    return not _ATTRIBUTES.isdisjoint(task.description)


def limits_of(allocation: Allocation) -> dict[str, float]:
    """Return what a node has, by the attributes of descriptions; what is unknown is missing."""
    found = {'cores_per_rank': allocation.cores_per_node, 'gpus_per_rank': allocation.gpus_per_node,
             'mem_per_rank': allocation.mem_per_node, 'lfs_per_rank': allocation.lfs_per_node}
    return {name: value for name, value in found.items() if value}


def used(task: AgentTask) -> int:
    """Return the number of attempts of a task, with the present one."""
    return len(task.extra.get(HISTORY, ())) + 1


def may_run_again(task: AgentTask, started: bool) -> bool:
    """Return whether a task of a lost node runs again on another one; `started` if it may have run there."""
    if task.cancelled or task.target_state is not None or concerns_raptor(task) or task.description['slots']:
        return False
    rules = RetryRules(task.description)
    return not started or (used(task) < rules.most and rules.covers({'kind': NODE}, None, str))


def place_of(task: AgentTask) -> list[str]:
    """Return the names of the nodes of a task; empty before it is placed."""
    return list(dict.fromkeys(slot['node_name'] for slot in task.slots or ()))


def reset(task: AgentTask) -> None:
    """Clear the placement of a task, whose resources were freed."""
    task.placement = task.request = task.slots = None
    task.ticket = -1
