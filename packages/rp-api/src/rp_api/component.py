"""What a component is: an object that takes bulks of entities in one state and gives bulks in the next.

A component knows nothing about sockets, threads or processes. Whoever wires a pipeline sets `output` (where bulks go
that the component is done with) and `advanced` (who is told about state changes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rp_profiling.write.tracer import Tracer


def _unwired(*_: Any) -> None:
    raise RuntimeError('this component is not wired to another one')


class Component:
    """Base of all components; `put` is what a sub-class has to provide."""

    def __init__(self, uid: str, tracer: Tracer) -> None:
        self.uid = uid
        self.tracer = tracer
        self.output: Callable[[list[Any]], None] = _unwired
        self.advanced: Callable[[Sequence[Any], str], None] = _unwired
        self._closed = False
        tracer.record('component_init', uid=uid)

    def put(self, tasks: list[Any]) -> None:
        """Take a bulk of entities in the component's input state; must not block."""
        raise TypeError(f'{type(self).__name__} takes no input')

    def advance(self, tasks: Sequence[Any], state: str) -> None:
        """Set the state of all entities of the bulk, trace it and have it published."""
        if not tasks:
            return
        uids = []
        for task in tasks:   # in one go, and without a function for the list: most bulks are of one task
            task.state = state
            uids.append(task.uid)
        self.tracer.record_bulk('advance', uids, state)
        self.advanced(tasks, state)

    def close(self) -> None:
        """Record the end of the component and close its trace."""
        if not self._closed:
            self._closed = True
            self.tracer.record('component_final', uid=self.uid)
            self.tracer.close()
