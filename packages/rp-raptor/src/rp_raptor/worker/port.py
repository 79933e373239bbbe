"""The port of the dispatcher: the interface through which its decisions take effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rp_api.loop.event_loop import Timer


class Port(Protocol):
    """Sends messages and signals, and calls back later."""

    def to_master(self, message: list[Any]) -> None:
        """Send a message of `rp_raptor.wire.protocol`."""

    def to_rank(self, rank: int, message: list[Any]) -> None:
        """Send a message of `rp_raptor.wire.rank_protocol`."""

    def signal(self, rank: int) -> None:
        """Interrupt the rank's call."""

    def kill(self, rank: int, reason: str) -> None:
        """Kill the rank; its death is reported as any other."""

    def later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call `callback` after that many seconds."""

    def now(self) -> float:
        """Return the time of the monotonic clock in seconds."""
