"""Usable devices of granted nodes: the minimum of batch system, platform definition and machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rp_agent.resource_manager import binding, machine
from rp_agent.resource_manager.base import Allocation, Domain
from rp_agent.resource_manager.granted import Node
from rp_api.errors import PlatformError


class NodePart(NamedTuple):
    """Number of usable devices of one kind on a node, and the indices of blocked ones."""

    usable: int
    blocked: tuple[int, ...]


class Shape:
    """Rules of a platform for the usable devices of a node.

    Cores are hardware threads: `smt` per core of the platform definition. `counts_threads` is True if the batch system
    counts hardware threads as well. On the agent's `own` node, a visible-devices variable of the job may hide GPUs.
    """

    def __init__(self, platform: Mapping[str, Any], environ: Mapping[str, str], counts_threads: bool,
                 own: Node | None = None) -> None:
        self._platform = platform
        self._environ = environ
        self._own = own
        self._threads = threads_per_core(platform, environ)
        self._factor = 1 if counts_threads else self._threads
        self._blocked_cores = blocked(platform, 'blocked_cores')
        self._blocked_gpus = blocked(platform, 'blocked_gpus')
        self._cores: int = (platform.get('cores_per_node') or 0) * self._threads
        self._gpus: int = platform.get('gpus_per_node') or 0

    def devices(self, node: Node) -> tuple[int, int]:
        """Return the number of usable cores and GPUs of a node; raise `PlatformError` if all cores are blocked."""
        cores = self._cores_of(node).usable
        if not cores:
            raise PlatformError(f'system_architecture.blocked_cores leaves no core of {node.name}')
        return cores, self._gpus_of(node).usable

    def allocation(self, nodes: Sequence[Node], own: Node | None) -> Allocation:
        """Return the nodes with their usable devices; `own` is the agent's node, None if it runs on another host."""
        devices = [self.devices(node) for node in nodes]
        cores, blocked_cores = max(map(self._cores_of, nodes))
        gpus, blocked_gpus = max(map(self._gpus_of, nodes))
        all_cores, all_gpus = cores + len(blocked_cores), gpus + len(blocked_gpus)
        found = Allocation(
            names=tuple(node.name for node in nodes), cores_per_node=cores, gpus_per_node=gpus,
            mem_per_node=self._memory(nodes), lfs_per_node=self._platform.get('lfs_size_per_node') or 0,
            blocked_cores=blocked_cores, blocked_gpus=blocked_gpus,
            domains=domains(self._platform, all_cores, all_gpus), threads_per_core=self._threads,
            smaller={index: each for index, each in enumerate(devices) if each != (cores, gpus)},
            elsewhere=tuple(index for index, node in enumerate(nodes) if node is not own))
        here = next((index for index, node in enumerate(nodes) if node is own), None)
        return found if here is None else bound(found, here, self._environ)

    def _cores_of(self, node: Node) -> NodePart:
        if not node.cores:
            return _part(self._cores or machine.usable_cores(), None, self._blocked_cores)
        return _part(self._cores, node.cores * self._factor, self._blocked_cores)

    def _gpus_of(self, node: Node) -> NodePart:
        if node.gpus is None and self._is_part(node):
            return NodePart(0, ())   # the GPUs of a shared node may belong to another job
        if node.gpus is None:
            gpus = self._gpus or machine.usable_gpus(self._environ)
            seen = machine.bounded_gpus(gpus, self._environ)
            return _part(gpus, seen if seen < gpus else None, self._blocked_gpus)
        seen = machine.bounded_gpus(node.gpus, self._environ) if node is self._own else node.gpus
        return _part(self._gpus, seen, self._blocked_gpus)

    def _is_part(self, node: Node) -> bool:
        """Return whether the job is known to have only a part of the node."""
        whole = usable(self._cores, self._blocked_cores)
        return 0 < node.cores * self._factor < whole

    def _memory(self, nodes: Sequence[Node]) -> int:
        """Return the smallest memory of all nodes, limited by the definition; the machine's if neither is known."""
        known = [self._platform.get('mem_per_node') or 0, *(node.mem for node in nodes)]
        return min(filter(None, known), default=0) or machine.usable_memory()


def bound(nodes: Allocation, here: int, environ: Mapping[str, str]) -> Allocation:
    """Return the allocation with the CPUs, domains and GPU names of the agent's node, at position `here`."""
    all_cores, blocked, all_gpus = nodes.all_devices(here)
    cpus, near = binding.of_this_host(all_cores, all_gpus, blocked, nodes.threads_per_core)
    if here in nodes.smaller:
        near = ()   # the domains of a smaller node do not apply to the others
    return replace(nodes, cpus=cpus, domains=nodes.domains or near, gpu_ids=binding.gpu_ids(environ, all_gpus))


def _part(defined: int, granted: int | None, blocked: tuple[int, ...]) -> NodePart:
    """Return the devices of a whole node without blocked ones. A smaller grant has no blocked devices."""
    there = defined or granted or 0
    whole = usable(there, blocked)
    if granted is not None and granted < whole:
        return NodePart(granted, ())
    return NodePart(whole, tuple(index for index in blocked if index < there))


def threads_per_core(platform: Mapping[str, Any], environ: Mapping[str, str]) -> int:
    """Return the number of hardware threads per core that count as cores; RADICAL_SMT overrides the platform."""
    value = environ.get('RADICAL_SMT') or _architecture(platform).get('smt') or 1
    if not str(value).isdecimal() or int(value) < 1:
        raise PlatformError(f'system_architecture.smt (or the variable RADICAL_SMT) must be a whole number of at least '
                            f'1, not {value!r}')
    return int(value)


def blocked(platform: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Return the indices in `blocked_cores` or `blocked_gpus`, sorted."""
    value = _architecture(platform).get(name) or ()
    if not isinstance(value, list | tuple) or not all(isinstance(index, int) and index >= 0 for index in value):
        raise PlatformError(f'system_architecture.{name} must be a list of indices, not {value!r}')
    return tuple(sorted(set(value)))


def usable(there: int, without: tuple[int, ...]) -> int:
    """Return the number of devices that are not blocked."""
    return there - sum(index < there for index in without)


def domains(platform: Mapping[str, Any], cores: int, gpus: int) -> tuple[Domain, ...]:
    """Return the NUMA domains of the platform definition by number, limited to the devices of a node."""
    found = (platform.get('numa_domain_map') or {}).items()
    return tuple((tuple(index for index in members.get('cores', ()) if index < cores),
                  tuple(index for index in members.get('gpus', ()) if index < gpus))
                 for _, members in sorted(found, key=lambda each: int(each[0])))


def _architecture(platform: Mapping[str, Any]) -> Mapping[str, Any]:
    return platform.get('system_architecture') or {}
