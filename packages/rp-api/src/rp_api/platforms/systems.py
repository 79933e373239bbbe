"""The table of batch systems and launch methods, from which all other lists of them are derived.

A batch system of another distribution is an entry point in the group `radical_pilot.batch_systems` that refers to a
`BatchSystem`; a launch method is one in the group `radical_pilot.launch_methods` that refers to its class.
"""

from __future__ import annotations

from typing import NamedTuple

from rp_api.errors import PlatformError
from rp_api.extensions import installed

GROUP = 'radical_pilot.batch_systems'

FILE_SCHEMES = frozenset(('file', 'sftp', 'ssh', 'scp', 'gsisftp', 'gsissh'))
"""URL schemes of file """

HOP_SCHEMES = ('fork', 'local', 'ssh', 'gsissh')
"""URL schemes of hosts without a batch system, and for interactive commands."""

HOPS = ('', 'ssh', 'gsissh')
"""Suffixes of a batch system's URL scheme, after a +."""

_AGENT = 'rp_agent.resource_manager.systems'
_CLIENT = 'rp_client.launcher.batch.systems'


class BatchSystem(NamedTuple):
    """A batch system, or another source of nodes, as client and agent use it."""

    resource_manager: str = ''
    """The name in platform definitions; empty if the agent has no resource manager for it."""
    agent: str = ''
    """`module:attribute` of the factory of its resource manager, called without arguments (docs/extend)."""
    scheme: str = ''
    """The first part of the URL scheme for submitting jobs; empty if no jobs are submitted."""
    client: str = ''
    """`module:attribute` of the factory of its `rp_client.launcher.batch.systems.base.BatchSystem`."""
    job_variable: str = ''
    """The environment variable with the id of the enclosing job; empty if there are no jobs."""
    marks: tuple[str, ...] = ()
    """Environment variables, at least one of which is also set in its jobs; empty if the job variable suffices."""
    other_marks: tuple[str, ...] = ()
    """Environment variables that are set only in jobs of another batch system with the same job variable."""
    adaptor: str = ''
    """The module below `radical.saga.adaptors` that submits its jobs; empty if rp-client submits them itself."""


_TORQUE = ('PBS_NUM_PPN', 'PBS_VNODENUM')

BATCH_SYSTEMS = (   # in the order in which a process looks for its enclosing job
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
    # the job variable has a generic name
    BatchSystem('SGE', f'{_AGENT}.sge:Sge', 'sge', f'{_CLIENT}.sge:GridEngine', 'JOB_ID',
                ('SGE_TASK_ID', 'PE_HOSTFILE', 'SGE_CELL')),
    # a Flux instance inside a job of another batch system may have only some of the job's nodes
    BatchSystem('FLUX', f'{_AGENT}.flux:FluxNodes', 'flux', f'{_CLIENT}.flux:Flux', 'FLUX_URI'),
    BatchSystem(scheme='condor', client=f'{_CLIENT}.condor:Condor', adaptor='condor.condorjob'),
    # radical.saga has no adaptor for it: that is a module of another project
    BatchSystem(scheme='lgi', client=f'{_CLIENT}.lgi:Lgi'),
)
"""The batch systems of this project."""

_OTHER_MANAGERS = {
    'ALLOCATION': f'{_AGENT}.find:Enclosing',
    'CCM': f'{_AGENT}.torque:Ccm',
    'DEBUG': f'{_AGENT}.fork:Debug',
    'FORK': f'{_AGENT}.fork:ForkNodes',
    'LOADL': f'{_AGENT}.loadleveler:LoadLeveler',
    'YARN': f'{_AGENT}.fork:Yarn',
}
"""Resource managers without job submission, and alternative names of others."""

LOCAL_MANAGERS = ('FORK', 'DEBUG', 'YARN')
"""Resource managers that provide the agent's own machine, without a batch job."""

RESOURCE_MANAGERS = _OTHER_MANAGERS | {
    system.resource_manager: system.agent for system in BATCH_SYSTEMS if system.agent}
"""`module:attribute` of each resource manager of this project."""

SCHEMES = {system.scheme: system.client for system in BATCH_SYSTEMS if system.client}
"""`module:attribute` of the submitter for each URL scheme."""

JOB_VARIABLES = sorted({system.job_variable for system in BATCH_SYSTEMS if system.job_variable})
"""Environment variables that are set in batch jobs."""


class LaunchMethod(NamedTuple):
    """A launch method of this project."""

    where: str
    """`module:attribute` of its class."""
    programs: tuple[str, ...] = ()
    """Programs that it launches with, one of which suffices; empty if it needs none."""
    dvm: bool = False
    """It launches into distributed virtual machines, which an executor of the agent starts."""


def _method(where: str, *programs: str, dvm: bool = False) -> LaunchMethod:
    return LaunchMethod(f'rp_agent.launch_method.{where}', programs, dvm)


LAUNCH_METHODS = {
    'APRUN': _method('cray:Aprun', 'aprun'),
    'CCMRUN': _method('cray:Ccmrun', 'ccmrun'),
    'DPLACE': _method('mpt:Dplace', 'dplace'),
    'DRAGON': _method('flux:Dragon', 'dragon'),
    'FLUX': _method('flux:Flux', 'flux'),
    'FORK': _method('single:Fork'),
    'IBRUN': _method('ibrun:Ibrun', 'ibrun'),
    'JSRUN': _method('ibm:Jsrun', 'jsrun'),
    'JSRUN_ERF': _method('ibm:JsrunErf', 'jsrun'),
    'MPIEXEC': _method('mpirun:Mpiexec', 'mpiexec', 'mpiexec.mpich', 'mpiexec.hydra', 'mpiexec.openmpi'),
    'MPIEXEC_MPT': _method('mpt:MpiexecMpt', 'mpiexec_mpt'),
    'MPIRUN': _method('mpirun:Mpirun', 'mpirun', 'mpirun.mpich', 'mpirun.openmpi'),
    'MPIRUN_CCMRUN': _method('cray:MpirunCcmrun', 'ccmrun'),
    'MPIRUN_DPLACE': _method('mpt:MpirunDplace', 'dplace'),
    'MPIRUN_MPT': _method('mpt:MpirunMpt', 'mpirun_mpt'),
    'MPIRUN_RSH': _method('mpirun:MpirunRsh', 'mpirun_rsh'),
    'ORTE': _method('dvm:Orte', 'orte-dvm', dvm=True),
    'ORTE_LIB': _method('dvm:OrteLib', 'orte-dvm', dvm=True),
    'POE': _method('ibm:Poe', 'poe'),
    'PRTE': _method('dvm:Prte', 'prte', dvm=True),
    'RSH': _method('single:Rsh', 'rsh'),
    'RUNJOB': _method('ibm:Runjob', 'runjob'),
    'SRUN': _method('srun:Srun', 'srun'),
    'SSH': _method('single:Ssh', 'ssh'),
}
"""The launch methods of this project, by name."""


def other_systems() -> list[BatchSystem]:
    """Return the batch systems of other distributions; raise PlatformError for an entry point of another type."""
    found = []
    for point in installed(GROUP).values():
        system = point.load()
        if not isinstance(system, BatchSystem):
            raise PlatformError(f'batch system {point.name} ({point.value}) is {system!r}, not a BatchSystem of '
                                f'{__name__}')
        found.append(system)
    return found


def submitter(scheme: str) -> str:
    """Return `module:attribute` of the submitter for a URL scheme (without hop); empty if there is none."""
    return SCHEMES.get(scheme) or next((system.client for system in other_systems() if system.scheme == scheme), '')


def resource_managers() -> set[str]:
    """Return the names of resource managers."""
    others = {system.resource_manager for system in other_systems() if system.agent}
    return {*RESOURCE_MANAGERS, *others, *installed('radical_pilot.resource_managers')}


def launch_methods() -> set[str]:
    """Return the names of launch methods."""
    return {*LAUNCH_METHODS, *installed('radical_pilot.launch_methods')}


def job_schemes() -> set[str]:
    """Schemes of URLs of job managers."""
    kinds = {*SCHEMES, *(system.scheme for system in other_systems() if system.scheme)}
    return {*HOP_SCHEMES, *(f'{kind}+{hop}' if hop else kind for kind in kinds for hop in HOPS)}
