"""The policies CONTINUOUS and TAGGED: first fit over the nodes in their order, within the limits of tags."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.policy import Policy
from rp_agent.scheduler.same_node import SameNode, on_same_node, place_on_same_node
from rp_agent.scheduler.shapes import text
from rp_agent.scheduler.slotmap import Placement, Shape, SlotMap
from rp_agent.scheduler.tagged import NAMES, TaggedRequest, Tags
from rp_agent.task import AgentTask
from rp_api.errors import ResourceError


class Continuous(Policy):
    """Places a task on the first node with room for it, else on as few adjacent nodes as possible.

    The ranks of a task that is not an MPI task (`use_mpi` is False) stay on one node. If the platform sets `scattered`
    to False, the nodes of a task are always adjacent.
    """

    def __init__(self, slots: SlotMap, allocation: Allocation, config: Mapping[str, Any]) -> None:
        super().__init__(slots, allocation, config)
        self._node = SlotMap([allocation.node(0)], allocation.domains)
        self._tags = Tags(slots, allocation.names, self._node)
        self._scattered = bool(self.platform.get('scattered', True))

    def request(self, item: AgentTask) -> Hashable:
        """Return a shape, or a special request for tasks with tags and for tasks that must stay on one node."""
        return self._request(item.description)

    def place(self, item: AgentTask) -> bool:
        request = item.request
        if type(request) is Shape and self._scattered:
            item.placement = placement = self.slots.place(request)
            return placement is not None
        item.placement = self._place(request)
        return item.placement is not None

    def candidates(self, item: AgentTask) -> Sequence[int]:
        """Return the nodes that a tag names, else the nodes that can hold the task."""
        request = item.request
        if isinstance(request, Shape):
            return self.slots.candidates(request) if self._scattered else self._neighbours(request)
        if isinstance(request, SameNode):
            return self.slots.candidates(request.shape)
        return self._tags.candidates(request)

    def place_on(self, item: AgentTask, positions: Sequence[int]) -> Placement | None:
        request = item.request
        shape = request.parts[0] if isinstance(request, SameNode) else getattr(request, 'shape', request)
        item.placement = placement = self.slots.place_on(shape, positions)
        if placement is not None and isinstance(request, TaggedRequest):
            self._tags.placed(request, placement)
        return placement

    def nodes_changed(self, down: Collection[int]) -> None:
        super().nodes_changed(down)
        self._tags.down = frozenset(down)

    def _request(self, description: Mapping[str, Any]) -> Hashable:
        shape = self.shapes.of(description)
        tags = description['tags']
        if tags and not NAMES.isdisjoint(tags):
            return self._tags.request(shape, tags)
        if shape.ranks > 1 and description['use_mpi'] is False:
            return on_same_node([shape], self._node)
        if not self._scattered and not self._neighbours(shape):
            raise ResourceError(f'{shape.ranks} ranks of {text(shape)} are requested, and no neighbouring nodes are '
                                'left that could hold them')
        return shape

    def _place(self, request: Any) -> Placement | None:
        if isinstance(request, SameNode):
            placements = place_on_same_node(self.slots, request)
            return placements[0] if placements else None
        if not isinstance(request, Shape):
            return self._tags.place(request, self.set_aside)
        placement = self.slots.place(request)
        if placement is not None and not are_neighbours(placement.nodes()):
            self.slots.release(placement)
            return None
        return placement

    def _neighbours(self, shape: Shape) -> Sequence[int]:
        """Return the first adjacent nodes that hold the shape when they are empty; empty if there are none."""
        length = -(-shape.ranks // self._node.most(shape))
        runs = (range(first, first + length) for first in range(len(self.slots) - length + 1))
        return next(filter(self._tags.down.isdisjoint, runs), ())


def are_neighbours(positions: Collection[int]) -> bool:
    """Return whether the positions have no gaps."""
    return max(positions) - min(positions) < len(set(positions))
