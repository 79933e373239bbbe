"""The launch methods of SGI's and HPE's Message Passing Toolkit: MPIRUN_MPT, MPIEXEC_MPT, MPIRUN_DPLACE and DPLACE.

mpirun takes a list of hosts and the number of processes on each. It starts a shepherd process on each host, which
dplace must skip. mpiexec_mpt uses the hosts in the file $PBS_NODEFILE, one line per process. dplace binds the processes
that it starts, one after the other, to the cores of a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rp_agent.launch_method.base import Command, Job, LaunchMethod, Program, Setting
from rp_agent.launch_method.nodes import all_cores, blocks, cores_of_each, hosts, ranges
from rp_agent.launch_method.single import Fork
from rp_agent.launch_method.system import LaunchSystem

_RANK = ('MPT_MPI_RANK', 'MPI_RANK', 'PMI_RANK')


class MpirunMpt(LaunchMethod):
    """MPIRUN_MPT."""

    NAME: ClassVar[str] = 'MPIRUN_MPT'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('mpirun_mpt',)
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'MPI_*', 'MPT_*')

    rank_variables = _RANK

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        names = ','.join([rank.node for rank in job.ranks])
        return Command((self.program.path, names, '-np', '1', *self._arguments, *executable), {},
                       {'MPI_SHEPHERD': 'true'})


class MpiexecMpt(MpirunMpt):
    """MPIEXEC_MPT."""

    NAME: ClassVar[str] = 'MPIEXEC_MPT'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('mpiexec_mpt',)

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        path, text = hosts(job)
        argv = (self.program.path, '-np', str(len(job.ranks)), *self._arguments, *_omplace(job), *executable)
        return Command(argv, {f'{job.uid}.hosts': text}, {'PBS_NODEFILE': path})


class Dplace(Fork):
    """DPLACE."""

    NAME: ClassVar[str] = 'DPLACE'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('dplace',)

    def refuses(self, job: Job) -> str:
        return super().refuses(job) or ('' if job.ranks[0].cores else 'the numbers of the cores are unknown')

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        return Command((self.program.path, '-c', ranges(job.ranks[0].cores), *self._arguments, *executable))


class MpirunDplace(LaunchMethod):
    """MPIRUN_DPLACE."""

    NAME: ClassVar[str] = 'MPIRUN_DPLACE'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('mpirun',)
    RESERVED: ClassVar[tuple[str, ...]] = MpirunMpt.RESERVED

    rank_variables = _RANK

    def __init__(self, program: Program, setting: Setting, options: Mapping[str, Any] | None = None,
                 dplace: str = 'dplace') -> None:
        super().__init__(program, setting, options)
        self._dplace = dplace

    @classmethod
    def detect(cls, system: LaunchSystem, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        return cls(Program(system.which(*cls.PROGRAMS)), setting, options, system.which('dplace'))

    def refuses(self, job: Job) -> str:
        runs = blocks(job.ranks)
        if len({run.ranks for run in runs}) > 1 or len({run.position for run in runs}) < len(runs):
            return 'it starts the same number of consecutive ranks on each node, and these slots have another layout'
        if not cores_of_each(job.ranks, runs):
            return 'it binds the ranks of each node to the same cores, and those of these slots differ or are unknown'
        return ''

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        runs = blocks(job.ranks)
        cores = ranges(all_cores(cores_of_each(job.ranks, runs)))
        return Command((self.program.path, ','.join([run.node for run in runs]), '-np', str(runs[0].ranks),
                        *self._arguments, self._dplace, '-s', '1', '-c', cores, *executable))


def _omplace(job: Job) -> tuple[str, ...]:
    """Return the command that binds OpenMP threads; empty if the cores of the nodes differ or are unknown."""
    cores = all_cores(cores_of_each(job.ranks, blocks(job.ranks))) if job.threading == 'OpenMP' else ()
    return ('omplace', '-nt', str(job.cores_per_rank), '-c', ranges(cores)) if cores else ()
