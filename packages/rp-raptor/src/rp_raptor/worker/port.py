"""What the part of a worker's manager that decides needs of the part that acts."""

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
        """Interrupt what the rank does."""

    def kill(self, rank: int, reason: str) -> None:
        """End the rank's process; its death is told as any other."""

    def later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call back in so many seconds."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""
