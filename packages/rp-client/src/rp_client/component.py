"""Components of the client: their entities are the application's handles, whose states only the tracker may change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rp_api.component import Component


class ClientComponent(Component):
    """A component that has its state changes carried out by those who listen to `advanced`."""

    def advance(self, tasks: Sequence[Any], state: str) -> None:
        """Trace the state of a bulk and have it carried out and published."""
        if tasks:
            self.tracer.record_bulk('advance', [task.uid for task in tasks], state)
            self.advanced(tasks, state)
