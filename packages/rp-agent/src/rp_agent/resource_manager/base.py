"""The request and the allocation of a pilot: input and output of every resource manager."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any

Domain = tuple[tuple[int, ...], tuple[int, ...]]
"""Core indices and GPU indices of a NUMA domain."""


@dataclass(frozen=True, slots=True)
class Request:
    """The resources that the pilot description requests; 0 where it gives no number."""

    nodes: int
    cores: int
    gpus: int
    backup_nodes: int = 0
    """Additional nodes of the batch job, which replace unhealthy ones."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The nodes of a pilot. A core is a hardware thread if the platform counts several threads per core.

    All nodes have the same number of devices, except those in `smaller`.
    """

    names: tuple[str, ...]
    cores_per_node: int
    """Usable cores, without blocked ones."""
    gpus_per_node: int
    """Usable GPUs, without blocked ones."""
    mem_per_node: int
    """Memory in MB; 0 if unknown."""
    lfs_per_node: int
    """Local storage in MB; 0 if unknown."""
    blocked_cores: tuple[int, ...] = ()
    """Core indices on each node that are reserved for the system."""
    blocked_gpus: tuple[int, ...] = ()
    domains: tuple[Domain, ...] = ()
    """NUMA domains of each node."""
    threads_per_core: int = 1
    cpus: tuple[int, ...] = ()
    """Operating-system CPU numbers of the cores on the agent's host; empty if tasks must not be bound."""
    gpu_ids: tuple[str, ...] = ()
    """Names of the GPUs on that host for a visible-devices variable; empty if they are named by index."""
    smaller: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Usable cores and GPUs of each node that has fewer than the others, by position."""
    elsewhere: tuple[int, ...] = ()
    """Positions of nodes that are not the agent's host."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Additional values for launch methods and the application."""
    hint: str = ''
    """A sentence that tells the application about unused or shared resources; empty without a hint."""
    unreserved: Allocation | None = None
    """The allocation with the nodes that are reserved for sub-agents; None if no node is reserved."""

    def reserve(self, number: int) -> Allocation:
        """Return the allocation without its last `number` nodes, which `whole` still has at their positions."""
        if not number:
            return self
        left = len(self.names) - number
        return replace(self, names=self.names[:left], unreserved=self,
                       smaller={position: devices for position, devices in self.smaller.items() if position < left},
                       elsewhere=tuple(position for position in self.elsewhere if position < left))

    @property
    def whole(self) -> Allocation:
        """The allocation with all nodes of the pilot, including reserved ones."""
        return self.unreserved or self

    @property
    def reserved(self) -> range:
        """Positions of the nodes that are reserved for sub-agents."""
        return range(len(self.names), len(self.whole.names))

    @property
    def here(self) -> list[int] | None:
        """Positions of the nodes that are the agent's host; None if all nodes are."""
        return sorted({*range(len(self.names))}.difference(self.elsewhere)) if self.elsewhere else None

    def devices(self, index: int) -> tuple[int, int]:
        """Return the number of usable cores and GPUs of a node."""
        return self.smaller.get(index, (self.cores_per_node, self.gpus_per_node))

    @property
    def unlike(self) -> tuple[int, ...]:
        """Positions of nodes with other numbers of cores or GPUs than the agent's host."""
        if not self.smaller or not self.here:
            return ()
        own = self.devices(self.here[0])
        return tuple(index for index in self.elsewhere if self.devices(index) != own)

    def all_devices(self, index: int) -> tuple[int, tuple[int, ...], int]:
        """Return the number of all cores of a node, the indices of the blocked ones, and the number of all GPUs."""
        cores, gpus = self.devices(index)
        blocked_cores, blocked_gpus = self.blocked_cores, self.blocked_gpus
        if index in self.smaller:
            blocked_cores, blocked_gpus = below(cores, blocked_cores), below(gpus, blocked_gpus)
        return cores + len(blocked_cores), blocked_cores, gpus + len(blocked_gpus)

    @property
    def cores(self) -> int:
        """Number of usable cores on all nodes."""
        return sum(self.devices(index)[0] for index in range(len(self.names)))

    @property
    def gpus(self) -> int:
        """Number of usable GPUs on all nodes."""
        return sum(self.devices(index)[1] for index in range(len(self.names)))

    def node(self, index: int) -> dict[str, Any]:
        """Return a node as plain data, with all devices free except the blocked ones."""
        cores, gpus = self.devices(index)
        return {'index': index, 'name': self.names[index],
                'cores': _devices(cores, self.blocked_cores), 'gpus': _devices(gpus, self.blocked_gpus),
                'lfs': self.lfs_per_node, 'mem': self.mem_per_node}

    def node_list(self) -> list[dict[str, Any]]:
        """Return all nodes as plain data, with all devices free except the blocked ones."""
        return [self.node(index) for index in range(len(self.names))]

    def __str__(self) -> str:
        """Return the number of nodes and their resources, for messages."""
        most = 'at most ' if self.smaller else ''
        return (f'{len(self.names)} node(s), each with {most}{self.cores_per_node} cores, {self.gpus_per_node} GPUs, '
                f'{self.mem_per_node} MB mem and {self.lfs_per_node} MB lfs')

    def trace(self) -> str:
        """Return the usable resources in the form of the trace event `resources`."""
        return (f'nodes={len(self.names)} cores={self.cores} gpus={self.gpus} cores_per_node={self.cores_per_node} '
                f'gpus_per_node={self.gpus_per_node}')

    def details(self, lost: Container[int] = ()) -> dict[str, Any]:
        """Return `Pilot.resource_details`; the nodes in `lost` have no usable devices."""
        nodes = [_down(node) if node['index'] in lost else node for node in self.node_list()]
        return {'node_list': nodes, 'cores_per_node': self.cores_per_node,
                'gpus_per_node': self.gpus_per_node, 'mem_per_node': self.mem_per_node,
                'lfs_per_node': self.lfs_per_node, 'threads_per_core': self.threads_per_core,
                'requested_nodes': len(self.whole.names),
                'agent_node_list': [self.whole.node(index) for index in self.reserved],
                'cores': _usable(nodes, 'cores'), 'gpus': _usable(nodes, 'gpus'), **self.facts}


def _devices(usable: int, blocked: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return the given number of usable devices together with the blocked devices among them."""
    blocked = below(usable, blocked)
    return [{'index': index, 'occupation': None if index in blocked else 0.0}
            for index in range(usable + len(blocked))]


def _usable(nodes: Iterable[Mapping[str, Any]], kind: str) -> int:
    return sum(device['occupation'] is not None for node in nodes for device in node[kind])


def _down(node: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the node without usable devices."""
    return node | {kind: [device | {'occupation': None} for device in node[kind]] for kind in ('cores', 'gpus')}


def below(usable: int, blocked: tuple[int, ...]) -> tuple[int, ...]:
    """Return the blocked devices below the index of the last usable one, on a node with that many usable devices."""
    last = next(islice((index for index in count() if index not in blocked), usable - 1, None)) if usable else -1
    return tuple(index for index in blocked if index < last)
