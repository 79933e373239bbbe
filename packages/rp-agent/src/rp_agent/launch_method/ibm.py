"""The launch methods of IBM's systems: POE, RUNJOB, JSRUN and JSRUN_ERF.

poe, of the Parallel Environment under LSF, takes hosts and ranks from a variable. runjob starts ranks on a block of
nodes of a Blue Gene/Q, or on a sub-block: a corner and a shape, which the scheduling policy TORUS assigns. jsrun, of
the Job Step Manager, starts ranks in resource sets: cores and GPUs of a node that ranks may share. JSRUN passes the
number of sets and their sizes, and jsrun places them. JSRUN_ERF places them itself, in an explicit resource file:
https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=SSWRJV_10.1.0/jsm/10.3/base/erf_format.html.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from rp_agent.launch_method.base import Command, Job, LaunchMethod, Program, Rank, Setting
from rp_agent.launch_method.nodes import blocks, ranges
from rp_agent.launch_method.system import LaunchSystem
from rp_agent.resource_manager.systems.lsf import Lsf


class Poe(LaunchMethod):
    """POE."""

    NAME: ClassVar[str] = 'POE'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('poe',)
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'MP_*', 'LSB_MCPU_HOSTS')

    rank_variables = ('MP_CHILD', 'PMI_RANK')

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        hosts = ' '.join([f'{run.node} {run.ranks}' for run in blocks(job.ranks)])
        # MP_NOARGLIST: poe does not interpret the arguments of the program
        environment = {'LSB_MCPU_HOSTS': hosts, 'MP_PROCS': str(len(job.ranks)), 'MP_NOARGLIST': 'yes'}
        return Command((self.program.path, *executable), {}, environment)


class Runjob(LaunchMethod):
    """RUNJOB."""

    NAME: ClassVar[str] = 'RUNJOB'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('runjob',)
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'BG_*')

    rank_variables = ('PMI_RANK', 'MPI_RANK', 'PMIX_RANK')

    def refuses(self, job: Job) -> str:
        if 'loadl_bg_block' not in self.setting.facts:
            return 'the pilot has no block of a Blue Gene/Q (LOADL_BG_BLOCK)'
        if 'corner_node' not in job.details:
            return 'it starts ranks on sub-blocks, which only agent_scheduler TORUS assigns'
        return ''

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        # the largest number of ranks on a node, rounded up to a power of two, as runjob requires
        most = 1 << (max(run.ranks for run in blocks(job.ranks)) - 1).bit_length()
        argv = [self.program.path, '--np', str(len(job.ranks)), '--ranks-per-node', str(most),
                '--block', self.setting.facts['loadl_bg_block'], '--corner', str(job.details['corner_node']),
                '--shape', 'x'.join(map(str, job.details['shape'])), *self._arguments]
        for name in job.variables:
            argv += ['--exp-env', name]
        return Command((*argv, ':', *executable))


_MILLIONTH = 1e-6
"""Rounding error, in GPUs, that a sum of decimal shares may have."""


class Sets(NamedTuple):
    """Resource sets of one shape."""

    number: int
    ranks: int
    gpus: int


class Jsrun(LaunchMethod):
    """JSRUN."""

    NAME: ClassVar[str] = 'JSRUN'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('jsrun',)
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'JSM_*', 'PMIX_*', 'OMPI_*')

    rank_variables = ('PMIX_RANK', 'JSM_NAMESPACE_RANK', 'OMPI_COMM_WORLD_RANK')
    size_variables = ('JSM_NAMESPACE_SIZE', 'OMPI_COMM_WORLD_SIZE')
    chooses_devices = True

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        sets = resource_sets(len(job.ranks), job.gpus_per_rank)
        cores = math.ceil(sets.ranks * job.cores_per_rank / self.setting.threads_per_core)
        argv = [self.program.path, f'-n{sets.number}', f'-a{sets.ranks}', f'-c{cores}', f'-g{sets.gpus}']
        if sets.gpus:
            most = max(Counter(rank.index for rank in job.ranks).values())   # ranks on a node
            argv.append(f'-r{max(1, most // sets.ranks)}')
        if sets.ranks == 1:
            argv += ['-b', 'rs']
        elif job.cores_per_rank > 1 or job.threading == 'OpenMP':
            argv += ['-b', f'packed:{math.ceil(job.cores_per_rank / self.setting.threads_per_core)}']
        if job.mem_per_rank:
            argv += ['-m', str(sets.ranks * job.mem_per_rank)]
        return Command((*argv, *_smpi(job), *self._arguments, *executable))


class JsrunErf(Jsrun):
    """JSRUN_ERF."""

    NAME: ClassVar[str] = 'JSRUN_ERF'
    chooses_devices = False

    def __init__(self, program: Program, setting: Setting, options: Mapping[str, Any] | None = None,
                 positions: Mapping[str, int] | None = None) -> None:
        super().__init__(program, setting, options)
        self._positions = positions or {}

    @classmethod
    def detect(cls, system: LaunchSystem, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        return cls(Program(system.which(*cls.PROGRAMS)), setting, options, system.positions(Lsf()))

    def refuses(self, job: Job) -> str:
        return '' if all(rank.cores for rank in job.ranks) else 'the numbers of the cores are unknown'

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        name = f'{job.uid}.rs'
        text = ''.join(['cpu_index_using: logical\n', *_erf_lines(job.ranks, self._positions)])
        argv = (self.program.path, '--erf_input', f'{job.sandbox}/{name}', *_smpi(job), *self._arguments, *executable)
        return Command(argv, {name: text})


def resource_sets(ranks: int, gpus_per_rank: float) -> Sets:
    """Divide ranks into as many resource sets as possible, with equal numbers of ranks and of whole GPUs."""
    if gpus_per_rank == int(gpus_per_rank):
        return Sets(ranks, 1, int(gpus_per_rank))
    gpus = math.ceil(ranks * gpus_per_rank - _MILLIONTH)
    count = math.gcd(ranks, gpus)
    return Sets(count, ranks // count, gpus // count)


def _erf_lines(ranks: Sequence[Rank], positions: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each resource set: consecutive ranks that share GPUs, or one other rank."""
    # hosts are numbered as in the LSF job, from 1: 0 is the launch node
    start = 0
    for number in range(1, len(ranks) + 1):
        if number == len(ranks) or not _share(ranks[start], ranks[number]):
            first, members = ranks[start], ranks[start:number]
            cores = ','.join(['{' + ranges(rank.cores) + '}' for rank in members])
            gpus = f'; gpu: {{{ranges(first.gpus)}}}' if first.gpus else ''
            yield (f'rank: {",".join(map(str, range(start, number)))} : '
                   f'{{ host: {positions.get(first.node, first.index) + 1}; cpu: {cores}{gpus} }}\n')
            start = number


def _share(one: Rank, other: Rank) -> bool:
    return bool(one.gpus) and one.gpus == other.gpus and one.index == other.index


def _smpi(job: Job) -> tuple[str, ...]:
    """Return the options for the MPI library of ranks with CUDA GPUs."""
    if job.gpu_type != 'CUDA' or not job.gpus_per_rank:
        return ()
    return ('--smpiargs=-gpu',) if len(job.ranks) > 1 else ('--smpiargs=off',)
