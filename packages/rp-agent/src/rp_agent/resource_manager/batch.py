"""What resource managers of batch systems have in common: from what was granted to what tasks may use."""

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
    """A batch system: sub-classes say what it has given to the job that the agent runs in."""

    NAME: ClassVar[str]
    JOB: ClassVar[str]
    """The environment variable that has the id of the job."""
    COUNTS_THREADS: ClassVar[bool] = True
    """Whether the cores it counts are hardware threads where a core has several."""

    @abstractmethod
    def nodes(self, system: System) -> list[Node]:
        """The nodes that the job has, in the order of the batch system."""

    def own(self, nodes: Sequence[Node], system: System) -> Node | None:
        """The node that the agent runs on; None if it is none of them."""
        return next((node for node in nodes if system.is_here(node.name)), None)

    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        """What the pilot gets; `ResourceError` if that is less than it asks for, or cannot be used."""
        job = self._job(system)
        nodes = self.nodes(system)
        if not nodes:
            raise PlatformError(f'{job} has no nodes that tasks could run on')
        own = self.own(nodes, system)
        sick = system.sick([node.name for node in nodes if node is not own]) if request.backup_nodes else {}
        shape = Shape(platform, system.environ, self.COUNTS_THREADS)
        chosen = choose(nodes, own, request, shape.devices, job, sick)
        return shape.allocation(chosen, own)

    def _job(self, system: System) -> str:
        """The job, for messages; `PlatformError` if the agent does not run in one."""
        uid = system.environ.get(self.JOB)
        if not uid:
            raise PlatformError(f'the agent does not run in a job of {self.NAME}: the environment variable {self.JOB} '
                                'is not set')
        return f'job {uid} of {self.NAME}'


def variable(system: System, *names: str) -> str:
    """The first of these environment variables that has a value; `PlatformError` if none has."""
    for name in names:
        if system.environ.get(name):
            return system.environ[name]
    raise PlatformError(f'the environment variable {" or ".join(names)} is not set')
