"""Division of a pilot's cores, GPUs and memory among its partitions, without overlap. No I/O.

A partition has whole nodes, or a part of one node. On a node that several partitions share, a partition has the memory
that its size names, otherwise a share of the free memory in proportion to its cores; storage is divided likewise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

from rp_agent.resource_manager.base import Allocation, Domain
from rp_api.description.partitions import CORES, GPUS, MEMORY, NODES
from rp_api.errors import ResourceError


@dataclass(frozen=True, slots=True)
class PartitionShare:
    """Cores and GPUs of one node of the pilot, by their indices on the node, and MB of its memory."""

    node: int
    cores: tuple[int, ...]
    gpus: tuple[int, ...]
    mem: int


Parts = tuple[PartitionShare, ...]
"""The resources of a partition."""


class Divider:
    """The free cores, GPUs and memory of an allocation, which it divides among partitions."""

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation
        self._all = [_whole_node(allocation, index) for index in range(len(allocation.names))]
        self._cores = [list(part.cores) for part in self._all]
        self._gpus = [list(part.gpus) for part in self._all]
        self._mem = [part.mem for part in self._all]

    def divide(self, number: int) -> list[Parts]:
        """Divide the whole allocation into `number` partitions, evenly by nodes or, with fewer nodes, by their cores.

        Raises ResourceError if a node has fewer cores than partitions.
        """
        nodes = range(len(self._all))
        if number <= len(nodes):
            return [self._give(tuple(self._all[node] for node in row)) for row in _rows(nodes, number)]
        found: list[Parts] = []
        for node, sharers in zip(nodes, _rows(range(number), len(nodes)), strict=True):
            if len(sharers) > len(self._cores[node]):
                raise ResourceError(f'partitions={number} of the pilot description is too many: node '
                                    f'{self.allocation.names[node]} has {len(self._cores[node])} cores for '
                                    f'{len(sharers)} of them')
            cores, gpus = (_rows(free[node], len(sharers)) for free in (self._cores, self._gpus))
            found += [(PartitionShare(node, tuple(mine), tuple(near), 0),)
                      for mine, near in zip(cores, gpus, strict=True)]
        return self._share_memory([self._give(parts) for parts in found])

    def take_all(self, sizes: Iterable[Mapping[str, int]]) -> list[Parts]:
        """Take the resources for partitions of these sizes; raise ResourceError if they are not free.

        An empty size takes all free nodes or, if there are none, the free part of the first node that has one.
        """
        return self._share_memory([self._take(size) for size in sizes])

    def take(self, size: Mapping[str, int]) -> Parts:
        """Take the resources for one partition; see `take_all`."""
        return self.take_all([size])[0]

    def give_back(self, parts: Parts) -> None:
        """Free the resources of a partition that has ended."""
        for part in parts:
            self._cores[part.node] = sorted([*self._cores[part.node], *part.cores])
            self._gpus[part.node] = sorted([*self._gpus[part.node], *part.gpus])
            self._mem[part.node] += part.mem

    def _take(self, size: Mapping[str, int]) -> Parts:
        """Take the resources for a partition, but the memory of a part of a node only if the size names it."""
        if size.get(NODES):
            return self._take_nodes(size[NODES])
        if size.get(CORES):
            return self._take_cores(size[CORES], size.get(GPUS, 0), size.get(MEMORY, 0))
        rest = tuple(PartitionShare(node, tuple(cores), tuple(gpus), mem) for node, (cores, gpus, mem)
                     in enumerate(zip(self._cores, self._gpus, self._mem, strict=True)) if cores)
        if not rest:
            raise ResourceError('the pilot has no free resources for another partition')
        return self._give(tuple(part for part in self._free_nodes() if part.cores) or rest[:1])

    def _free_nodes(self) -> list[PartitionShare]:
        return [part for part in self._all if list(part.cores) == self._cores[part.node]
                and list(part.gpus) == self._gpus[part.node]]

    def _take_nodes(self, number: int) -> Parts:
        free = self._free_nodes()
        if number > len(free):
            raise ResourceError(f'nodes={number} of the partition is more than the {len(free)} free nodes of the pilot')
        return self._give(tuple(free[:number]))

    def _take_cores(self, cores: int, gpus: int, mem: int) -> Parts:
        """Take a part of the node that fits best, else whole nodes."""
        enough = [node for node, free in enumerate(self._cores)
                  if len(free) >= cores and len(self._gpus[node]) >= gpus and self._mem[node] >= mem]
        if enough:
            node = min(enough, key=lambda node: (len(self._cores[node]), len(self._gpus[node]), self._mem[node]))
            mine, near = tuple(self._cores[node][:cores]), tuple(self._gpus[node][:gpus])
            return self._give((PartitionShare(node, mine, near, mem),))
        taken: list[PartitionShare] = []
        for part in self._free_nodes():
            taken.append(part)
            if (sum(len(each.cores) for each in taken) >= cores and sum(len(each.gpus) for each in taken) >= gpus
                    and sum(each.mem for each in taken) >= mem):
                return self._give(tuple(taken))
        numbers = {CORES: cores, GPUS: gpus, MEMORY: mem}
        wanted = ' and '.join(f'{name}={number}' for name, number in numbers.items() if number)
        best = max(zip(map(len, self._cores), map(len, self._gpus), self._mem, strict=True))
        raise ResourceError(f'{wanted} of the partition is more than the pilot has free on one node ({best[0]} cores, '
                            f'{best[1]} GPUs, {best[2]} MB) or on whole nodes')

    def _share_memory(self, partitions: list[Parts]) -> list[Parts]:
        """Add memory to the parts that have none: the free memory of their node in proportion to the cores."""
        free = list(self._mem)
        sharers = [len(cores) for cores in self._cores]
        for part in chain.from_iterable(partitions):
            sharers[part.node] += 0 if part.mem else len(part.cores)
        shared = [tuple(part if part.mem else replace(part, mem=free[part.node] * len(part.cores) // sharers[part.node])
                        for part in parts) for parts in partitions]
        for before, after in zip(chain.from_iterable(partitions), chain.from_iterable(shared), strict=True):
            self._mem[after.node] -= after.mem - before.mem
        return shared

    def _give(self, parts: Parts) -> Parts:
        for part in parts:
            self._cores[part.node] = [core for core in self._cores[part.node] if core not in part.cores]
            self._gpus[part.node] = [gpu for gpu in self._gpus[part.node] if gpu not in part.gpus]
            self._mem[part.node] -= part.mem
        return parts


def allocation_of(whole: Allocation, parts: Parts) -> Allocation:
    """Return the allocation of the agent that has these parts, with positions counted from 0."""
    elsewhere = tuple(place for place, part in enumerate(parts) if part.node in whole.elsewhere)
    nodes = replace(whole, names=tuple(whole.names[part.node] for part in parts), elsewhere=elsewhere, smaller={
        place: whole.smaller[part.node] for place, part in enumerate(parts) if part.node in whole.smaller})
    if len(elsewhere) == len(parts):   # the numbers of this host's cores and GPUs do not apply
        nodes = replace(nodes, cpus=(), gpu_ids=())
    return _part_of(nodes, parts[0]) if is_part(whole, parts) else nodes


def is_part(whole: Allocation, parts: Parts) -> bool:
    """Return whether a partition has only a part of a node."""
    return parts[0] != _whole_node(whole, parts[0].node)


def _part_of(node: Allocation, part: PartitionShare) -> Allocation:
    """Return the allocation of a part of this node."""
    cores, gpus = part.cores, part.gpus
    share = len(cores) / node.cores
    gpu_ids = node.gpu_ids or tuple(map(str, range(1 + max(gpus, default=-1))))
    return replace(
        node, cores_per_node=len(cores), gpus_per_node=len(gpus), smaller={},
        mem_per_node=part.mem, lfs_per_node=int(node.lfs_per_node * share),
        blocked_cores=(), blocked_gpus=(), domains=_domains(node.domains, cores, gpus),
        cpus=tuple(node.cpus[core] for core in cores) if node.cpus else (),
        gpu_ids=tuple(gpu_ids[gpu] for gpu in gpus))


def _whole_node(allocation: Allocation, node: int) -> PartitionShare:
    """Return all resources of a node that tasks may use."""
    cores, gpus = allocation.devices(node)
    return PartitionShare(node, _usable(cores, allocation.blocked_cores), _usable(gpus, allocation.blocked_gpus),
                allocation.mem_per_node)


def _usable(number: int, blocked: tuple[int, ...]) -> tuple[int, ...]:
    """Return the indices of `number` devices, without the blocked ones."""
    return tuple(index for index in range(number + len(blocked)) if index not in blocked)[:number]


def _rows(things: Any, number: int) -> list[list[int]]:
    """Split things, in their order, into `number` rows of nearly equal length; the first rows may have one more."""
    least, more = divmod(len(things), number)
    starts = [row * least + min(row, more) for row in range(number + 1)]
    return [list(things[start:end]) for start, end in pairwise(starts)]


def _domains(domains: tuple[Domain, ...], cores: tuple[int, ...], gpus: tuple[int, ...]) -> tuple[Domain, ...]:
    """Return the NUMA domains of a part of a node, by the indices in that part."""
    found = ((tuple(cores.index(core) for core in domain[0] if core in cores),
              tuple(gpus.index(gpu) for gpu in domain[1] if gpu in gpus)) for domain in domains)
    return tuple(domain for domain in found if domain[0])
