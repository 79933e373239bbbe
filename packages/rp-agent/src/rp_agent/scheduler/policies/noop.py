"""The policy NOOP: tasks are passed on at once, without a place."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rp_agent.scheduler.policy import Policy
from rp_agent.scheduler.slotmap import Placement
from rp_agent.task import AgentTask


class Noop(Policy):
    """Places nothing: for executors that find room for tasks themselves, and for measurements."""

    def request(self, item: AgentTask) -> Hashable:
        """The same for all."""
        return None

    def place(self, item: AgentTask) -> bool:
        """There is always room."""
        return True

    def candidates(self, item: AgentTask) -> Sequence[int]:
        """No node is ever needed."""
        return ()

    def place_on(self, item: AgentTask, positions: Sequence[int]) -> Placement | None:
        """Nothing is ever placed on nodes."""
        return None
