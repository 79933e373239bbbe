"""The test for RAPTOR's tasks, in a module of its own: pilots without RAPTOR load no other module of the package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rp_agent.task import AgentTask
from rp_api.constants import RAPTOR_MASTER, RAPTOR_WORKER
from rp_api.raptor_link import RPC

_MODES = (RAPTOR_MASTER, RAPTOR_WORKER, RPC)


def is_call(description: Mapping[str, Any]) -> bool:
    """Return whether a description is that of a task which a master runs: no component changes it."""
    return bool(description.get('raptor_id')) and description.get('mode') not in _MODES


def concerns_raptor(task: AgentTask) -> bool:
    """Return whether a task is a master, a worker, or for a master."""
    description = task.description
    # most tasks have neither
    return (('mode' in description or 'raptor_id' in description)
            and (description['mode'] in _MODES or bool(description['raptor_id'])))


def divided(tasks: Iterable[AgentTask]) -> tuple[list[AgentTask], list[AgentTask]]:
    """Return the tasks that concern RAPTOR, and the others."""
    theirs: list[AgentTask] = []
    others: list[AgentTask] = []
    before, goes_to = None, others
    for task in tasks:
        if task.description is not before:   # calls share theirs
            before, goes_to = task.description, theirs if concerns_raptor(task) else others
        goes_to.append(task)
    return theirs, others
