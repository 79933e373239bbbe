"""The job request for a pilot, independent of the batch system."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple


class JobRequest(NamedTuple):
    """A job request. Attributes that are empty, 0 or None are not requested."""

    name: str
    command: Sequence[str]
    directory: str
    """The working directory, an absolute path on the platform, as are `output` and `error`."""
    output: str
    error: str
    minutes: int
    """Wall time in minutes."""
    cores: int
    """Total number of cores; that of all nodes if `nodes` is set."""
    environment: Mapping[str, str] = MappingProxyType({})
    nodes: int = 0
    """Number of whole nodes; 0 if their size is unknown, and the batch system chooses the number."""
    cores_per_node: int = 0
    nodes_only: bool = False
    """True if nodes are requested without a number of cores."""
    gpus: int = 0
    """Total number of GPUs."""
    gpu_request: str = 'gpus'
    """The form of the request for GPUs: `gpus`, `gres`, or `none` if they come with the nodes."""
    gpu_model: str = ''
    memory: int = 0
    """Total memory in MB."""
    memory_resource: str = ''
    """Name of the memory resource in Grid Engine."""
    parallel_environment: str = 'MPI'
    """Name of the parallel environment in Grid Engine, whose slots are cores."""
    queue: str = ''
    """Name of the queue or partition."""
    qos: str = ''
    account: str = ''
    reservation: str = ''
    options: Sequence[str] = ()
    """Constraints and resources in the syntax of the batch system."""
    exclusive: bool = False
    threads_per_core: int = 0
    reserved_cores: int | None = None
    """Number of cores per node that are reserved for the operating system."""
    requeue: bool = False
    """True if the batch system may restart the job, for example after a node failure."""

    @property
    def gpus_per_node(self) -> int:
        """Number of GPUs per node; 0 if `nodes` is not set."""
        return math.ceil(self.gpus / self.nodes) if self.nodes else 0

    @property
    def memory_per_node(self) -> int:
        """Memory per node in MB; 0 if `nodes` is not set."""
        return math.ceil(self.memory / self.nodes) if self.nodes else 0
