"""What a resource manager finds out: the nodes of a pilot."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

Domain = tuple[tuple[int, ...], tuple[int, ...]]
"""The indices of the cores and of the GPUs of a NUMA domain."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the pilot description asks for; 0 where it does not say."""

    nodes: int
    cores: int
    gpus: int
    backup_nodes: int = 0
    """Nodes that the batch system was asked for besides, to take the place of unhealthy ones."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The nodes of a pilot; cores are hardware threads where the platform counts several on a core.

    Nodes are alike, but for those that `smaller` names.
    """

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
    """What the operating system calls the cores of the agent's host; empty if tasks must not be bound to them."""
    gpu_ids: tuple[str, ...] = ()
    """What a visible-devices variable calls the GPUs of that host; empty if it calls them by their index."""
    smaller: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Positions of nodes that have less than the others, and how many cores and GPUs tasks may use on them."""
    elsewhere: tuple[int, ...] = ()
    """Positions of nodes that are not the agent's own host."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What else the resource manager has found out, for launch methods and the application."""
    hint: str = ''
    """A sentence for the application, if there is more to be had than it uses."""

    @property
    def here(self) -> list[int] | None:
        """Positions of the nodes that are the agent's own host; None if all of them are."""
        return sorted({*range(len(self.names))}.difference(self.elsewhere)) if self.elsewhere else None

    def devices(self, index: int) -> tuple[int, int]:
        """How many cores and GPUs of a node tasks may use."""
        return self.smaller.get(index, (self.cores_per_node, self.gpus_per_node))

    @property
    def unlike(self) -> tuple[int, ...]:
        """Positions of nodes that have other numbers of cores or GPUs than the agent's own host."""
        if not self.smaller or not self.here:
            return ()
        own = self.devices(self.here[0])
        return tuple(index for index in self.elsewhere if self.devices(index) != own)

    def all_devices(self, index: int) -> tuple[int, tuple[int, ...], int]:
        """How many cores a node has, blocked ones counted, which of them are blocked, and how many GPUs it has."""
        cores, gpus = self.devices(index)
        blocked_cores, blocked_gpus = self.blocked_cores, self.blocked_gpus
        if index in self.smaller:
            blocked_cores, blocked_gpus = below(cores, blocked_cores), below(gpus, blocked_gpus)
        return cores + len(blocked_cores), blocked_cores, gpus + len(blocked_gpus)

    @property
    def cores(self) -> int:
        """How many cores tasks may use on all nodes together."""
        return sum(self.devices(index)[0] for index in range(len(self.names)))

    @property
    def gpus(self) -> int:
        """How many GPUs tasks may use on all nodes together."""
        return sum(self.devices(index)[1] for index in range(len(self.names)))

    def node(self, index: int) -> dict[str, Any]:
        """One of the nodes as plain data, everything free but what is blocked."""
        cores, gpus = self.devices(index)
        return {'index': index, 'name': self.names[index],
                'cores': _devices(cores, self.blocked_cores), 'gpus': _devices(gpus, self.blocked_gpus),
                'lfs': self.lfs_per_node, 'mem': self.mem_per_node}

    def node_list(self) -> list[dict[str, Any]]:
        """The nodes as plain data, everything free but what is blocked."""
        return [self.node(index) for index in range(len(self.names))]

    def __str__(self) -> str:
        """For messages: how many nodes there are, and what each of them has."""
        most = 'at most ' if self.smaller else ''
        return (f'{len(self.names)} node(s), each with {most}{self.cores_per_node} cores, {self.gpus_per_node} GPUs, '
                f'{self.mem_per_node} MB mem and {self.lfs_per_node} MB lfs')

    def trace(self) -> str:
        """What tasks may use, in the form that traces have."""
        return (f'nodes={len(self.names)} cores={self.cores} gpus={self.gpus} cores_per_node={self.cores_per_node} '
                f'gpus_per_node={self.gpus_per_node}')

    def details(self, lost: Container[int] = ()) -> dict[str, Any]:
        """What the application gets to see as `Pilot.resource_details`; nodes that were `lost` have nothing to use."""
        nodes = [_down(node) if node['index'] in lost else node for node in self.node_list()]
        return {'node_list': nodes, 'cores_per_node': self.cores_per_node,
                'gpus_per_node': self.gpus_per_node, 'mem_per_node': self.mem_per_node,
                'lfs_per_node': self.lfs_per_node, 'threads_per_core': self.threads_per_core,
                'requested_nodes': len(self.names), 'cores': _usable(nodes, 'cores'), 'gpus': _usable(nodes, 'gpus'),
                **self.facts}


def _devices(usable: int, blocked: tuple[int, ...]) -> list[dict[str, Any]]:
    """The devices of a node: so many usable ones, and the blocked ones among them."""
    blocked = below(usable, blocked)
    return [{'index': index, 'occupation': None if index in blocked else 0.0}
            for index in range(usable + len(blocked))]


def _usable(nodes: Iterable[Mapping[str, Any]], kind: str) -> int:
    return sum(device['occupation'] is not None for node in nodes for device in node[kind])


def _down(node: dict[str, Any]) -> dict[str, Any]:
    """A node of which nothing can be used."""
    return node | {kind: [device | {'occupation': None} for device in node[kind]] for kind in ('cores', 'gpus')}


def below(usable: int, blocked: tuple[int, ...]) -> tuple[int, ...]:
    """The blocked ones among the devices of a node that has so many usable ones, and no more than it needs for them."""
    last = next(islice((index for index in count() if index not in blocked), usable - 1, None)) if usable else -1
    return tuple(index for index in blocked if index < last)
