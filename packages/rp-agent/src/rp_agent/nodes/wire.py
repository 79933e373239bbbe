"""Tasks as plain data, for components that live in another process than Agent_0.

What they ask for and occupy (`request`, `ticket`, `placement`) is known to the scheduler alone and stays in Agent_0,
where a task that comes back is found again by its uid. A component over there fills in a copy, and what it has filled
in comes back. What is as in a fresh task does not travel: most of what could be filled in never is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rp_agent.task import AgentTask

_FILLED_IN = ('state', 'target_state', 'exit_code', 'stdout', 'stderr', 'return_value', 'exception',
              'exception_detail', 'output_files')

_FRESH = AgentTask('', {}, '', '')
_AS_FRESH = tuple((name, getattr(_FRESH, name)) for name in _FILLED_IN)

_OF_SCHEDULER = 'scheduler.'
"""How the keys in `extra` begin under which the scheduler keeps what is only its own."""


def to_wire(task: AgentTask) -> list[Any]:
    """All that a component needs to know of a task; what components read only comes first."""
    return [task.uid, task.description, task.pilot, task.sandbox, task.slots, changes(task)]


def from_wire(data: Sequence[Any]) -> AgentTask:
    """The task that `to_wire` has made plain data of."""
    uid, description, pilot, sandbox, slots, filled_in = data
    task = AgentTask(uid, description, pilot, sandbox)
    task.slots = slots
    apply(task, filled_in)
    return task


def changes(task: AgentTask) -> dict[str, Any]:
    """What components have filled in."""
    found = {name: value for name, fresh in _AS_FRESH if (value := getattr(task, name)) != fresh}
    if task.extra:
        extra = {key: value for key, value in task.extra.items() if not key.startswith(_OF_SCHEDULER)}
        sets = {key: list(extra.pop(key)) for key in [*extra] if isinstance(extra[key], (set, frozenset))}
        found |= {'extra': extra, 'sets': sets}
    return found


def apply(task: AgentTask, filled_in: Mapping[str, Any]) -> None:
    """Fill in the task what was filled in elsewhere."""
    for name, value in filled_in.items():
        if name == 'extra':
            task.extra.update(value)
        elif name == 'sets':
            task.extra.update((key, set(members)) for key, members in value.items())
        elif name in _FILLED_IN:
            setattr(task, name, value)
