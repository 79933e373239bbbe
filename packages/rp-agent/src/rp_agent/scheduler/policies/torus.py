"""The policy TORUS: compact blocks of whole nodes on an n-dimensional torus.

The platform definition has the shape of the torus as `system_architecture.torus`, a list of extents such as
[4, 4, 4, 8, 2]. Nodes are numbered row by row; the last dimension is the fastest.

A task gets a block with as few whole nodes as can hold it. Each extent of a block divides that of the torus, and each
coordinate of its corner is a multiple of the extent in that dimension, so that blocks leave no gaps between each other.
Among the shapes with the same number of nodes, the policy selects those with the smallest diameter (where the block
spans a dimension of the torus, the wrap-around halves the distance), and among these, the shapes with the shortest
longest side. It places the task on the first block whose nodes are all idle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.policy import Bounds, Policy, text
from rp_agent.scheduler.slotmap import Placement, Shape, SlotMap
from rp_agent.task import BLOCK, AgentTask
from rp_api.errors import PlatformError, ResourceError

Extents = tuple[int, ...]


class TorusBlock(NamedTuple):
    """A block of nodes on the torus."""

    corner: Extents
    shape: Extents
    nodes: tuple[int, ...]


class Grid:
    """The nodes of a torus, and their division into blocks."""

    def __init__(self, extents: Extents) -> None:
        self.extents = extents
        self.nodes = math.prod(extents)
        self._divisors = [[part for part in range(1, extent + 1) if extent % part == 0] for extent in extents]
        self._blocks: dict[int, list[TorusBlock]] = {}

    def blocks(self, nodes: int) -> list[TorusBlock]:
        """Return all blocks for a task that needs this number of nodes, in the order in which they are tried."""
        if nodes not in self._blocks:
            self._blocks[nodes] = [block for shape in self._shapes(nodes) for block in self._cut(shape)]
        return self._blocks[nodes]

    def _shapes(self, nodes: int) -> list[Extents]:
        """Return the most compact shapes with the smallest sufficient number of nodes."""
        shapes = [shape for shape in itertools.product(*self._divisors) if math.prod(shape) >= nodes]
        ranks = [(math.prod(shape), self._diameter(shape), max(shape)) for shape in shapes]
        return [shape for shape, rank in zip(shapes, ranks, strict=True) if rank == min(ranks)]

    def _diameter(self, shape: Extents) -> int:
        """Return the number of steps between the most distant nodes of a block."""
        return sum(part // 2 if part == extent else part - 1 for part, extent in zip(shape, self.extents, strict=True))

    def _cut(self, shape: Extents) -> Iterator[TorusBlock]:
        """Yield the blocks of a shape, in the order of their corners."""
        corners = itertools.product(*(range(0, extent, part)
                                      for extent, part in zip(self.extents, shape, strict=True)))
        for corner in corners:
            sides = (range(first, first + part) for first, part in zip(corner, shape, strict=True))
            yield TorusBlock(corner, shape, tuple(map(self._position, itertools.product(*sides))))

    def _position(self, coordinates: Extents) -> int:
        position = 0
        for coordinate, extent in zip(coordinates, self.extents, strict=True):
            position = position * extent + coordinate
        return position


class BlockRequest(NamedTuple):
    """The shape of a task, and the number of nodes that it needs."""

    shape: Shape
    nodes: int


class Torus(Policy):
    """Places each task on its own block."""

    def __init__(self, slots: SlotMap, allocation: Allocation, config: Mapping[str, Any]) -> None:
        super().__init__(slots, allocation, config)
        self._grid = Grid(_extents(self.platform, len(slots)))
        self._node = SlotMap([allocation.node(0)], allocation.domains)
        self._down: frozenset[int] = frozenset()
        self._rest: dict[Placement, list[Placement]] = {}
        """By placement of a task, the placements that hold the unused nodes of its block."""

    def request(self, item: AgentTask) -> Hashable:
        """Return the shape and the number of nodes; raise `ResourceError` if all blocks for it are lost."""
        shape = self.shapes.of(item.description)
        nodes = -(-shape.ranks // self._node.most(shape))
        if not any(self._down.isdisjoint(block.nodes) for block in self._grid.blocks(nodes)):
            raise ResourceError(f'each block of {nodes} node(s) or more on the torus {_text(self._grid.extents)} has '
                                'a node that is down')
        return BlockRequest(shape, nodes)

    def place(self, item: AgentTask) -> bool:
        """Place a task on the first idle block."""
        unusable = self._down.union(self.set_aside)
        for block in self._grid.blocks(item.request.nodes):
            if self._idle(block.nodes) and unusable.isdisjoint(block.nodes):
                self._place(item, block)
                return True
        return False

    def release(self, tasks: Sequence[AgentTask]) -> Sequence[Placement]:
        freed = [*super().release(tasks)]
        rest = [placement for each in freed for placement in self._rest.pop(each)]
        self.slots.release_many(rest)
        return freed + rest

    def bounds(self, item: AgentTask) -> Bounds:
        """Return that a task needs a block of idle nodes."""
        return Bounds(item.request.shape, None, f'in a block of {item.request.nodes} idle nodes of the torus')

    def candidates(self, item: AgentTask) -> Sequence[int]:
        """Return the nodes of the block with the most idle nodes."""
        blocks = [block for block in self._grid.blocks(item.request.nodes)
                  if self._down.isdisjoint(block.nodes)]
        return max(blocks, key=lambda block: sum(map(self.slots.idle, block.nodes))).nodes if blocks else ()

    def place_on(self, item: AgentTask, positions: Sequence[int]) -> Placement | None:
        """Place a task on the block with these nodes."""
        blocks = self._grid.blocks(item.request.nodes)
        block = next(block for block in blocks if block.nodes == tuple(positions))
        return self._place(item, block) if self._idle(block.nodes) else None

    def nodes_changed(self, down: Collection[int]) -> None:
        super().nodes_changed(down)
        self._down = frozenset(down)

    def _idle(self, positions: Sequence[int]) -> bool:
        return all(map(self.slots.idle, positions))

    def _place(self, task: AgentTask, block: TorusBlock) -> Placement:
        """Take a whole block whose nodes are idle and up."""
        placement = _taken(self.slots, task.request.shape, block.nodes)
        spare = set(block.nodes).difference(placement.nodes())
        self._rest[placement] = [_taken(self.slots, Shape(cores=0), [position]) for position in sorted(spare)]
        task.placement = placement
        task.extra[BLOCK] = {'corner': block.corner, 'shape': block.shape,
                             'corner_node': self.allocation.names[block.nodes[0]]}
        return placement


def _taken(slots: SlotMap, shape: Shape, positions: Sequence[int]) -> Placement:
    """Return a placement that takes idle nodes as a whole."""
    placement = slots.place_on(shape, positions, whole=True)
    assert placement is not None, f'nodes {positions} are idle, but do not hold {text(shape)}'
    return placement


def _extents(platform: Mapping[str, Any], nodes: int) -> Extents:
    """Return the shape of the torus; raise `PlatformError` if it is missing or does not match the pilot's nodes."""
    value = (platform.get('system_architecture') or {}).get('torus')
    if (not isinstance(value, list | tuple) or not value
            or not all(isinstance(extent, int) and extent > 0 for extent in value)):
        raise PlatformError('the scheduler TORUS needs the shape of the torus in the platform definition, as '
                            f'system_architecture.torus: a list of extents such as [4, 4, 2], not {value!r}')
    if math.prod(value) != nodes:
        raise PlatformError(f'system_architecture.torus is {_text(tuple(value))}, which are {math.prod(value)} nodes, '
                            f'but the pilot has {nodes}')
    return tuple(value)


def _text(extents: Extents) -> str:
    return 'x'.join(map(str, extents))
