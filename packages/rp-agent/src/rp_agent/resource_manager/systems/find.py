"""Which resource manager a platform asks for: the name `resource_manager` of its definition.

Those of this distribution are in the table; others can be added as entry points `radical_pilot.resource_managers`. A
resource manager is a class that is made without arguments and has `allocate(request, platform, system)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.system import System
from rp_api import extensions

GROUP = 'radical_pilot.resource_managers'
FORK = 'FORK'
"""The resource manager of a platform that names none."""

HERE = (FORK, 'DEBUG', 'YARN')
"""Those that give the agent's own machine, without a job of a batch system."""

JOBS = {'SLURM': 'SLURM_JOB_ID', 'PBSPRO': 'PBS_JOBID', 'TORQUE': 'PBS_JOBID', 'LSF': 'LSB_JOBID',
        'COBALT': 'COBALT_JOBID', 'LOADLEVELER': 'LOADL_STEP_ID', 'SGE': 'JOB_ID', 'FLUX': 'FLUX_URI'}
"""The resource managers of batch systems, and the environment variable that holds the id of a job.

Flux is last: one that was started in a job of another batch system has perhaps only some of its nodes.
"""

_OWN = {   # without a look at all that is installed, which takes longer than most of an agent's start
    'ALLOCATION': 'enclosing:Enclosing',
    'CCM': 'ccm:Ccm',
    'COBALT': 'cobalt:Cobalt',
    'DEBUG': 'debug:Debug',
    'FLUX': 'flux:Flux',
    'FORK': 'fork:Fork',
    'LOADL': 'loadleveler:LoadLeveler',
    'LOADLEVELER': 'loadleveler:LoadLeveler',
    'LSF': 'lsf:Lsf',
    'PBSPRO': 'pbspro:PbsPro',
    'SGE': 'sge:Sge',
    'SLURM': 'slurm:Slurm',
    'TORQUE': 'torque:Torque',
    'YARN': 'yarn:Yarn',
}


class ResourceManager(Protocol):
    """Finds out what a pilot gets."""

    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        """What the pilot gets; `ResourceError` if it is less than it asks for, `PlatformError` if it is not known."""


def allocate(request: Request, platform: Mapping[str, Any], system: System | None = None) -> Allocation:
    """What a pilot gets on this platform, by its resource manager."""
    return find(platform.get('resource_manager') or FORK).allocate(request, platform, system or System())


def find(name: str) -> ResourceManager:
    """The resource manager of that name; `PlatformError`, with all names, if there is none."""
    own = {name: f'{__package__}.{where}' for name, where in _OWN.items()}
    return cast('ResourceManager',
                extensions.find(GROUP, name, own, f'resource_manager {name!r} of the platform')())
