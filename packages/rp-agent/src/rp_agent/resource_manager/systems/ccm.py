"""Resource manager CCM (Cray Cluster Compatibility Mode): reads the newest node list in `~/.crayccm`."""

from __future__ import annotations

from typing import ClassVar

from rp_agent.resource_manager.batch import BatchSystem
from rp_agent.resource_manager.granted import Node, count_lines
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError

PATTERN = '~/.crayccm/*nodelist*'


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
