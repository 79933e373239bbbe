"""`BatchSystem`: the base class of the resource managers of batch systems."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.granted import Node
from rp_agent.resource_manager.shape import Shape
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError, ResourceError

Devices = Callable[[Node], tuple[int, int]]
"""Function that returns the number of usable cores and GPUs of a node."""

_NAMES_SHOWN = 5


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
        shown = ', '.join(f'{name} ({reason})' for name, reason in islice(sick.items(), _NAMES_SHOWN))
        more = f' and {len(sick) - _NAMES_SHOWN} more' if len(sick) > _NAMES_SHOWN else ''
        sentence += f'; out of order are {shown}{more}'
    return ResourceError(sentence)
