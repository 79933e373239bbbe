"""The wire form of tasks, for components in other processes than Agent_0.

The scheduler's attributes (`request`, `ticket`, `placement`) stay in Agent_0. A component in another process fills in a
copy of the task, and Agent_0 applies the changes to its own task of that uid. Attributes with the value of a new task
are left out: most of them are never set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rp_agent.task import AgentTask

_FILLED_IN = ('state', 'target_state', 'exit_code', 'stdout', 'stderr', 'return_value', 'exception',
              'exception_detail', 'error', 'output_files')

_FRESH = AgentTask('', {}, '', '')
_AS_FRESH = tuple((name, getattr(_FRESH, name)) for name in _FILLED_IN)

_OF_SCHEDULER = 'scheduler.'
"""Prefix of the scheduler's keys in `extra`, which stay in Agent_0."""


def to_wire(task: AgentTask) -> list[Any]:
    """Return a task as plain data: attributes that components only read, then the changes."""
    return [task.uid, task.description, task.pilot, task.sandbox, task.slots, changes(task)]


def from_wire(data: Sequence[Any]) -> AgentTask:
    """Return the task for the result of `to_wire`."""
    uid, description, pilot, sandbox, slots, filled_in = data
    task = AgentTask(uid, description, pilot, sandbox)
    task.slots = slots
    apply(task, filled_in)
    return task


def changes(task: AgentTask) -> dict[str, Any]:
    """Return the attributes that components have set."""
    found = {name: value for name, fresh in _AS_FRESH if (value := getattr(task, name)) != fresh}
    if task.extra:
        extra = {key: value for key, value in task.extra.items() if not key.startswith(_OF_SCHEDULER)}
        sets = {key: list(extra.pop(key)) for key in [*extra] if isinstance(extra[key], (set, frozenset))}
        found |= {'extra': extra, 'sets': sets}
    return found


def apply(task: AgentTask, filled_in: Mapping[str, Any]) -> None:
    """Apply changes of another process to a task."""
    for name, value in filled_in.items():
        if name == 'extra':
            task.extra.update(value)
        elif name == 'sets':
            task.extra.update((key, set(members)) for key, members in value.items())
        elif name in _FILLED_IN:
            setattr(task, name, value)
