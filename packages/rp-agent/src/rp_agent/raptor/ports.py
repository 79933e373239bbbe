"""The interface that the RAPTOR component uses to reach the link to masters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rp_agent.task import AgentTask


class RaptorPorts(Protocol):
    """The link to masters, the clock and the pilot, as the RAPTOR component uses them."""

    environment: Mapping[str, str]
    """Variables of the agent's environment that differ from, or are missing in, that of tasks."""

    def send(self, master: bytes, *message: Any) -> None: ...   # raise ValueError if it is too large
    def forget(self, master: bytes) -> None: ...   # its unacknowledged messages: it has ended
    def refuse(self, why: object) -> None: ...     # count a dropped message
    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> object: ...
    def remove_leftovers(self, master: str, address: str) -> None: ...   # of one that listened at that address
    def close(self) -> None: ...                   # the link; may be called again

    def make(self, uid: str, description: dict[str, Any]) -> AgentTask | None:
        """Return a new task of this pilot; None if there is one of that uid."""
