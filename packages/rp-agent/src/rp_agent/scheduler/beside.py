"""The check that a RAPTOR worker can be placed while its master runs, which ends after its workers.

The policy checks that the pilot is large enough for the worker alone. A worker that needs the resources of its master,
too, would wait for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.policy import shape_of, text
from rp_agent.scheduler.slotmap import Shape, SlotMap
from rp_agent.task import AgentTask, Description
from rp_api.errors import ResourceError

UNLIMITED = 2**31 - 1
"""The highest number of ranks, for counting how many there is room for."""


def refuse_beside(task: AgentTask, master: AgentTask, slots: SlotMap, allocation: Allocation) -> None:
    """Raise `ResourceError` if the nodes that are up, otherwise idle, have no room for a worker beside its master.

    Tags and policies, which limit where ranks may be, are not considered: no worker is refused that could be placed.
    """
    held = master.slots
    if master.target_state is not None or not held or task.description['slots']:
        return
    ranks: int = task.description['ranks']
    every = shape_of(Description({**task.description, 'ranks': UNLIMITED}))
    most = slots.most(every) - _lost(every, allocation, held)
    if most < ranks:
        raise ResourceError(f'{ranks} ranks of {text(every)} are requested, and the {len(slots)} node(s) of the pilot '
                            f'hold {most} beside its master {master.uid}, which leaves '
                            f'{" and ".join(_remaining(every, allocation, held))}')


def _lost(shape: Shape, allocation: Allocation, held: Iterable[Mapping[str, Any]]) -> int:
    """Return how many ranks of a shape less there is room for because of these slots."""
    nodes = {slot['node_index']: allocation.node(slot['node_index']) for slot in held}
    whole = SlotMap(nodes.values()).most(shape)
    for slot in held:
        node = nodes[slot['node_index']]
        for kind in ('mem', 'lfs'):
            node[kind] -= slot[kind]
        for kind in ('cores', 'gpus'):
            for device in slot[kind]:
                there = node[kind][device['index']]
                there['occupation'] = min(1.0, there['occupation'] + device['occupation'])
    return whole - SlotMap(nodes.values()).most(shape)


def _remaining(shape: Shape, allocation: Allocation, held: Collection[Mapping[str, Any]]) -> Iterable[str]:
    """Yield the resources of the pilot that these slots leave, of the kinds that the shape requests."""
    nodes = len(allocation.names)
    for kind, name, requested, there in (('cores', 'cores', shape.cores, allocation.cores),
                                         ('gpus', 'GPUs', shape.gpus or shape.share, allocation.gpus)):
        if requested:
            taken = sum(device['occupation'] for slot in held for device in slot[kind])
            yield f'{there - taken:g} of {there} {name}'
    for kind, requested, there in (('mem', shape.mem, nodes * allocation.mem_per_node),
                                   ('lfs', shape.lfs, nodes * allocation.lfs_per_node)):
        if requested:
            yield f'{there - sum(slot[kind] for slot in held)} of {there} MB {kind}'
