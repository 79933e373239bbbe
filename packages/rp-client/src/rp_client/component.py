"""Base class of the client's components, whose entities are the application's tasks: only the tracker sets states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rp_api.component import Component


class ClientComponent(Component):
    """A component that passes state changes to `advanced` instead of setting them."""

    def advance(self, tasks: Sequence[Any], state: str) -> None:
        """Trace the state of a bulk, and pass it on."""
        if tasks:
            uids = [task.uid for task in tasks if getattr(task, 'traced', True)]
            self.tracer.record_bulk('advance', uids, state)
            self.advanced(tasks, state)
            if self.traces_steps:
                self.tracer.record_bulk('publish', uids, state)
