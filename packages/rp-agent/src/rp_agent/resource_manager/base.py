"""What a resource manager finds out: the nodes of a pilot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """What the pilot description asks for; 0 where it does not say."""

    nodes: int
    cores: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """The nodes of a pilot, all alike."""

    names: tuple[str, ...]
    cores_per_node: int
    gpus_per_node: int
    mem_per_node: int
    """MB; 0 if unknown."""
    lfs_per_node: int
    """MB; 0 if unknown."""

    def node_list(self) -> list[dict[str, Any]]:
        """The nodes as plain data, everything free."""
        return [{'index': index, 'name': name,
                 'cores': [{'index': core, 'occupation': 0.0} for core in range(self.cores_per_node)],
                 'gpus': [{'index': gpu, 'occupation': 0.0} for gpu in range(self.gpus_per_node)],
                 'lfs': self.lfs_per_node, 'mem': self.mem_per_node}
                for index, name in enumerate(self.names)]

    def details(self) -> dict[str, Any]:
        """What the application gets to see as `Pilot.resource_details`."""
        return {'node_list': self.node_list(), 'cores_per_node': self.cores_per_node,
                'gpus_per_node': self.gpus_per_node, 'mem_per_node': self.mem_per_node,
                'lfs_per_node': self.lfs_per_node, 'threads_per_core': 1,
                'requested_nodes': len(self.names), 'cores': self.cores_per_node * len(self.names),
                'gpus': self.gpus_per_node * len(self.names)}
