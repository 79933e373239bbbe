"""Components: pipeline stages that take bulks of entities in one state and pass them on in the next.

Components do not use sockets, threads or processes. The code that builds a pipeline connects them: `output` receives
processed bulks, `advanced` state changes.

A component always traces the states that it sets. The steps in between, `get`, `publish` and `put`, happen at the same
moments in a pipeline of direct calls; they are traced if the tracer's detail is `full`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rp_profiling.write.tracer import Tracer


def _unwired(*_: Any) -> None:
    raise RuntimeError('this component is not wired to another one')


class Component:
    """The base class of components; subclasses implement `put`, which calls `received`."""

    def __init__(self, uid: str, tracer: Tracer) -> None:
        self.uid = uid
        self.tracer = tracer
        self.output: Callable[[list[Any]], None] = _unwired
        self.advanced: Callable[[Sequence[Any], str], None] = _unwired
        self.traces_steps = tracer.full_detail
        self._closed = False
        tracer.record('component_init', uid=uid)

    def connect(self, output: Callable[[list[Any]], None], advanced: Callable[[Sequence[Any], str], None]) -> None:
        """Set the receivers of processed bulks and of state changes."""
        self.output = output
        self.advanced = advanced

    def __contains__(self, uid: object) -> bool:
        """Return whether an entity with this uid is here, which leaves by itself."""
        return False

    def put(self, tasks: list[Any]) -> Any:
        """Take a bulk of entities in the component's input state; this must not block."""
        raise TypeError(f'{type(self).__name__} takes no input')

    def received(self, entities: Iterable[Any]) -> None:
        """Trace the arrival of entities, before they are advanced."""
        if self.traces_steps:
            for entity in entities:
                self.tracer.record('get', entity.uid, entity.state)

    def advance(self, tasks: Sequence[Any], state: str) -> None:
        """Set the state of all entities of a bulk, trace and publish it."""
        if not tasks:
            return
        uids = []
        for task in tasks:   # one loop instead of comprehensions: most bulks have one task
            task.state = state
            uids.append(task.uid)
        self.tracer.record_bulk('advance', uids, state)
        self.advanced(tasks, state)
        if self.traces_steps:
            self.tracer.record_bulk('publish', uids, state)

    def forward(self, tasks: list[Any]) -> None:
        """Pass a bulk to the next component."""
        if self.traces_steps:
            for task in tasks:
                self.tracer.record('put', task.uid, task.state, msg=channel_to(task.state))
        self.output(tasks)

    def dropped(self, entities: Iterable[Any]) -> None:
        """Trace entities that go no further because they were ended meanwhile."""
        for entity in entities:
            self.tracer.record('drop', entity.uid, entity.state)

    def close(self) -> None:
        """Record the end of the component and close its trace."""
        if not self._closed:
            self._closed = True
            self.tracer.record('component_final', uid=self.uid)
            self.tracer.close()


def channel_to(state: str) -> str:
    """Return the name of the channel in which entities in a pending state wait, such as `agent_scheduling_queue`."""
    return f'{state.lower().removesuffix("_pending")}_queue'
