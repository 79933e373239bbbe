"""Requests that have to be fulfilled on one and the same node, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rp_agent.scheduler.shapes import text
from rp_agent.scheduler.slotmap import Placement, Shape, SlotMap
from rp_api.errors import ResourceError
from rp_api.resources.pool import UNITS


class SameNode(NamedTuple):
    """Shapes for one node; `shape` is one rank that takes as much as all of them, as far as that can be said."""

    shape: Shape
    parts: tuple[Shape, ...]


def on_same_node(parts: Sequence[Shape], node: SlotMap) -> SameNode:
    """The request for these shapes; `ResourceError` if `node`, an empty one, does not hold them all."""
    gpus = sum(part.ranks * part.gpus for part in parts)
    # how shares go on GPUs depends on those that are partly taken, so that only the largest is sure to be needed whole
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
    """A placement for each part on the first node that has room for all of them; None if there is no such node."""
    full: list[int] = []
    while (probe := slots.place(request.shape, full)) is not None:
        position, = set(probe.nodes())
        slots.release(probe)
        placements = place_all(slots, request.parts, position)
        if placements is not None:
            return placements
        full.append(position)   # enough GPUs are partly free there, but not the right parts of them
    return None


def place_all(slots: SlotMap, parts: Sequence[Shape], position: int) -> list[Placement] | None:
    """A placement for each part on this node; None, and nothing is taken, if one finds no room."""
    placements: list[Placement] = []
    for part in parts:
        placement = slots.place_on(part, [position])
        if placement is None:
            slots.release_many(placements)
            return None
        placements.append(placement)
    return placements
