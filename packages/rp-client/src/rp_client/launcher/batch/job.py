"""The job request for a pilot, from its description and its platform. No I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from rp_api.description.pilot import PilotDescription
from rp_api.errors import PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.load import fill
from rp_client.launcher.batch.systems.base import BatchSystem, Scripted
from rp_client.launcher.batch.systems.request import JobRequest

_ASKED_BY = {'gpus': 'gpus', 'memory': 'memory', 'qos': 'queue', 'reservation': 'project', 'requeue': 'requeue'}
"""Fields of a request that some batch systems lack, and the attributes of pilot descriptions that set them."""

_MEANING = {'gpus': 'GPUs', 'memory': 'memory', 'qos': 'a QOS (behind the colon)',
            'reservation': 'a reservation (behind the colon)', 'requeue': 'a job that may be started again'}


class JobSize(NamedTuple):
    """The size of a job; `nodes` is 0 if the platform does not define the size of its nodes."""

    nodes: int
    cores: int
    gpus: int
    cores_per_node: int


def size(description: PilotDescription, platform: ResourceConfig) -> JobSize:
    """Return the size of a pilot's job in whole nodes; blocked cores and GPUs are not counted as usable."""
    cores, gpus = platform.cores_per_node, platform.gpus_per_node
    if description.nodes:
        if not cores:
            raise PlatformError(f'PilotDescription.nodes is {description.nodes}, but {platform.label} does not say how '
                                'many cores a node has (cores_per_node): set cores instead')
        nodes = description.nodes + description.backup_nodes
        return JobSize(nodes, nodes * cores, nodes * gpus, cores)
    if not cores:
        return JobSize(0, description.cores, description.gpus, 0)
    architecture = platform.system_architecture
    usable = cores * int(architecture.get('smt', 1)) - len(architecture.get('blocked_cores', ()))
    usable_gpus = gpus - len(architecture.get('blocked_gpus', ()))
    if description.gpus and usable_gpus < 1:
        raise PlatformError(f'PilotDescription.gpus is {description.gpus}, but nodes of {platform.label} have no GPUs')
    nodes = max(math.ceil(description.cores / usable), math.ceil(description.gpus / max(1, usable_gpus)))
    return JobSize(nodes, nodes * cores, nodes * gpus if description.gpus else 0, cores)


def job_request(description: PilotDescription, platform: ResourceConfig, sandbox: str,
                command: Sequence[str], environment: Mapping[str, str]) -> JobRequest:
    """Return the request for a pilot's job, which runs a command in the sandbox."""
    wanted = size(description, platform)
    architecture = platform.system_architecture
    smt = int(architecture.get('smt', 0))
    blocked = architecture.get('blocked_cores')
    partition, qos = partition_and_qos(description.queue or fill(platform.default_queue, description), platform)
    account, _, reservation = (description.project or platform.default_project).partition(':')
    endpoint = urlsplit(platform.job_manager_endpoint)
    said = dict(parse_qsl(endpoint.query))
    return JobRequest(
        name=re.sub(r'[^\w.+-]', '_', description.job_name or description.uid),   # valid in all batch systems
        command=list(command), environment=dict(environment), directory=sandbox,
        output=f'{sandbox}/bootstrap_0.out', error=f'{sandbox}/bootstrap_0.err',
        minutes=description.runtime, requeue=description.requeue,
        nodes=wanted.nodes, cores=wanted.cores, cores_per_node=wanted.cores_per_node,
        nodes_only=bool(wanted.nodes) and _nodes_only(platform, endpoint.scheme),
        gpus=wanted.gpus, gpu_request=platform.gpu_request, gpu_model=architecture.get('gpu', ''),
        memory=description.memory, memory_resource=said.get('memreqs', ''), parallel_environment=said.get('pe', 'MPI'),
        queue=partition, qos=qos, account=account, reservation=reservation,
        options=[str(option) for option in architecture.get('options', ())],
        exclusive=bool(architecture.get('exclusive')), threads_per_core=smt,
        reserved_cores=None if blocked is None else len(blocked) // (smt or 1))


def check_request(description: PilotDescription, request: JobRequest, system: BatchSystem) -> None:
    """Raise `PlatformError` if the batch system cannot express the request."""
    for field in sorted(system.lacks):
        attribute = _ASKED_BY[field]
        # not the request's GPUs, which include those that come with whole nodes
        if description.gpus if field == 'gpus' else getattr(request, field):
            raise PlatformError(f'PilotDescription.{attribute} is {description[attribute]!r}, but there is no way to '
                                f'ask {system.name} for {_MEANING[field]}')
    if isinstance(system, Scripted):
        system.render(request)


def partition_and_qos(queue: str, platform: ResourceConfig) -> tuple[str, str]:
    """Return partition and QOS of a queue given as `PARTITION:QOS`, or in the platform's meaning of a queue."""
    partition, colon, qos = queue.partition(':')
    return ('', queue) if not colon and platform.queue_type == 'qos' else (partition, qos)


def _nodes_only(platform: ResourceConfig, scheme: str) -> bool:
    """Return whether jobs on the platform request nodes without a number of cores."""
    # machines with jsrun use CSM, which allocates whole nodes only
    return (platform.job_size == 'nodes'
            or (scheme.partition('+')[0] == 'lsf' and 'JSRUN' in platform.launch_methods.get('order', ())))
