"""The needs of tasks, in a module of its own: agents whose tasks have none load no other module of the package."""

from __future__ import annotations

from reprlib import repr as short
from typing import NamedTuple

from rp_agent.task import AgentTask
from rp_api.errors import DescriptionError

ENVIRONMENT = 'environment'
SERVICE = 'service'
PILOT = 'pilot'
"""Kinds of needs; that of the kind PILOT is `services`, the services of the pilot's description."""


class Need(NamedTuple):
    """Something that a task needs before it can be scheduled: its kind, and its name among those of that kind."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f'{self.kind} {self.name}'.rstrip()


def has_needs(task: AgentTask) -> bool:
    """Return whether a task needs anything besides resources; most do not."""
    description = task.description
    return ('named_env' in description or 'services' in description) and bool(
        description['named_env'] or description['services'])


def needs_of(task: AgentTask) -> list[Need]:
    """Return the needs of a task, in the order in which it waits for them.

    Raises:
        DescriptionError: They are no names.
    """
    environment, services = task.description['named_env'], task.description['services']
    if environment and not isinstance(environment, str):
        raise DescriptionError(f'named_env is {short(environment)}, it must be a name')
    if not isinstance(services or [], list) or not all(isinstance(name, str) for name in services or ()):
        raise DescriptionError(f'services is {short(services)}, it must be a list of names')
    needs = [Need(SERVICE, name) for name in services or ()]
    if environment:
        needs.insert(0, Need(ENVIRONMENT, environment))
    return needs
