"""Resource manager SGE (Grid Engine): a parallel job has a host file, any other job runs on one host.

A line of the host file has a host name, a number of slots, a queue, and a range of processors.
"""

from __future__ import annotations

from typing import ClassVar

from rp_agent.resource_manager.batch import BatchSystem, variable
from rp_agent.resource_manager.granted import Node, merged, number
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError

_GPUS = ('SGE_HGR_gpu', 'SGE_HGR_gpus')
"""Variables with the ids of the job's GPUs on this host, at sites with a resource of that name."""


class Sge(BatchSystem):
    NAME: ClassVar[str] = 'SGE'
    JOB: ClassVar[str] = 'JOB_ID'

    def nodes(self, system: System) -> list[Node]:
        environ = system.environ
        path = environ.get('PE_HOSTFILE')
        if path:
            found = of_host_file(system.read(path), path)
        else:
            found = [Node(variable(system, 'HOSTNAME'), number(environ.get('NSLOTS') or '1', 'NSLOTS'))]
        ids = next(filter(None, map(environ.get, _GPUS)), None)
        gpus = None if ids is None else len(ids.split())
        return [Node(node.name, node.cores, gpus) for node in found]


def of_host_file(text: str, path: str) -> list[Node]:
    """Return the nodes of a host file, which has a line per host and queue."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if any(len(words) < 2 for words in lines):
        raise PlatformError(f'{path} has a line without a number of slots')
    return merged([Node(words[0], number(words[1], f'the number of slots on {words[0]}')) for words in lines])
