"""The needs of tasks, in a module of its own: agents whose tasks have none load no other module of the package."""

from __future__ import annotations

from typing import NamedTuple

from rp_agent.task import AgentTask

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
    return ('named_env' in description or 'services' in description) and bool(needs_of(task))


def needs_of(task: AgentTask) -> list[Need]:
    """Return the needs of a task, in the order in which it waits for them."""
    description = task.description
    environment = description['named_env']
    needs = [Need(SERVICE, name) for name in description['services']]
    if environment:
        needs.insert(0, Need(ENVIRONMENT, environment))
    return needs
