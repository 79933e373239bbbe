"""The policy NOOP: passes on tasks at once, without a placement."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rp_agent.scheduler.policy import Policy
from rp_agent.scheduler.slotmap import Placement
from rp_agent.task import AgentTask


class Noop(Policy):
    """Places nothing, for executors that place tasks themselves, and for measurements."""

    def request(self, item: AgentTask) -> Hashable:
        return None

    def place(self, item: AgentTask) -> bool:
        return True

    def candidates(self, item: AgentTask) -> Sequence[int]:
        return ()

    def place_on(self, item: AgentTask, positions: Sequence[int]) -> Placement | None:
        return None
