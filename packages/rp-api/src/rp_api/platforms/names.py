"""The names that platform definitions use, as far as this project knows them. Other distributions may bring more."""

from __future__ import annotations

RESOURCE_MANAGERS = frozenset((
    'ALLOCATION', 'CCM', 'COBALT', 'DEBUG', 'FLUX', 'FORK', 'LOADL', 'LOADLEVELER', 'LSF', 'PBSPRO', 'SGE', 'SLURM',
    'TORQUE', 'YARN'))

LAUNCH_METHODS = frozenset((
    'APRUN', 'CCMRUN', 'DPLACE', 'DRAGON', 'FLUX', 'FORK', 'IBRUN', 'JSRUN', 'JSRUN_ERF', 'MPIEXEC', 'MPIEXEC_MPT',
    'MPIRUN', 'MPIRUN_CCMRUN', 'MPIRUN_DPLACE', 'MPIRUN_MPT', 'MPIRUN_RSH', 'ORTE', 'ORTE_LIB', 'POE', 'PRTE', 'RSH',
    'RUNJOB', 'SRUN', 'SSH'))

BATCH_SYSTEMS = ('cobalt', 'condor', 'flux', 'loadl', 'lsf', 'pbspro', 'sge', 'slurm', 'torque')
"""Schemes of URLs to which jobs are submitted; `rp_client.launcher.batch.systems` has a module for each."""

JOB_SCHEMES = frozenset((
    'fork', 'local', 'ssh', 'gsissh',
    *(f'{system}{hop}' for system in BATCH_SYSTEMS for hop in ('', '+ssh', '+gsissh'))))
"""What URLs of job managers begin with."""

FILE_SCHEMES = frozenset(('file', 'sftp', 'ssh', 'scp', 'gsisftp', 'gsissh'))
"""What URLs of file systems begin with."""

HOP_SCHEMES = frozenset(('fork', 'local', 'ssh', 'gsissh'))
"""What URLs for interactive commands begin with."""
