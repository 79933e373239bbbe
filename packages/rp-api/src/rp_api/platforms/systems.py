"""The table of batch systems and launch methods, from which every other list of them is derived.

A batch system of another distribution is an entry point of the group `radical_pilot.batch_systems` that leads to a
`BatchSystem`, a launch method one of the group `radical_pilot.launch_methods` that leads to its class.
"""

from __future__ import annotations

from typing import NamedTuple

from rp_api.errors import PlatformError
from rp_api.extensions import installed

GROUP = 'radical_pilot.batch_systems'

_AGENT = 'rp_agent.resource_manager.systems'
_CLIENT = 'rp_client.launcher.batch.systems'


class BatchSystem(NamedTuple):
    """A batch system, or another source of nodes, as client and agent know it."""

    resource_manager: str = ''
    """The name by which platform definitions ask for it; empty if the agent has nothing to find out."""
    agent: str = ''
    """`module:attribute` of that which makes its resource manager, without arguments (docs/extend)."""
    scheme: str = ''
    """The first part of the scheme of URLs to which jobs are submitted; empty if there are no such jobs."""
    client: str = ''
    """`module:attribute` of that which makes its `rp_client.launcher.batch.systems.base.BatchSystem`."""
    job_variable: str = ''
    """The environment variable with the id of the job that a process runs in; empty if there are no jobs."""
    marks: tuple[str, ...] = ()
    """Environment variables, one of which is set in its jobs besides; empty if the job variable suffices."""
    other_marks: tuple[str, ...] = ()
    """Environment variables that are not set in its jobs, but in those of another one with the same job variable."""
    adaptor: str = ''
    """The module below `radical.saga.adaptors` that submits its jobs; empty if rp-client does that itself."""


_TORQUE = ('PBS_NUM_PPN', 'PBS_VNODENUM')

BATCH_SYSTEMS = (   # in the order in which a process looks for the job that it is in
    BatchSystem('SLURM', f'{_AGENT}.slurm:Slurm', 'slurm', f'{_CLIENT}.slurm:Slurm', 'SLURM_JOB_ID'),
    BatchSystem('PBSPRO', f'{_AGENT}.pbspro:PbsPro', 'pbspro', f'{_CLIENT}.pbspro:PBSPro', 'PBS_JOBID',
                other_marks=_TORQUE),
    BatchSystem('TORQUE', f'{_AGENT}.torque:Torque', 'torque', f'{_CLIENT}.torque:Torque', 'PBS_JOBID', _TORQUE,
                adaptor='torque.torquejob'),
    BatchSystem('LSF', f'{_AGENT}.lsf:Lsf', 'lsf', f'{_CLIENT}.lsf:LSF', 'LSB_JOBID'),
    BatchSystem('COBALT', f'{_AGENT}.cobalt:Cobalt', 'cobalt', f'{_CLIENT}.cobalt:Cobalt', 'COBALT_JOBID',
                adaptor='cobalt.cobaltjob'),
    BatchSystem('LOADLEVELER', f'{_AGENT}.loadleveler:LoadLeveler', 'loadl', f'{_CLIENT}.loadleveler:LoadLeveler',
                'LOADL_STEP_ID', adaptor='loadl.loadljob'),
    # the name of the job variable alone says little
    BatchSystem('SGE', f'{_AGENT}.sge:Sge', 'sge', f'{_CLIENT}.sge:GridEngine', 'JOB_ID',
                ('SGE_TASK_ID', 'PE_HOSTFILE', 'SGE_CELL')),
    # an instance that was started in a job of another batch system has perhaps only some of its nodes
    BatchSystem('FLUX', f'{_AGENT}.flux:Flux', 'flux', f'{_CLIENT}.flux:Flux', 'FLUX_URI'),
    BatchSystem(scheme='condor', client=f'{_CLIENT}.condor:Condor', adaptor='condor.condorjob'),
)
"""The batch systems of this project."""

_OTHER_MANAGERS = {
    'ALLOCATION': f'{_AGENT}.enclosing:Enclosing',
    'CCM': f'{_AGENT}.ccm:Ccm',
    'DEBUG': f'{_AGENT}.debug:Debug',
    'FORK': f'{_AGENT}.fork:Fork',
    'LOADL': f'{_AGENT}.loadleveler:LoadLeveler',
    'YARN': f'{_AGENT}.yarn:Yarn',
}
"""Resource managers to which no jobs are submitted, and other names of those to which they are."""

LOCAL_MANAGERS = ('FORK', 'DEBUG', 'YARN')
"""Resource managers that give the agent's own machine, without a job of a batch system."""

RESOURCE_MANAGERS = _OTHER_MANAGERS | {
    system.resource_manager: system.agent for system in BATCH_SYSTEMS if system.agent}
"""`module:attribute` of each resource manager of this project."""

SCHEMES = {system.scheme: system.client for system in BATCH_SYSTEMS if system.client}
"""`module:attribute` of what submits jobs to the URLs of each scheme."""

JOB_VARIABLES = sorted({system.job_variable for system in BATCH_SYSTEMS if system.job_variable})
"""Environment variables of processes in jobs."""


class LaunchMethod(NamedTuple):
    """A launch method of this project."""

    where: str
    """`module:attribute` of its class."""
    programs: tuple[str, ...] = ()
    """The programs that it launches with, one of which is enough; none if it needs none."""
    dvm: bool = False
    """It launches into virtual machines, which an executor of the agent keeps."""


def _method(where: str, *programs: str, dvm: bool = False) -> LaunchMethod:
    return LaunchMethod(f'rp_agent.launch_method.{where}', programs, dvm)


LAUNCH_METHODS = {
    'APRUN': _method('cray:Aprun', 'aprun'),
    'CCMRUN': _method('cray:Ccmrun', 'ccmrun'),
    'DPLACE': _method('mpt:Dplace', 'dplace'),
    'DRAGON': _method('dragon:Dragon', 'dragon'),
    'FLUX': _method('flux:Flux', 'flux'),
    'FORK': _method('fork:Fork'),
    'IBRUN': _method('ibrun:Ibrun', 'ibrun'),
    'JSRUN': _method('jsrun:Jsrun', 'jsrun'),
    'JSRUN_ERF': _method('jsrun:JsrunErf', 'jsrun'),
    'MPIEXEC': _method('mpirun:Mpiexec', 'mpiexec', 'mpiexec.mpich', 'mpiexec.hydra', 'mpiexec.openmpi'),
    'MPIEXEC_MPT': _method('mpt:MpiexecMpt', 'mpiexec_mpt'),
    'MPIRUN': _method('mpirun:Mpirun', 'mpirun', 'mpirun.mpich', 'mpirun.openmpi'),
    'MPIRUN_CCMRUN': _method('cray:MpirunCcmrun', 'ccmrun'),
    'MPIRUN_DPLACE': _method('mpt:MpirunDplace', 'dplace'),
    'MPIRUN_MPT': _method('mpt:MpirunMpt', 'mpirun_mpt'),
    'MPIRUN_RSH': _method('mvapich:MpirunRsh', 'mpirun_rsh'),
    'ORTE': _method('dvm:Orte', 'orte-dvm', dvm=True),
    'ORTE_LIB': _method('dvm:OrteLib', 'orte-dvm', dvm=True),
    'POE': _method('poe:Poe', 'poe'),
    'PRTE': _method('dvm:Prte', 'prte', dvm=True),
    'RSH': _method('ssh:Rsh', 'rsh'),
    'RUNJOB': _method('runjob:Runjob', 'runjob'),
    'SRUN': _method('srun:Srun', 'srun'),
    'SSH': _method('ssh:Ssh', 'ssh'),
}
"""The launch methods of this project, by name."""


def other_systems() -> list[BatchSystem]:
    """The batch systems of other distributions; `PlatformError` for an entry point that is none."""
    found = []
    for point in installed(GROUP).values():
        system = point.load()
        if not isinstance(system, BatchSystem):
            raise PlatformError(f'batch system {point.name} ({point.value}) is {system!r}, not a BatchSystem of '
                                f'{__name__}')
        found.append(system)
    return found


def submitter(scheme: str) -> str:
    """`module:attribute` of what submits jobs to URLs of this scheme, without hop; empty if nothing does."""
    return SCHEMES.get(scheme) or next((system.client for system in other_systems() if system.scheme == scheme), '')
