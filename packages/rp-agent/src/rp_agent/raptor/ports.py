"""What the component for RAPTOR needs from the pipeline and from the link to masters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rp_agent.task import AgentTask


class RaptorPorts(Protocol):
    """The link to masters, and the pipeline."""

    environment: Mapping[str, str]
    """Variables of the agent's own environment that those of tasks do not have, or have with other values."""

    def send(self, master: bytes, *message: Any) -> None:
        """Send a message to a master; ValueError if it is too large."""

    def forget(self, master: bytes) -> None:
        """A master is gone, and nothing will be sent to it any more."""

    def refuse(self, why: object) -> None:
        """Note that a message was dropped."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> object:
        """Have something called later."""

    def make(self, uid: str, description: dict[str, Any]) -> AgentTask | None:
        """A task of this pilot; None if there is one of that uid."""

    def enter(self, tasks: list[AgentTask]) -> None:
        """Let tasks into the pipeline."""

    def stage_output(self, tasks: list[AgentTask]) -> None:
        """Let tasks go on that have been executed."""

    def leave(self, tasks: list[AgentTask]) -> None:
        """Let tasks out of the pipeline that have ended otherwise."""

    def cancel(self, tasks: Sequence[AgentTask]) -> None:
        """End tasks that are elsewhere in the pipeline."""

    def master_is_up(self, task: AgentTask, access: dict[str, str]) -> None:
        """A master has said hello."""

    def remove_leftovers(self, master: str, address: str) -> None:
        """Remove what a master may have left behind that has listened at that address."""
