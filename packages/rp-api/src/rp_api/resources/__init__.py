"""The resources of a pilot: nodes with cores and GPUs, and the slots that ranks of tasks occupy on them.

Applications can place tasks themselves: `nodes.find_slots(RankRequirements(n_cores=2), n_slots=4)` occupies and returns
four slots, or returns None; `nodes.release_slots(slots)` frees them. All types are dict-like, plain data on the wire,
and thread-safe.
"""

from __future__ import annotations

from rp_api.resources.claim import SlotConflict
from rp_api.resources.node import Node
from rp_api.resources.nodelist import NodeList, NodesDiffer, NumaNodeList
from rp_api.resources.numa import NumaDomain, NumaDomainMap, NumaNode
from rp_api.resources.slots import RO, RankRequirements, ResourceOccupation, Slot

__all__ = [
    'RO', 'Node', 'NodeList', 'NodesDiffer', 'NumaDomain', 'NumaDomainMap', 'NumaNode', 'NumaNodeList',
    'RankRequirements', 'ResourceOccupation', 'Slot', 'SlotConflict',
]
