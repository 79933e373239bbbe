"""The interface that the RAPTOR component uses to reach the pipeline and the link to masters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rp_agent.task import AgentTask


class RaptorPorts(Protocol):
    """The link to masters and the pipeline, as the RAPTOR component uses them."""

    environment: Mapping[str, str]
    """Variables of the agent's environment that differ from, or are missing in, that of tasks."""

    def send(self, master: bytes, *message: Any) -> None:
        """Send a message to a master; raise ValueError if it is too large."""

    def forget(self, master: bytes) -> None:
        """Discard the unacknowledged messages for a master that has ended."""

    def refuse(self, why: object) -> None:
        """Count a dropped message."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> object:
        """Call back after `delay` seconds."""

    def make(self, uid: str, description: dict[str, Any]) -> AgentTask | None:
        """Return a new task of this pilot; None if there is one of that uid."""

    def enter(self, tasks: list[AgentTask]) -> None:
        """Put tasks into the pipeline."""

    def stage_output(self, tasks: list[AgentTask]) -> None:
        """Pass executed tasks to output staging."""

    def leave(self, tasks: list[AgentTask]) -> None:
        """Take tasks out of the pipeline that end without output staging."""

    def cancel(self, tasks: Sequence[AgentTask]) -> None:
        """Cancel tasks in any component."""

    def master_is_up(self, task: AgentTask, access: dict[str, str]) -> None:
        """Report that a master is up."""

    def waits(self, tasks: Sequence[AgentTask], text: str, state: str) -> None:
        """Report what tasks in that state wait for; nothing if the text is empty."""

    def remove_leftovers(self, master: str, address: str) -> None:
        """Remove the files of a master that listened at that address."""
