"""The policies CONTINUOUS and TAGGED: first fit over the nodes in their order, within the limits of tags."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.policy import Bounds, Policy, text
from rp_agent.scheduler.slotmap import Placement, Shape, SlotMap
from rp_agent.task import AgentTask
from rp_api.errors import ResourceError
from rp_api.resources.pool import UNITS

NAMES = frozenset(('colocate', 'exclusive', 'nodes'))


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

    def bounds(self, item: AgentTask) -> Bounds:
        """Return the nodes of a tag, and whether the ranks have to be on one node or on adjacent ones."""
        request = item.request
        if isinstance(request, SameNode):
            return Bounds(request.shape, None, 'on one node')
        if isinstance(request, TaggedRequest):
            return self._tags.bounds(request)
        found = super().bounds(item)
        return found if self._scattered or found.shape.ranks == 1 else found._replace(where='on adjacent nodes')

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


class TaggedRequest(NamedTuple):
    """The request of a task with tags."""

    shape: Shape
    colocate: Hashable
    exclusive: bool
    nodes: tuple[int, ...]
    """Positions that the task is pinned to; empty if it is not pinned."""


class Tags:
    """The nodes of each value of `colocate`. `node` is an empty node, used to compute how much fits on one.

    `down` are the positions of lost nodes.
    """

    def __init__(self, slots: SlotMap, names: Sequence[str], node: SlotMap) -> None:
        self._slots = slots
        self._names = names
        self._node = node
        self._nodes: dict[Hashable, tuple[int, ...]] = {}
        self._taken: set[int] = set()
        self.down: frozenset[int] = frozenset()

    def request(self, shape: Shape, tags: Mapping[str, Any]) -> Hashable:
        """Return the request of a task with these tags; raise `ResourceError` if they can never be met."""
        value = tags.get('colocate')
        if tags.get('nodes') is None:
            if value is None:
                return shape
            request = TaggedRequest(shape, _hashable(value), bool(tags.get('exclusive')), ())
        elif value is not None:
            raise ResourceError('the tags colocate and nodes both say where the task runs: use one of them')
        else:
            request = TaggedRequest(shape, None, False, self._positions(tags['nodes']))
        self._refuse_impossible(request, self._allowed(request))
        return request

    def place(self, request: TaggedRequest, set_aside: Collection[int]) -> Placement | None:
        """Return a placement on nodes that the tags allow and that are not set aside; None if there is no room."""
        allowed = self._allowed(request)
        if allowed:
            self._refuse_impossible(request, allowed)   # the nodes of a value are unknown before its first placement
            placement = self._slots.place_on(request.shape, [each for each in allowed if each not in set_aside])
        elif request.exclusive and self._enough_others(request.shape):
            placement = self._slots.place(request.shape, sorted(self._taken))
        else:
            placement = self._slots.place(request.shape)
        if placement is not None:
            self.placed(request, placement)
        return placement

    def placed(self, request: TaggedRequest, placement: Placement) -> None:
        """Assign the nodes of the first task of a value to that value."""
        if not request.nodes and request.colocate not in self._nodes:
            self._nodes[request.colocate] = tuple(dict.fromkeys(placement.nodes()))
            self._taken.update(placement.nodes())

    def candidates(self, request: TaggedRequest) -> Sequence[int]:
        """Return the nodes to reserve for the request."""
        allowed = self._allowed(request)
        if allowed:
            return [position for position in allowed if position not in self.down]
        nodes = self._slots.candidates(request.shape)
        if request.exclusive and not self._taken.isdisjoint(nodes) and self._enough_others(request.shape):
            return ()
        return nodes

    def bounds(self, request: TaggedRequest) -> Bounds:
        """Return the nodes that the tags allow, with the reason."""
        allowed = self._allowed(request)
        if allowed:
            names = ', '.join(self._names[position] for position in allowed[:3])
            which = 'colocate' if request.colocate is not None else 'nodes'
            return Bounds(request.shape, allowed, f'on {names}, to which its tag {which} binds it')
        if request.exclusive and self._enough_others(request.shape):
            others = [position for position in range(len(self._names)) if position not in self._taken]
            return Bounds(request.shape, others, 'on nodes without other tags, as its tag exclusive wants')
        return Bounds(request.shape)

    def _allowed(self, request: TaggedRequest) -> tuple[int, ...]:
        """Return the nodes that the request is bound to, if any."""
        return request.nodes or self._nodes.get(request.colocate, ())

    def _positions(self, nodes: Any) -> tuple[int, ...]:
        if not isinstance(nodes, list | tuple) or not nodes:
            raise ResourceError(f'the tag nodes must be a list of indices or names of nodes, not {nodes!r}')
        return tuple(dict.fromkeys(position for node in nodes for position in self._find(node)))

    def _find(self, node: Any) -> Sequence[int]:
        """Return the positions of the nodes with this name or index."""
        if isinstance(node, str):
            found = [position for position, name in enumerate(self._names) if name == node]
        else:
            found = [node] if isinstance(node, int) and 0 <= node < len(self._names) else []
        if not found:
            raise ResourceError(f'the tag nodes names the node {node!r}, which the pilot does not have: its nodes have '
                                f'the numbers 0 to {len(self._names) - 1} and names like {self._names[0]!r}')
        return found

    def _refuse_impossible(self, request: TaggedRequest, allowed: Sequence[int]) -> None:
        if allowed and not self._hold(request.shape, len(set(allowed) - self.down)):
            why = (f'colocate {request.colocate!r} binds it to' if request.colocate is not None else 'nodes pins it to')
            where = ', '.join(map(str, allowed))
            shape_text = f'{request.shape.ranks} rank(s) of {text(request.shape)}'
            raise ResourceError(f'the tag {why} the node(s) {where}, which cannot hold {shape_text}')

    def _enough_others(self, shape: Shape) -> bool:
        """Return whether the nodes without a value can hold the shape when they are empty."""
        return self._hold(shape, len(self._names) - len(self._taken | self.down))

    def _hold(self, shape: Shape, nodes: int) -> bool:
        return nodes * self._node.most(shape) >= shape.ranks


def _hashable(value: Any) -> Hashable:
    """Return the value, or its text if it is unhashable: tags can be lists and dicts."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value   # type: ignore[no-any-return]


class SameNode(NamedTuple):
    """Shapes for one node. `shape` is a single rank with a lower bound of their total."""

    shape: Shape
    parts: tuple[Shape, ...]


def on_same_node(parts: Sequence[Shape], node: SlotMap) -> SameNode:
    """Return the request for these shapes; raise `ResourceError` if `node`, an empty one, does not hold them all."""
    gpus = sum(part.ranks * part.gpus for part in parts)
    # packing of shares depends on partly used GPUs: only the largest share is certainly needed on one GPU
    share = max((part.share / UNITS for part in parts), default=0) if not gpus else 0
    shape = Shape(cores=sum(part.ranks * part.cores for part in parts), gpus=gpus or share,
                  mem=sum(part.ranks * part.mem for part in parts), lfs=sum(part.ranks * part.lfs for part in parts))
    placements = place_all(node, parts, 0)
    if placements is None:
        ranks = sum(part.ranks for part in parts)
        raise ResourceError(f'{ranks} ranks that take {text(shape)} together have to be on one node, and no node of '
                            'the pilot holds them')
    node.release_many(placements)
    return SameNode(shape, tuple(parts))


def place_on_same_node(slots: SlotMap, request: SameNode) -> list[Placement] | None:
    """Return a placement per part on the first node with room for all of them; None if there is no such node."""
    full: list[int] = []
    while (probe := slots.place(request.shape, full)) is not None:
        position, = set(probe.nodes())
        slots.release(probe)
        placements = place_all(slots, request.parts, position)
        if placements is not None:
            return placements
        full.append(position)   # free GPU shares are enough in total, but not for each part
    return None


def place_all(slots: SlotMap, parts: Sequence[Shape], position: int) -> list[Placement] | None:
    """Return a placement per part on this node; take nothing and return None if one part has no room."""
    placements: list[Placement] = []
    for part in parts:
        placement = slots.place_on(part, [position])
        if placement is None:
            slots.release_many(placements)
            return None
        placements.append(placement)
    return placements
