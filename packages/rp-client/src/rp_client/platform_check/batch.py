"""The programs of batch systems: what submits jobs, and what knows the queues. A shell script is made of them."""

from __future__ import annotations

from shlex import quote
from typing import NamedTuple


class Programs(NamedTuple):
    """What submits a job, and commands of which one must succeed, and print something, if the queue `{}` is there."""

    submit: str
    queue: tuple[str, ...]


_PBS = Programs('qsub', ('qstat -Q {}',))

BATCH_SYSTEMS = {
    'cobalt': Programs('qsub', ('qstat -Q {}',)),
    'condor': Programs('condor_submit', ()),
    'loadl': Programs('llsubmit', ('llclass {}',)),
    'lsf': Programs('bsub', ('bqueues {}',)),
    'pbs': _PBS,
    'pbspro': _PBS,
    'sge': Programs('qsub', ('qconf -sq {}',)),
    'slurm': Programs('sbatch', ('sinfo -h -o %P -p {}', 'sacctmgr -n -P show qos {} format=name')),
    'torque': _PBS,
}

LAUNCHERS = {
    'APRUN': ('aprun',), 'CCMRUN': ('ccmrun',), 'DPLACE': ('dplace',), 'DRAGON': ('dragon',), 'FLUX': ('flux',),
    'IBRUN': ('ibrun',), 'JSRUN': ('jsrun',), 'JSRUN_ERF': ('jsrun',),
    'MPIEXEC': ('mpiexec', 'mpiexec.mpich', 'mpiexec.hydra', 'mpiexec.openmpi'), 'MPIEXEC_MPT': ('mpiexec_mpt',),
    'MPIRUN': ('mpirun', 'mpirun.mpich', 'mpirun.openmpi'), 'MPIRUN_CCMRUN': ('ccmrun',), 'MPIRUN_DPLACE': ('dplace',),
    'MPIRUN_MPT': ('mpirun_mpt',), 'MPIRUN_RSH': ('mpirun_rsh',), 'ORTE': ('orte-dvm',),
    'ORTE_LIB': ('orte-dvm',), 'POE': ('poe',),
    'PRTE': ('prte',), 'RSH': ('rsh',), 'RUNJOB': ('runjob',), 'SRUN': ('srun',), 'SSH': ('ssh',),
}
"""The programs of launch methods; one of several is enough."""


def queue_commands(system: str, queue: str) -> list[str]:
    """The commands that look for a queue; a name such as `partition:qos` stands for its first part."""
    name = quote(queue.partition(':')[0])
    return [command.format(name) for command in BATCH_SYSTEMS[system].queue]
