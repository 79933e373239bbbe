"""The launch methods MPIRUN and MPIEXEC, for all flavours of these programs, and MPIRUN_RSH of MVAPICH.

A flavour is the implementation behind the names mpirun and mpiexec, with options of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rp_agent.launch_method import nodes
from rp_agent.launch_method.base import Command, Job, LaunchMethod, Program, Setting
from rp_agent.launch_method.mpi_library import MPICH, OPEN_MPI
from rp_agent.launch_method.system import LaunchSystem
from rp_api.errors import PlatformError

# not --continuous: with it, Open MPI 4 does not end by itself
_GO_ON = ('--mca', 'orte_abort_on_non_zero_status', '0')
_GO_ON_5 = ('--prtemca', 'state_base_error_non_zero_exit', '0')
"""Options that keep Open MPI from ending all ranks when one fails; its exit code is then 0."""


@dataclass(slots=True)
class Placement:
    """The options that place ranks on nodes, for each part of the command line, with their files and variables."""

    options: list[list[str]]
    files: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Flavour:
    """One implementation of mpirun."""

    name: str
    place: Callable[[Job, Program], Placement]
    rank_variables: tuple[str, ...]
    size_variables: tuple[str, ...]
    mpi: str
    """Kind of its MPI library, as `LaunchMethod.mpi`."""
    reserved: tuple[str, ...]
    """Patterns of variable names that belong to it, as `LaunchMethod.RESERVED`."""
    as_root: tuple[str, ...] = ()
    """Options that it requires to run as root."""


def open_mpi(job: Job, program: Program) -> Placement:
    """Place ranks for Open MPI: one host per rank. It passes only the variables that `-x` names to other nodes."""
    files: dict[str, str] = {}
    argv = ['-np', str(len(job.ranks)), '--map-by', 'seq:OVERSUBSCRIBE', '--bind-to', 'none',
            *nodes.host_options(job, files)]
    if _independent(job):
        argv += _GO_ON_5 if program.flavour == 'Open MPI' and program.numbers >= (5,) else _GO_ON
    for name in job.variables:
        argv += ['-x', name]
    return Placement([argv], files)


def spectrum(job: Job, program: Program) -> Placement:
    """Place ranks for IBM Spectrum MPI: as for Open MPI, with `-gpu` for programs that send GPU memory."""
    placement = open_mpi(job, program)
    if job.gpu_type == 'CUDA' and job.gpus_per_rank:
        placement.options[0].insert(0, '-gpu')
    return placement


def hydra(job: Job, _: Program) -> Placement:
    """Place ranks for Hydra, the launcher of MPICH and MVAPICH2. It passes the environment on and binds no rank."""
    runs = nodes.blocks(job.ranks)
    argv = ['-np', str(len(job.ranks)), *(['-disable-auto-cleanup'] if _independent(job) else [])]
    environment = {'MV2_ENABLE_AFFINITY': '0'}   # the library of MVAPICH2 binds all programs to the same cores
    if len(runs) <= nodes.MAX_HOSTS_IN_COMMAND:
        return Placement([[*argv, '-hosts', ','.join([f'{run.node}:{run.ranks}' for run in runs])]], {}, environment)
    path, files = _counted(job, runs)
    return Placement([[*argv, '-f', path]], files, environment)


def intel(job: Job, _: Program) -> Placement:
    """Place ranks for Intel MPI: a Hydra whose binding and batch-system placement must be turned off."""
    path, files = _counted(job, nodes.blocks(job.ranks))
    return Placement([['-np', str(len(job.ranks)), '-machinefile', path]], files,
                     {'I_MPI_PIN': 'off', 'I_MPI_JOB_RESPECT_PROCESS_PLACEMENT': 'off'})


def pals(job: Job, _: Program) -> Placement:
    """Place ranks for HPE's PALS: it fills hosts in order, and binds ranks if each host uses the same cores."""
    placement = Placement([])
    first = 0
    for number, part in enumerate(nodes.parts(nodes.blocks(job.ranks))):
        ranks = sum([run.ranks for run in part])
        each = nodes.cores_of_each(job.ranks[first:first + ranks], part)   # empty if they differ or are unknown
        bound = 'list:' + ':'.join([nodes.ranges(cores) for cores in each]) if each else 'none'   # list:0-1:2-3
        placement.options.append(['-np', str(ranks), '--envall', '--ppn', str(part[0].ranks), '--cpu-bind', bound,
                                  *_hosts_of_part(job, part, number, placement.files)])
        first += ranks
    return placement


def _independent(job: Job) -> bool:
    """Return whether ranks continue when another one fails; ranks of an MPI program would wait for it."""
    return not job.mpi and len(job.ranks) > 1


def _hosts_of_part(job: Job, part: Sequence[nodes.NodeBlock], number: int, files: dict[str, str]) -> tuple[str, str]:
    if len(part) <= nodes.MAX_HOSTS_IN_COMMAND:
        return '--hosts', ','.join([run.node for run in part])
    name = f'{job.uid}.{number}.hosts'
    files[name] = ''.join([f'{run.node}\n' for run in part])
    return '--hostfile', f'{job.sandbox}/{name}'


def _counted(job: Job, runs: Sequence[nodes.NodeBlock]) -> tuple[str, dict[str, str]]:
    """Return the path of a file that lists hosts with their numbers of ranks, and the file."""
    name = f'{job.uid}.hosts'
    return f'{job.sandbox}/{name}', {name: ''.join([f'{run.node}:{run.ranks}\n' for run in runs])}


_OMPI = ('OMPI_COMM_WORLD_RANK', 'PMIX_RANK')
_PMI = ('PMI_RANK', 'PMI_ID')

FLAVOURS = {flavour.name: flavour for flavour in (
    Flavour('Open MPI', open_mpi, _OMPI, ('OMPI_COMM_WORLD_SIZE',), OPEN_MPI, ('OMPI_*', 'PMIX_*', 'PRTE_*'),
            as_root=('--allow-run-as-root',)),
    Flavour('Spectrum MPI', spectrum, _OMPI, ('OMPI_COMM_WORLD_SIZE',), OPEN_MPI, ('OMPI_*', 'PMIX_*'),
            as_root=('--allow-run-as-root',)),
    Flavour('Hydra', hydra, _PMI, ('PMI_SIZE',), MPICH, ('PMI_*', 'MPIR_CVAR_*', 'HYDRA_*', 'MV2_*')),
    Flavour('Intel MPI', intel, _PMI, ('PMI_SIZE',), MPICH, ('PMI_*', 'I_MPI_*', 'HYDRA_*')),
    Flavour('PALS', pals, ('PALS_RANKID', 'PMI_RANK'), ('PMI_SIZE',), '', ('PALS_*', 'PMI_*')),
)}

# one of these options makes each of them print its version
_OPTIONS = ('--version', '-V', '-info')
_SIGNS = (
    ('Spectrum MPI', re.compile(r'IBM Spectrum MPI\)?\s*v?([\d.]+\w*)')),
    ('Open MPI', re.compile(r'\((?:Open MPI|OpenRTE)\)\s*v?([\d.]+\w*)')),
    ('Intel MPI', re.compile(r'Intel\(R\) MPI Library.*?Version\s+([\d.]+)', re.DOTALL)),
    ('PALS', re.compile(r'\bPALS?\b.*?(\d+\.[\d.]+)', re.IGNORECASE)),
    ('Hydra', re.compile(r'HYDRA build details:\s*Version:\s*(\S+)')),
)


def recognised(system: LaunchSystem, path: str) -> Program:
    """Detect flavour and version of a program; raise PlatformError, with its output, for an unknown flavour."""
    outputs = []
    for option in _OPTIONS:
        try:
            output = system.ask(path, option)
        except PlatformError as error:
            outputs.append(str(error))
            continue
        for flavour, sign in _SIGNS:
            found = sign.search(output)
            if found:
                return Program(path, found[1], flavour)
        outputs.append(f'`{path} {option}` printed: {output[:200]}')
    if '/pals/' in path:   # PALS may support none of these options
        return Program(path, '', 'PALS')
    raise PlatformError(f'{path} is not a known launcher ({", ".join(FLAVOURS)}): {"; ".join(outputs)}')


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
        return Command((*self.first, *nodes.joined(placement.options, executable)), placement.files, environment)


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
        if len(job.ranks) <= nodes.MAX_HOSTS_IN_COMMAND:
            argv += [rank.node for rank in job.ranks]
        else:
            path, files[f'{job.uid}.hosts'] = nodes.hosts(job)
            argv += ['-hostfile', path]
        # otherwise the library binds the ranks of all programs to the same cores
        return Command((*argv, 'MV2_ENABLE_AFFINITY=0', *executable), files)
