"""Resource managers TORQUE and CCM (Cray Cluster Compatibility Mode): node files of PBS jobs have a line per core."""

from __future__ import annotations

from typing import ClassVar

from rp_agent.resource_manager.batch import BatchSystem, variable
from rp_agent.resource_manager.granted import Node, count_lines, number
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError

PATTERN = '~/.crayccm/*nodelist*'


class Torque(BatchSystem):
    NAME: ClassVar[str] = 'TORQUE'
    JOB: ClassVar[str] = 'PBS_JOBID'

    def nodes(self, system: System) -> list[Node]:
        found = count_lines(system.read(variable(system, 'PBS_NODEFILE')))
        each = next(filter(None, map(system.environ.get, ('PBS_NUM_PPN', 'SAGA_PPN'))), '0')
        if all(node.cores == 1 for node in found):   # some sites have one line per node
            found = [Node(node.name, max(1, number(each, 'PBS_NUM_PPN'))) for node in found]
        path = system.environ.get('PBS_GPUFILE')
        gpus = of_gpu_file(system.read(path)) if path else {}
        return [Node(node.name, node.cores, gpus.get(node.name, 0) if gpus else None) for node in found]


class Ccm(BatchSystem):
    """Cluster Compatibility Mode in a PBS job."""

    NAME: ClassVar[str] = 'CCM'
    JOB: ClassVar[str] = 'PBS_JOBID'

    def nodes(self, system: System) -> list[Node]:
        path = system.newest(PATTERN)
        if path is None:
            raise PlatformError(f'there is no node list {PATTERN}: submit the pilot with the option for Cluster '
                                'Compatibility Mode')
        return count_lines(system.read(path))


def of_gpu_file(text: str) -> dict[str, int]:
    """Return the number of GPUs per node; a line is a node name with the suffix `-gpu<number>`."""
    counts: dict[str, int] = {}
    for line in text.split():
        name = line.rpartition('-gpu')[0]
        counts[name] = counts.get(name, 0) + 1
    return counts
