"""The nodes of a pilot, and the search for slots over all of them.

A search is all or nothing. All slots lie on the first node that has room for all of them. If there is none, they lie on
the first run of as few idle neighbours as can hold them; otherwise, repeatedly, on the first of the nodes with the most
room for the remaining slots. An agent places tasks by the same rule.

Hopeless searches are fast: a request that failed is remembered, and one that requires at least as much fails at once
until resources are released. A node without room for a slot of some shape is skipped by searches for that shape until
resources are released on it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from threading import RLock
from typing import Any, ClassVar, NamedTuple

from rp_api.errors import ResourceError
from rp_api.record import Record, anything, field
from rp_api.resources.claim import AMOUNTS, KINDS, Shape, SlotConflict, requirements
from rp_api.resources.node import Node
from rp_api.resources.numa import NumaDomainMap, NumaNode
from rp_api.resources.pool import bits, ensure
from rp_api.resources.slots import RankRequirements, Slot

_MAX_LIMITS = 1_000  # maximum number of request shapes whose limits are remembered
_MAX_SHAPES = 50  # maximum number of shapes whose full nodes are remembered: each release updates all of them
_SIZES = ('cores_per_node', 'gpus_per_node', 'lfs_per_node', 'mem_per_node')


class NodesDiffer(ResourceError, RuntimeError):
    """Slots cannot be searched for, because the nodes of the list differ."""


class Request(NamedTuple):
    """A search: the number of slots, their shape, and the maximum number on one node."""

    shape: Shape
    n_slots: int
    per_node: int

    def covers(self, other: Request) -> bool:
        """Return whether this requires at least as much as `other`."""
        return (self.n_slots >= other.n_slots and self.per_node <= other.per_node
                and self.shape.covers(other.shape))


class Memory:
    """A cache of search results of a node list."""

    __slots__ = ('_all', '_open', 'failed', 'limits', 'positions', 'stale')

    def __init__(self, nodes: list[Node]) -> None:
        self.positions = {node['index']: position for position, node in enumerate(nodes)}
        self.stale = False  # a node was redefined: all nodes must be read again
        self.failed: Request | None = None
        # by request: the maximum number of slots on one node, and on all nodes
        self.limits: dict[tuple[Shape, int], tuple[int, int]] = {}
        self._all = (1 << len(nodes)) - 1
        self._open: dict[Shape, int] = {}  # by shape, a mask of the nodes that may have room for a slot

    def open(self, shape: Shape) -> int:
        """Return the nodes that may have room for a slot of the shape, as a mask of their positions."""
        return self._open.get(shape, self._all)

    def close(self, shape: Shape, position: int) -> None:
        """Record that a node has no room for a slot of the shape."""
        if shape not in self._open and len(self._open) >= _MAX_SHAPES:
            self._open.clear()
        self._open[shape] = self.open(shape) & ~(1 << position)

    def reopen(self, index: int) -> None:
        """Record that a node may have room again."""
        self.failed = None
        bit = 1 << self.positions[index] if index in self.positions else self._all
        for shape in self._open:
            self._open[shape] |= bit

    def closed(self) -> Iterator[tuple[Shape, int]]:
        """Yield shapes, and positions of nodes that have no room for a slot of them."""
        for shape, mask in self._open.items():
            yield from ((shape, position) for position in bits(self._all & ~mask))


class NodeList(Record):
    """A list of nodes; `uniform` if they are equal, with the size of each (None where they differ)."""

    __slots__ = ('_lock', '_memory')
    NODE: ClassVar[type[Node]] = Node

    nodes: list[Node] = field(anything, list)
    uniform: bool = field(anything, True)
    cores_per_node: int | None = field(anything, 0)
    gpus_per_node: int | None = field(anything, 0)
    lfs_per_node: int | None = field(anything, 0)
    mem_per_node: int | None = field(anything, 0)

    def __init__(self, from_dict: Mapping[str, Any] | None = None, **values: Any) -> None:
        self._lock = RLock()
        self._memory = Memory([])
        super().__init__(from_dict, **values)
        for name in AMOUNTS:  # the totals of nodes that were partly in use when the list was sent
            for node in self['nodes']:
                node.have_at_least(name, self[f'{name}_per_node'] or 0)
        self.verify()

    def __setitem__(self, name: str, value: Any) -> None:
        if name == 'nodes':
            value = [self._node(node) for node in self._cast(name, value)]
        super().__setitem__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ({'nodes': list(self['nodes'])},)

    def verify(self) -> None:
        """Update the list after nodes were added or removed (a search does so as well).

        Raises:
            ResourceError: Two nodes have the same index.
        """
        with self._lock:
            nodes = self['nodes']
            self._memory = Memory(nodes)
            if len(self._memory.positions) < len(nodes):
                twice = Counter(node['index'] for node in nodes).most_common(1)[0][0]
                raise ResourceError(f'more than one node has the index {twice}')
            sizes = {node.size() for node in nodes}
            dict.__setitem__(self, 'uniform', len(sizes) <= 1)
            for name, values in zip(_SIZES, zip(*sizes, strict=True) if sizes else [(0,)] * 4, strict=True):
                dict.__setitem__(self, name, values[0] if len(set(values)) == 1 else None)
            for node in nodes:
                node.watch(self._freed)

    def find_slots(self, rr: RankRequirements | Mapping[str, Any], n_slots: int = 1,
                   ranks_per_node: int | None = None) -> list[Slot] | None:
        """Occupy and return slots.

        Args:
            rr: The requirements of each slot.
            n_slots: The number of slots.
            ranks_per_node: The maximum number of slots on one node; None for no limit.

        Returns:
            The slots, or None if not enough are free at present.

        Raises:
            ResourceError: The idle nodes could not fulfil the request (a ValueError).
            NodesDiffer: The nodes are not equal (a RuntimeError).
        """
        rr = requirements(rr)
        with self._lock:
            request = self._request(rr, n_slots, ranks_per_node)
            if self._most(request)[1] < n_slots:
                raise ResourceError(self._refusal(request, rr))
            failed = self._memory.failed
            if failed is not None and request.covers(failed):
                return None
            slots = self._search(request)
            if slots is None:
                self._memory.failed = request
            return slots

    def release_slots(self, slots: Slot | Mapping[str, Any] | Iterable[Slot | Mapping[str, Any]]) -> None:
        """Release slots.

        Raises:
            SlotConflict: Some slots are not (or no longer) occupied; the others are released.
        """
        refused = []
        for each in [slots] if isinstance(slots, Mapping) else slots:
            slot = each if isinstance(each, Slot) else Slot(each)
            position = self._memory.positions.get(slot['node_index'])
            try:
                if position is None:
                    raise SlotConflict(f'slot is for node {slot["node_index"]}, which is not in the list')
                self['nodes'][position].deallocate_slot(slot)
            except SlotConflict as error:
                refused.append(str(error))
        if refused:
            raise SlotConflict('; '.join(refused))

    def check(self) -> None:
        """Raise an AssertionError if an invariant of a node or of the cache is violated."""
        with self._lock:
            for node in self['nodes']:
                node.check()
            for shape, position in self._memory.closed():
                ensure(not self['nodes'][position].room(shape, 1), f'node at {position} is taken for full for {shape}')
            failed = self._memory.failed
            ensure(failed is None or self._plan(failed) is None, f'{failed} is taken for impossible')

    def _node(self, node: Any) -> Node:
        """Return the node as an instance of `NODE`; an instance is returned as it is."""
        if isinstance(node, self.NODE):
            return node
        if not isinstance(node, Mapping):
            raise ResourceError(f'nodes must be {self.NODE.__name__}s or dicts, not {node!r}')
        return self.NODE(node)

    def _request(self, rr: RankRequirements, n_slots: int, ranks_per_node: int | None) -> Request:
        """Return the request in units; raise ResourceError or NodesDiffer if it is invalid."""
        for name, value in ('n_slots', n_slots), ('ranks_per_node', ranks_per_node):
            if value is not None and value < 1:
                raise ResourceError(f'{name} must be at least 1, not {value}')
        if self._memory.stale or len(self._memory.positions) != len(self['nodes']):
            self.verify()
        if not self['uniform']:
            sizes = {node.size() for node in self['nodes']}
            raise NodesDiffer(f'nodes differ in (cores, gpus, lfs, mem): {sorted(sizes)}')
        return Request(Shape.of(rr), n_slots, ranks_per_node or sys.maxsize)

    def _most(self, request: Request) -> tuple[int, int]:
        """Return the maximum number of slots of the shape on one node, and on all nodes."""
        key, limits = (request.shape, request.per_node), self._memory.limits
        if key not in limits:
            if len(limits) >= _MAX_LIMITS:
                limits.clear()
            most = [node.most(*key) for node in self['nodes']]
            limits[key] = max(most, default=0), sum(most)
        return limits[key]

    def _refusal(self, request: Request, rr: RankRequirements) -> str:
        has = [node.capacity() for node in self['nodes']]
        cores, gpus, lfs, mem = (max((each[name] for each in has), default=0) for name in KINDS + AMOUNTS)
        cap = f', at most {request.per_node} on a node' if request.per_node < request.n_slots else ''
        return (f'{request.n_slots} slot(s) of [{rr}] each{cap} can never fit: there are {len(has)} node(s), '
                f'with {cores} cores, {gpus} GPUs, {lfs} MB lfs and {mem} MB mem each')

    def _search(self, request: Request) -> list[Slot] | None:
        if request.n_slots == 1:  # needs no plan
            return self._take_one(request.shape)
        plan = self._plan(request)
        if plan is None:
            return None
        slots: list[Slot] = []
        for node, number in plan:
            slots += node.take(request.shape, number)
        if len(slots) < request.n_slots:  # a node was occupied directly after planning
            self.release_slots(slots)
            return None
        return slots

    def _take_one(self, shape: Shape) -> list[Slot] | None:
        nodes: list[Node] = self['nodes']
        for position in bits(self._memory.open(shape)):
            slots = nodes[position].take(shape, 1)
            if slots:
                return slots
            self._memory.close(shape, position)
        return None

    def _plan(self, request: Request) -> list[tuple[Node, int]] | None:
        """Return the nodes to use and the number of slots on each, or None if there is not enough room."""
        nodes, limit, rooms = self['nodes'], min(request.n_slots, request.per_node), {}
        for position in bits(self._memory.open(request.shape)):
            room = nodes[position].room(request.shape, limit)
            if room == request.n_slots:
                return [(nodes[position], room)]
            if room:
                rooms[position] = room
            else:
                self._memory.close(request.shape, position)
        if sum(rooms.values()) < request.n_slots:
            return None
        chosen = self._on_run(request, rooms) or _on_roomiest(request.n_slots, rooms)
        return [(nodes[position], number) for position, number in chosen]

    def _on_run(self, request: Request, rooms: Mapping[int, int]) -> list[tuple[int, int]] | None:
        """Return positions and numbers of slots on the first run of as few idle nodes as can hold them.

        None if there is no such run, or if cores or GPUs in it are down.
        """
        length, idle = -(-request.n_slots // self._most(request)[0]), 0
        for position, node in enumerate(self['nodes']):
            idle = idle + 1 if node.is_idle() else 0
            if idle == length:
                return _filled(request.n_slots, range(position - length + 1, position + 1), rooms)
        return None

    def _freed(self, node: Node, redefined: bool) -> None:
        """Handle a release on a node, or its redefinition."""
        with self._lock:
            self._memory.reopen(node['index'])
            self._memory.stale |= redefined


class NumaNodeList(NodeList):
    """A list of nodes with NUMA domains; `numa_domain_map` applies to nodes without a map of their own."""

    __slots__ = ()
    NODE: ClassVar[type[Node]] = NumaNode

    def __init__(self, from_dict: Mapping[str, Any] | None = None,
                 numa_domain_map: Mapping[Any, Any] | None = None, **values: Any) -> None:
        given = {**(from_dict or {}), **values}
        if numa_domain_map is not None:
            shared = NumaDomainMap(numa_domain_map)
            given['nodes'] = [self._with_map(node, shared) for node in given.get('nodes') or []]
        super().__init__(given)

    @staticmethod
    def _with_map(node: Any, shared: NumaDomainMap) -> Any:
        if isinstance(node, NumaNode) or not isinstance(node, Mapping):
            return node
        return NumaNode(node, node.get('numa_domain_map') or shared)


def _filled(n_slots: int, positions: Iterable[int], rooms: Mapping[int, int]) -> list[tuple[int, int]] | None:
    """Return positions and numbers of slots, filling each node in turn; None if there is not enough room."""
    chosen = []
    for position in positions:
        number = min(n_slots, rooms.get(position, 0))
        if number:
            chosen.append((position, number))
            n_slots -= number
    return None if n_slots else chosen


def _on_roomiest(n_slots: int, rooms: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return positions and numbers of slots on the fewest nodes; there must be enough room."""
    chosen: list[tuple[int, int]] = []
    largest_first = sorted(rooms, key=lambda position: (-rooms[position], position))
    while n_slots > rooms[largest_first[len(chosen)]]:
        position = largest_first[len(chosen)]
        chosen.append((position, rooms[position]))
        n_slots -= rooms[position]
    left = largest_first[len(chosen):]
    return [*chosen, (min(position for position in left if rooms[position] >= n_slots), n_slots)]
