"""Requests whose parts must be placed on the same node, all or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rp_agent.scheduler.shapes import text
from rp_agent.scheduler.slotmap import Placement, Shape, SlotMap
from rp_api.errors import ResourceError
from rp_api.resources.pool import UNITS


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
