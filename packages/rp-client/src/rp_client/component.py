"""Base class of the client's components, whose entities are the application's tasks: only the tracker sets states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rp_api.component import Component, channel_to
from rp_profiling.write.tracer import Tracer


class ClientComponent(Component):
    """A component that passes state changes to `advanced` instead of setting them, and returns what it passes on."""

    def __init__(self, uid: str, tracer: Tracer, advanced: Callable[[Sequence[Any], str], None]) -> None:
        super().__init__(uid, tracer)
        self.advanced = advanced

    def leaving(self, tasks: Sequence[Any]) -> None:
        """Trace tasks that go to the next component."""
        if self.traces_steps:
            for task in tasks:
                self.tracer.record('put', task.uid, task.state, msg=channel_to(task.state))

    def advance(self, tasks: Sequence[Any], state: str) -> None:
        """Trace the state of a bulk, and pass it on."""
        if tasks:
            uids = [task.uid for task in tasks if getattr(task, 'traced', True)]
            self.tracer.record_bulk('advance', uids, state)
            self.advanced(tasks, state)
            if self.traces_steps:
                self.tracer.record_bulk('publish', uids, state)
