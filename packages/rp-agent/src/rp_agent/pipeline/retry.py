"""Tasks that run again, on other nodes or in a further attempt: who may, and what is cleared before."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rp_agent.resource_manager.base import Allocation
from rp_agent.task import HISTORY, AgentTask, concerns_raptor
from rp_api.failures.kinds import NODE, PILOT
from rp_api.failures.losses import DEATH, LOST, is_suspect, losses, suspicion
from rp_api.failures.retry_rules import RetryRules
from rp_api.task_info.usage import USAGE, expanded

STARTED = 'scheduler.started'
"""Key in a task's `extra`: when its present attempt has begun to execute."""

ATTRIBUTES = frozenset({'retries', 'expect', 'restartable'})


def concerns_attempts(task: AgentTask) -> bool:
    """Return whether a task has attributes that matter after its run."""
    return not ATTRIBUTES.isdisjoint(task.description)


def limits_of(allocation: Allocation) -> dict[str, float]:
    """Return what a node has, by the attributes of descriptions; what is unknown is missing."""
    found = {'cores_per_rank': allocation.cores_per_node, 'gpus_per_rank': allocation.gpus_per_node,
             'mem_per_rank': allocation.mem_per_node, 'lfs_per_rank': allocation.lfs_per_node}
    return {name: value for name, value in found.items() if value}


def history_of(task: AgentTask) -> Sequence[Mapping[str, Any]]:
    """Return the records of the attempts of a task before the present one."""
    found: Sequence[Mapping[str, Any]] = task.extra.get(HISTORY, ())
    return found


def used(task: AgentTask) -> int:
    """Return the number of attempts of a task that count, with the present one: those that were not lost."""
    history = history_of(task)
    return len(history) - losses(history) + 1


def restarts(task: AgentTask, kind: str = PILOT) -> bool:
    """Return whether a task runs again after its pilot, or a node of it (the kind), was lost."""
    return concerns_attempts(task) and RetryRules(task.description).restarts(kind)


def is_last(task: AgentTask) -> bool:
    """Return whether no other attempt follows the present one, which has failed."""
    rules = RetryRules(task.description)
    return used(task) >= rules.most or not (
        rules.reads_stderr or rules.covers(task.error or {}, task.exit_code, str))


def may_run_again(task: AgentTask, started: bool) -> bool:
    """Return whether a task of a lost node runs again on another one; `started` if it may have run there."""
    if task.cancelled or task.target_state is not None or concerns_raptor(task) or task.description['slots']:
        return False
    return not started or (restarts(task, NODE) and not is_suspect(history_of(task)))


def attempt_record(task: AgentTask, where: str = '', lost: str = '') -> dict[str, Any]:
    """Return the record of a failed or lost attempt for the application; `where` is the directory of its files."""
    record, ran = task.error or {}, expanded(task.run_info())
    placed, started, ended = ran.get('times', (None,) * 3)
    begun = task.extra.pop(STARTED, None)
    found = {'attempt': len(history_of(task)) + 1, 'kind': record.get('kind', ''),
             'reason': record.get('sentence') or task.exception or '', 'exit_code': task.exit_code,
             'signal': record.get('signal'), 'pilot': task.pilot, 'nodes': place_of(task),
             'placed': placed, 'started': started or begun, 'ended': ended or time.time(),
             'usage': ran.get(USAGE), 'sandbox': where, LOST: lost or None}
    return {name: value for name, value in found.items() if value is not None}


def fail_suspect(task: AgentTask, kind: str, reason: str) -> None:
    """Fail a task that is suspected of being the reason why it was lost again and again."""
    task.fail_as(kind, suspicion(task.uid, history_of(task), reason), lost=DEATH)


def place_of(task: AgentTask) -> list[str]:
    """Return the names of the nodes of a task; empty before it is placed."""
    return list(dict.fromkeys(slot['node_name'] for slot in task.slots or ()))
