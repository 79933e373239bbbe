"""The resource manager COBALT: a node file, or the numbers of a partition's nodes; the agent runs on a service node."""

from __future__ import annotations

from typing import ClassVar

from rp_agent.resource_manager.batch import BatchSystem, variable
from rp_agent.resource_manager.granted import Node, count_lines, indices, unique
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError


class Cobalt(BatchSystem):
    """Cobalt."""

    NAME: ClassVar[str] = 'COBALT'
    JOB: ClassVar[str] = 'COBALT_JOBID'

    def nodes(self, system: System) -> list[Node]:
        path = system.environ.get('COBALT_NODEFILE')
        if path:
            # lines are places for processes, as many as the job wants to have
            return [Node(node.name) for node in count_lines(system.read(path))]
        if system.environ.get('COBALT_PARTNAME'):
            return of_partition(system.environ['COBALT_PARTNAME'])
        count = variable(system, 'COBALT_NODEFILE', 'COBALT_PARTNAME', 'COBALT_PARTSIZE')
        return [Node(name) for name in unique(system.run('aprun', '-q', '-n', count, '-N', '1', 'hostname').split())]


def of_partition(text: str) -> list[Node]:
    """The nodes of a partition on a Cray, such as `0-2,17`."""
    numbers = indices(text)
    if not all(each.isdecimal() for each in numbers):
        raise PlatformError(f'COBALT_PARTNAME is {text!r}, which has no numbers of nodes')
    return [Node(f'nid{int(each):05}') for each in numbers]
