"""`BatchSystem`: the base class of the resource managers of batch systems."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.choice import choose
from rp_agent.resource_manager.granted import Node
from rp_agent.resource_manager.shape import Shape
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError


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
        """Return the allocation of the pilot.

        Args:
            request: The nodes, cores and GPUs that the pilot description requests.
            platform: The platform definition.
            system: The agent's host.

        Returns:
            The selected nodes, the agent's own first, with the devices that tasks may use.

        Raises:
            PlatformError: The agent does not run in a job, the job has no nodes, or all cores of a node are blocked.
            ResourceError: The job has fewer resources than the request.
        """
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
