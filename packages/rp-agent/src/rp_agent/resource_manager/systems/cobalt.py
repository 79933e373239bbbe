"""Resource manager COBALT: a node file, or the node numbers of a partition. The agent runs on a service node."""

from __future__ import annotations

from typing import ClassVar

from rp_agent.resource_manager.batch import BatchSystem, variable
from rp_agent.resource_manager.granted import Node, count_lines, indices
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError


class Cobalt(BatchSystem):
    NAME: ClassVar[str] = 'COBALT'
    JOB: ClassVar[str] = 'COBALT_JOBID'

    def nodes(self, system: System) -> list[Node]:
        path = system.environ.get('COBALT_NODEFILE')
        if path:
            # a line is a place for a process, not a core
            return [Node(node.name) for node in count_lines(system.read(path))]
        if system.environ.get('COBALT_PARTNAME'):
            return of_partition(system.environ['COBALT_PARTNAME'])
        count = variable(system, 'COBALT_NODEFILE', 'COBALT_PARTNAME', 'COBALT_PARTSIZE')
        hosts = system.run('aprun', '-q', '-n', count, '-N', '1', 'hostname').split()
        return [Node(name) for name in dict.fromkeys(hosts)]


def of_partition(text: str) -> list[Node]:
    """Return the nodes of a Cray partition such as `0-2,17`."""
    numbers = indices(text)
    if not all(each.isdecimal() for each in numbers):
        raise PlatformError(f'COBALT_PARTNAME must be a list of node numbers such as 0-2,17, not {text!r}')
    return [Node(f'nid{int(each):05}') for each in numbers]
