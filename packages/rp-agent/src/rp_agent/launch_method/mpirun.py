"""The launch methods MPIRUN and MPIEXEC, for all flavours of these programs, and MPIRUN_RSH of MVAPICH."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from rp_agent.launch_method.base import Command, Job, LaunchMethod, Program, Setting
from rp_agent.launch_method.flavours import FLAVOURS, recognised
from rp_agent.launch_method.mpi_library import MPICH
from rp_agent.launch_method.nodes import MAX_HOSTS_IN_COMMAND, hosts, joined
from rp_agent.launch_method.system import LaunchSystem
from rp_api.errors import PlatformError


class Mpirun(LaunchMethod):
    """MPIRUN."""

    NAME: ClassVar[str] = 'MPIRUN'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('mpirun', 'mpirun.openmpi', 'mpirun.mpich', 'mpirun-openmpi-mp',
                                           'mpirun-mpich-mp')
    RESERVED: ClassVar[tuple[str, ...]] = (
        *LaunchMethod.RESERVED,
        *sorted({pattern for flavour in FLAVOURS.values() for pattern in flavour.reserved}))

    def __init__(self, program: Program, setting: Setting, options: Mapping[str, Any] | None = None, *,
                 as_root: bool = False, counts_gpus: bool = False) -> None:
        super().__init__(program, setting, options)
        flavour = FLAVOURS[program.flavour]
        self.rank_variables = flavour.rank_variables
        self.size_variables = flavour.size_variables
        self.mpi = flavour.mpi
        self._place = flavour.place
        # the launcher's inner srun would otherwise request all GPUs of a Slurm job that has a total number of them
        self._without_gpus = {'SLURM_GPUS': '0'} if counts_gpus else {}
        self.first = (program.path, *(flavour.as_root if as_root else ()))

    @classmethod
    def detect(cls, system: LaunchSystem, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        # no fallback if the first one is broken: the ranks of a program cannot connect under a launcher of another MPI
        first, *more = system.all(cls.PROGRAMS)
        method = cls._of(recognised(system, first), system, setting, options)
        kinds = {method.mpi: method}
        for path in more if method.mpi else ():
            with suppress(PlatformError):   # it is broken, or no launcher
                other = cls._of(recognised(system, path), system, setting, options)
                other.label += f'_{other.mpi.lower().replace(" ", "_")}'
                kinds.setdefault(other.mpi or method.mpi, other)
        method.others = tuple(kinds.values())[1:]
        return method

    @classmethod
    def _of(cls, program: Program, system: LaunchSystem, setting: Setting, options: Mapping[str, Any] | None) -> Mpirun:
        method = cls(program, setting, options, as_root=system.is_root, counts_gpus='SLURM_GPUS' in system.environ)
        method.environment.update(system.for_inner_srun)
        return method

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        placement = self._place(job, self.program)
        placement.options[0] += self._arguments
        environment = placement.environment | ({} if job.gpus_per_rank else self._without_gpus)
        return Command((*self.first, *joined(placement.options, executable)), placement.files, environment)


class Mpiexec(Mpirun):
    """MPIEXEC."""

    NAME: ClassVar[str] = 'MPIEXEC'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('mpiexec', 'mpiexec.hydra', 'mpiexec.mpich', 'mpiexec.openmpi',
                                           'mpiexec-mpich-mp', 'mpiexec-openmpi-mp')


class MpirunRsh(LaunchMethod):
    """MPIRUN_RSH, with a host per rank (MVAPICH2 user guide, section 5.2)."""

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
