"""Tags that select the nodes of a task: `colocate`, `exclusive` and `nodes`.

- `colocate`: any value. Tasks with the same value run on the nodes that the first of them was placed on.
- `exclusive`: if true, the first task of a value of `colocate` is placed on nodes that no other value uses, if the
  pilot has enough of them; it waits until they have room. Otherwise it is placed on any nodes.
- `nodes`: indices or names of nodes. The task runs on as few of these as possible, in this order.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from rp_agent.scheduler.shapes import text
from rp_agent.scheduler.slotmap import Placement, Shape, SlotMap
from rp_api.errors import ResourceError

NAMES = frozenset(('colocate', 'exclusive', 'nodes'))


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
