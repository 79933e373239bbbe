"""The policy NOOP: passes on tasks at once, without a placement."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rp_agent.scheduler.policy import Policy
from rp_agent.scheduler.slotmap import Placement
from rp_agent.task import AgentTask


class Noop(Policy):
    """Places nothing, for executors that place tasks themselves, and for measurements."""

    def request(self, item: AgentTask) -> Hashable:
        """Return the same request for all tasks."""
        return None

    def place(self, item: AgentTask) -> bool:
        """Accept the task."""
        return True

    def candidates(self, item: AgentTask) -> Sequence[int]:
        """Return no nodes: tasks never wait for room."""
        return ()

    def place_on(self, item: AgentTask, positions: Sequence[int]) -> Placement | None:
        """Place nothing."""
        return None
