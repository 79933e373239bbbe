"""The test for RAPTOR's tasks, in a module of its own: pilots without RAPTOR load no other module of the package."""

from __future__ import annotations

from rp_agent.task import AgentTask
from rp_api.constants import RAPTOR_MASTER, RAPTOR_WORKER
from rp_api.raptor_link import RPC

_MODES = (RAPTOR_MASTER, RAPTOR_WORKER, RPC)


def concerns_raptor(task: AgentTask) -> bool:
    """Return whether a task is a master, a worker, or for a master."""
    description = task.description
    # most tasks have neither
    return (('mode' in description or 'raptor_id' in description)
            and (description['mode'] in _MODES or bool(description['raptor_id'])))
