"""Tasks as plain data, for components that live in another process than Agent_0.

What they ask for and occupy (`request`, `ticket`, `placement`) is known to the scheduler alone and stays in Agent_0,
where a task that comes back is found again by its uid. A component over there fills in a copy, and what it has filled
in comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_agent.task import AgentTask

_GIVEN = ('uid', 'description', 'pilot', 'sandbox', 'slots')
"""What components read only."""

_FILLED_IN = ('state', 'target_state', 'exit_code', 'stdout', 'stderr', 'return_value', 'exception',
              'exception_detail', 'output_files')

_OF_SCHEDULER = 'scheduler.'
"""How the keys in `extra` begin under which the scheduler keeps what is only its own."""


def to_wire(task: AgentTask) -> dict[str, Any]:
    """All that a component needs to know of a task."""
    return {name: getattr(task, name) for name in _GIVEN} | changes(task)


def from_wire(data: Mapping[str, Any]) -> AgentTask:
    """The task that `to_wire` has made plain data of."""
    task = AgentTask(data['uid'], data['description'], data['pilot'], data['sandbox'])
    task.slots = data['slots']
    apply(task, data)
    return task


def changes(task: AgentTask) -> dict[str, Any]:
    """What components fill in."""
    found = {name: getattr(task, name) for name in _FILLED_IN}
    extra = {key: value for key, value in task.extra.items() if not key.startswith(_OF_SCHEDULER)}
    sets = {key: list(extra.pop(key)) for key in [key for key in extra if isinstance(extra[key], (set, frozenset))]}
    return found | {'uid': task.uid, 'extra': extra, 'sets': sets}


def apply(task: AgentTask, data: Mapping[str, Any]) -> None:
    """Fill in the task what was filled in elsewhere."""
    for name in _FILLED_IN:
        setattr(task, name, data[name])
    task.extra.update(data['extra'])
    task.extra.update((key, set(value)) for key, value in data['sets'].items())
