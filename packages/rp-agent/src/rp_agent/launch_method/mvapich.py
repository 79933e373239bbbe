"""The launch method MPIRUN_RSH: the launcher of MVAPICH, with a host per rank (MVAPICH2 user guide, section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rp_agent.launch_method.base import Command, Job, LaunchMethod
from rp_agent.launch_method.mpi_library import MPICH
from rp_agent.launch_method.nodes import MAX_HOSTS_IN_COMMAND, hosts


class MpirunRsh(LaunchMethod):
    """MPIRUN_RSH."""

    NAME: ClassVar[str] = 'MPIRUN_RSH'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('mpirun_rsh',)
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'MV2_*', 'MPIRUN_*', 'PMI_*')

    rank_variables = ('MV2_COMM_WORLD_RANK', 'MPIRUN_RANK', 'PMI_ID')
    size_variables = ('MV2_COMM_WORLD_SIZE', 'MPIRUN_NPROCS')
    mpi = MPICH

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        argv = [self.program.path, '-export-all', '-np', str(len(job.ranks)), *self._arguments]
        files = {}
        if len(job.ranks) <= MAX_HOSTS_IN_COMMAND:
            argv += [rank.node for rank in job.ranks]
        else:
            path, files[f'{job.uid}.hosts'] = hosts(job)
            argv += ['-hostfile', path]
        # otherwise the library binds the ranks of all programs to the same cores
        return Command((*argv, 'MV2_ENABLE_AFFINITY=0', *executable), files)
