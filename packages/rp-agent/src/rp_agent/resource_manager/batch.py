"""`BatchSystem`: the base class of the resource managers of batch systems."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar, NamedTuple

from rp_agent.resource_manager import binding, machine
from rp_agent.resource_manager.base import Allocation, Domain, Request
from rp_agent.resource_manager.granted import Node
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError, ResourceError


class BatchSystem(ABC):
    """The resources that a batch system has granted to the job of the agent.

    A subclass sets `NAME` and `JOB` and implements `nodes`. This class selects the nodes of the pilot and applies the
    platform definition (cores per node, blocked devices, NUMA domains). A resource manager is created without
    arguments. The agent finds it by name: see `rp_agent.resource_manager.systems.find`.
    """

    NAME: ClassVar[str]
    """Name of the batch system, for messages."""
    JOB: ClassVar[str]
    """Environment variable that holds the job id."""
    COUNTS_THREADS: ClassVar[bool] = True
    """True if the batch system counts hardware threads, False if it counts cores."""

    @abstractmethod
    def nodes(self, system: System) -> list[Node]:
        """Return the nodes of the job.

        Args:
            system: The agent's host. Read the environment and files and run programs through it, so that tests can
                replace it.

        Returns:
            The granted nodes in the order of the batch system. `Node.cores` counts hardware threads or cores, as
            `COUNTS_THREADS` says; amounts of memory are in MB; unknown amounts keep their defaults.

        Raises:
            PlatformError: The batch system does not answer, or its answer cannot be parsed.
        """

    def own(self, nodes: Sequence[Node], system: System) -> Node | None:
        """Return the node that the agent runs on.

        Args:
            nodes: The nodes that `nodes` returned.
            system: The agent's host.

        Returns:
            The first node whose name or address belongs to this host, or None, for example on a service node.
        """
        return next((node for node in nodes if system.is_here(node.name)), None)

    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        """See `rp_agent.resource_manager.systems.find.ResourceManager.allocate`."""
        uid = system.environ.get(self.JOB)
        if not uid:
            raise PlatformError(f'the agent does not run in a job of {self.NAME}: the environment variable {self.JOB} '
                                'is not set')
        job = f'job {uid} of {self.NAME}'
        nodes = self.nodes(system)
        if not nodes:
            raise PlatformError(f'{job} has no nodes that tasks could run on')
        own = self.own(nodes, system)
        sick = system.sick([node.name for node in nodes if node is not own]) if request.backup_nodes else {}
        shape = Shape(platform, system.environ, self.COUNTS_THREADS, own)
        chosen = choose(nodes, own, request, shape.devices, job, sick)
        return shape.allocation(chosen, own)


def variable(system: System, *names: str) -> str:
    """Return the value of an environment variable.

    Args:
        system: The host whose environment is read.
        names: Names of variables, in the order in which they are tried.

    Returns:
        The first value that is not empty.

    Raises:
        PlatformError: No variable is set.
    """
    for name in names:
        if system.environ.get(name):
            return system.environ[name]
    raise PlatformError(f'the environment variable {" or ".join(names)} is not set')


Devices = Callable[[Node], tuple[int, int]]
"""Function that returns the number of usable cores and GPUs of a node."""

_SHOWN = 5


def choose(nodes: Sequence[Node], own: Node | None, request: Request, devices: Devices, job: str,
           sick: Mapping[str, str]) -> list[Node]:
    """Return as many healthy nodes as the pilot needs, the agent's own first, the others in their order.

    `sick` maps the names of excluded nodes to reasons. Raises `ResourceError` if there are too few nodes.
    """
    healthy = [node for node in nodes if node.name not in sick]
    ordered = sorted(healthy, key=lambda node: node is not own)
    if request.nodes:
        if request.nodes > len(ordered):
            raise _too_few('nodes', request.nodes, len(ordered), job, sick)
        return ordered[:request.nodes]
    cores = gpus = taken = 0
    for node in ordered:
        if taken and cores >= request.cores and gpus >= request.gpus:
            break
        more = devices(node)
        cores, gpus, taken = cores + more[0], gpus + more[1], taken + 1
    if cores < request.cores:
        raise _too_few('cores', request.cores, cores, job, sick)
    if gpus < request.gpus:
        raise _too_few('gpus', request.gpus, gpus, job, sick)
    return ordered[:taken]


def _too_few(what: str, wanted: int, there: int, job: str, sick: Mapping[str, str]) -> ResourceError:
    sentence = f'{what}={wanted} of the pilot description is more than the {there} that {job} has'
    if sick:
        shown = ', '.join(f'{name} ({reason})' for name, reason in islice(sick.items(), _SHOWN))
        more = f' and {len(sick) - _SHOWN} more' if len(sick) > _SHOWN else ''
        sentence += f'; out of order are {shown}{more}'
    return ResourceError(sentence)


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
