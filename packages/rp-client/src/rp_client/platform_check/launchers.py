"""The programs of launch methods. A shell script is made of them."""

from __future__ import annotations

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
