"""The job that a pilot asks for, in terms that all batch systems share; each renders it as a script of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple


class JobRequest(NamedTuple):
    """A job. Empty texts, 0 and None mean that nothing is said about it."""

    name: str
    command: Sequence[str]
    directory: str
    """The working directory, an absolute path on the platform, as are `output` and `error`."""
    output: str
    error: str
    minutes: int
    """The wall time."""
    cores: int
    """In all; of all nodes if `nodes` is set."""
    environment: Mapping[str, str] = MappingProxyType({})
    nodes: int = 0
    """Whole nodes; 0 if the size of nodes is not known, and the batch system chooses how many it takes."""
    cores_per_node: int = 0
    nodes_only: bool = False
    """Whether to ask for nodes without saying how many cores they have."""
    gpus: int = 0
    """In all."""
    gpu_request: str = 'gpus'
    """The way to ask for GPUs: `gpus`, `gres`, or `none` where they come with the nodes."""
    gpu_model: str = ''
    memory: int = 0
    """MB, in all."""
    memory_resource: str = ''
    """The name that a Grid Engine gives to memory."""
    parallel_environment: str = 'MPI'
    """The one of a Grid Engine that pilots run in, whose slots are cores."""
    queue: str = ''
    """The queue, or partition."""
    qos: str = ''
    account: str = ''
    reservation: str = ''
    options: Sequence[str] = ()
    """Constraints and resources, in the batch system's own words."""
    exclusive: bool = False
    threads_per_core: int = 0
    reserved_cores: int | None = None
    """Cores of each node that are left to the system."""
    requeue: bool = False
    """Whether the batch system may start the job again, for example after the failure of a node."""

    @property
    def gpus_per_node(self) -> int:
        """GPUs of each node; 0 if `nodes` is not set."""
        return math.ceil(self.gpus / self.nodes) if self.nodes else 0

    @property
    def memory_per_node(self) -> int:
        """MB of each node; 0 if `nodes` is not set."""
        return math.ceil(self.memory / self.nodes) if self.nodes else 0
