"""What a resource manager finds out: the nodes of a pilot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Domain = tuple[tuple[int, ...], tuple[int, ...]]
"""The indices of the cores and of the GPUs of a NUMA domain."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the pilot description asks for; 0 where it does not say."""

    nodes: int
    cores: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """The nodes of a pilot, all alike; cores are hardware threads where the platform counts several on a core."""

    names: tuple[str, ...]
    cores_per_node: int
    """Those that tasks may use: blocked ones are not counted."""
    gpus_per_node: int
    """Those that tasks may use: blocked ones are not counted."""
    mem_per_node: int
    """MB; 0 if unknown."""
    lfs_per_node: int
    """MB; 0 if unknown."""
    blocked_cores: tuple[int, ...] = ()
    """Indices of cores on each node that are left to the system."""
    blocked_gpus: tuple[int, ...] = ()
    domains: tuple[Domain, ...] = ()
    """NUMA domains of each node."""
    threads_per_core: int = 1
    cpus: tuple[int, ...] = ()
    """The numbers that the operating system gives to the cores of a node; empty if tasks must not be bound to them."""

    def node(self, index: int) -> dict[str, Any]:
        """One of the nodes as plain data, everything free but what is blocked."""
        return {'index': index, 'name': self.names[index],
                'cores': _devices(self.cores_per_node, self.blocked_cores),
                'gpus': _devices(self.gpus_per_node, self.blocked_gpus),
                'lfs': self.lfs_per_node, 'mem': self.mem_per_node}

    def node_list(self) -> list[dict[str, Any]]:
        """The nodes as plain data, everything free but what is blocked."""
        return [self.node(index) for index in range(len(self.names))]

    def __str__(self) -> str:
        """For messages: how many nodes there are, and what each of them has."""
        return (f'{len(self.names)} node(s), each with {self.cores_per_node} cores, {self.gpus_per_node} GPUs, '
                f'{self.mem_per_node} MB mem and {self.lfs_per_node} MB lfs')

    def details(self) -> dict[str, Any]:
        """What the application gets to see as `Pilot.resource_details`."""
        return {'node_list': self.node_list(), 'cores_per_node': self.cores_per_node,
                'gpus_per_node': self.gpus_per_node, 'mem_per_node': self.mem_per_node,
                'lfs_per_node': self.lfs_per_node, 'threads_per_core': self.threads_per_core,
                'requested_nodes': len(self.names), 'cores': self.cores_per_node * len(self.names),
                'gpus': self.gpus_per_node * len(self.names)}


def _devices(usable: int, blocked: tuple[int, ...]) -> list[dict[str, Any]]:
    return [{'index': index, 'occupation': None if index in blocked else 0.0}
            for index in range(usable + len(blocked))]
