"""The policy HOMBRE: all tasks have the same shape, and each gets an equal chunk of the nodes."""

from __future__ import annotations

from collections.abc import Hashable

from rp_agent.scheduler.policy import Policy, text
from rp_agent.scheduler.slotmap import Shape
from rp_agent.task import AgentTask
from rp_api.errors import ResourceError


class Hombre(Policy):
    """Places tasks with the shape of the first task, and refuses others.

    All tasks wait in one queue, and the resources of a finished task always fit the next one.
    """

    _chunk: Shape | None = None

    def request(self, item: AgentTask) -> Hashable:
        """Return the common shape."""
        shape = self.shapes.of(item.description)
        if self._chunk is None:
            self._chunk = shape
        elif shape != self._chunk:
            raise ResourceError(f'the scheduler HOMBRE takes only tasks that are all alike: the first one requests '
                                f'{_size(self._chunk)}, this one requests {_size(shape)}')
        return self._chunk


def _size(shape: Shape) -> str:
    limit = f', at most {shape.ranks_per_node} on a node' if shape.ranks_per_node else ''
    return f'{shape.ranks} rank(s) of {text(shape)}{limit}'
