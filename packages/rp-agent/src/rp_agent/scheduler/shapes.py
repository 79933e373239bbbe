"""Shapes of task descriptions, and the check that the pilot's nodes can hold them."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from rp_agent.scheduler.slotmap import Shape, SlotMap
from rp_api.errors import ResourceError
from rp_api.resources.pool import UNITS

_VALUES = itemgetter('ranks', 'cores_per_rank', 'gpus_per_rank', 'mem_per_rank', 'lfs_per_rank', 'ranks_per_node')


class Shapes:
    """Cache of shapes: one shape for all tasks with equal requests, checked against the slot map once."""

    def __init__(self, slots: SlotMap) -> None:
        self._slots = slots
        self._found: dict[tuple[Any, ...], Shape] = {}

    def of(self, description: Mapping[str, Any]) -> Shape:
        """Return the shape of a task description; raise `ResourceError` if it can never be placed."""
        values = _VALUES(description)
        found = self._found.get(values)
        if found is None:
            found = shape_of(description)
            refuse_impossible(self._slots, found)
            self._found[values] = found
        return found

    def forget(self) -> None:
        """Clear the cache, so that shapes are checked against the slot map again."""
        self._found.clear()


def shape_of(description: Mapping[str, Any]) -> Shape:
    """Return the shape of a task description."""
    ranks, cores, gpus, mem, lfs, ranks_per_node = _VALUES(description)
    return Shape(ranks, cores, gpus, mem, lfs, ranks_per_node or 0)


def refuse_impossible(slots: SlotMap, shape: Shape) -> None:
    """Raise `ResourceError` if the nodes that are up cannot hold the shape even when they are empty."""
    most = slots.most(shape)
    if most < shape.ranks:
        where = f'the {len(slots)} node(s) of the pilot'
        if most:
            limit = f', at most {shape.ranks_per_node} on a node,' if shape.ranks_per_node else ''
            raise ResourceError(f'{shape.ranks} ranks of {text(shape)}{limit} are requested, {where} hold {most}')
        raise ResourceError(f'none of {where} has {_too_much(slots, shape)} for a rank')


def text(shape: Shape) -> str:
    """Return the resources of a rank of the shape, for messages."""
    return ' and '.join(_parts(shape)) or 'no cores'


def _parts(shape: Shape) -> dict[str, Shape]:
    """Return the resources of a rank by kind: a text, and a shape with this kind only."""
    share = shape.share / UNITS
    parts = {f'{shape.cores} cores': Shape(cores=shape.cores)} if shape.cores else {}
    if shape.gpus or shape.share:
        parts[f'{shape.gpus} GPUs' if shape.gpus else f'{share:g} of a GPU'] = Shape(cores=0, gpus=shape.gpus or share)
    if shape.mem:
        parts[f'{shape.mem} MB mem'] = Shape(cores=0, mem=shape.mem)
    if shape.lfs:
        parts[f'{shape.lfs} MB lfs'] = Shape(cores=0, lfs=shape.lfs)
    return parts


def _too_much(slots: SlotMap, shape: Shape) -> str:
    """Return the resources that no node has, or all of them if each is available on its own."""
    alone = [what for what, part in _parts(shape).items() if not slots.most(part)]
    return ' and '.join(alone) or text(shape)
