"""The launchers that are all called mpirun or mpiexec: which one a program is, and what it has to be told."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rp_agent.launch_method.base import Job, Program, Rank
from rp_agent.launch_method.mpi_library import MPICH, OPEN_MPI
from rp_agent.launch_method.nodes import MANY, Block, blocks, cores_of_each, host_options, parts, ranges
from rp_agent.launch_method.system import System
from rp_api.errors import PlatformError

# not --continuous, with which Open MPI 4 goes on until somebody ends it
_GO_ON = ('--mca', 'orte_abort_on_non_zero_status', '0')
_GO_ON_5 = ('--prtemca', 'state_base_error_non_zero_exit', '0')
"""What keeps Open MPI from ending all ranks when one fails. It ends with 0 then."""


@dataclass(slots=True)
class Placement:
    """The options that put ranks on nodes, for each part of the command line, and what they need besides."""

    options: list[list[str]]
    files: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Flavour:
    """One kind of mpirun."""

    name: str
    place: Callable[[Job, Program], Placement]
    rank_variables: tuple[str, ...]
    size_variables: tuple[str, ...]
    mpi: str
    """As `LaunchMethod.mpi`."""
    reserved: tuple[str, ...]
    """Patterns of the names of variables that belong to it."""
    as_root: tuple[str, ...] = ()
    """What it has to be told to run as root."""


def open_mpi(job: Job, program: Program) -> Placement:
    """Open MPI: a host for each rank, in their order. It puts nothing of the environment on other nodes by itself."""
    files: dict[str, str] = {}
    argv = ['-np', str(len(job.ranks)), '--map-by', 'seq:OVERSUBSCRIBE', '--bind-to', 'none', *host_options(job, files)]
    if _independent(job):
        argv += _GO_ON_5 if program.flavour == 'Open MPI' and program.numbers >= (5,) else _GO_ON
    for name in job.variables:
        argv += ['-x', name]
    return Placement([argv], files)


def spectrum(job: Job, program: Program) -> Placement:
    """IBM Spectrum MPI, which is an Open MPI that has to be told when the program gives it memory of GPUs."""
    placement = open_mpi(job, program)
    if job.gpu_type == 'CUDA' and job.gpus_per_rank:
        placement.options[0].insert(0, '-gpu')
    return placement


def hydra(job: Job, _: Program) -> Placement:
    """MPICH and MVAPICH2, whose launcher is called Hydra and takes the environment along. It binds nothing.

    The library of MVAPICH2 would, each program to the same cores.
    """
    runs = blocks(job.ranks)
    argv = ['-np', str(len(job.ranks)), *(['-disable-auto-cleanup'] if _independent(job) else [])]
    environment = {'MV2_ENABLE_AFFINITY': '0'}
    if len(runs) <= MANY:
        return Placement([[*argv, '-hosts', ','.join([f'{run.node}:{run.ranks}' for run in runs])]], {}, environment)
    path, files = _counted(job, runs)
    return Placement([[*argv, '-f', path]], files, environment)


def intel(job: Job, _: Program) -> Placement:
    """Intel MPI, a Hydra that binds ranks and listens to the batch system unless it is told otherwise."""
    path, files = _counted(job, blocks(job.ranks))
    return Placement([['-np', str(len(job.ranks)), '-machinefile', path]], files,
                     {'I_MPI_PIN': 'off', 'I_MPI_JOB_RESPECT_PROCESS_PLACEMENT': 'off'})


def pals(job: Job, _: Program) -> Placement:
    """HPE's PALS fills hosts one after the other, and binds ranks where those of each host have the same cores."""
    placement = Placement([])
    first = 0
    for number, part in enumerate(parts(blocks(job.ranks))):
        ranks = sum([run.ranks for run in part])
        placement.options.append(['-np', str(ranks), '--envall', '--ppn', str(part[0].ranks), '--cpu-bind',
                                  _core_list(job.ranks[first:first + ranks], part)])
        placement.options[-1] += _hosts_of_part(job, part, number, placement.files)
        first += ranks
    return placement


def _independent(job: Job) -> bool:
    """Whether ranks go on when another one fails: those of an MPI program would wait for it."""
    return not job.mpi and len(job.ranks) > 1


def _hosts_of_part(job: Job, part: Sequence[Block], number: int, files: dict[str, str]) -> tuple[str, str]:
    if len(part) <= MANY:
        return '--hosts', ','.join([run.node for run in part])
    name = f'{job.uid}.{number}.hosts'
    files[name] = ''.join([f'{run.node}\n' for run in part])
    return '--hostfile', f'{job.sandbox}/{name}'


def _counted(job: Job, runs: Sequence[Block]) -> tuple[str, dict[str, str]]:
    """The path of a file of hosts with the number of their ranks, and the file."""
    name = f'{job.uid}.hosts'
    return f'{job.sandbox}/{name}', {name: ''.join([f'{run.node}:{run.ranks}\n' for run in runs])}


def _core_list(ranks: Sequence[Rank], part: Sequence[Block]) -> str:
    """The cores of the ranks of each node, in the form `list:0-1:2-3`; `none` if they differ or are not known."""
    each = cores_of_each(ranks, part)
    return 'list:' + ':'.join([ranges(cores) for cores in each]) if each else 'none'


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

# what they print for one of these options, each with its version
_OPTIONS = ('--version', '-V', '-info')
_SIGNS = (
    ('Spectrum MPI', re.compile(r'IBM Spectrum MPI\)?\s*v?([\d.]+\w*)')),
    ('Open MPI', re.compile(r'\((?:Open MPI|OpenRTE)\)\s*v?([\d.]+\w*)')),
    ('Intel MPI', re.compile(r'Intel\(R\) MPI Library.*?Version\s+([\d.]+)', re.DOTALL)),
    ('PALS', re.compile(r'\bPALS?\b.*?(\d+\.[\d.]+)', re.IGNORECASE)),
    ('Hydra', re.compile(r'HYDRA build details:\s*Version:\s*(\S+)')),
)


def recognised(system: System, path: str) -> Program:
    """The program with its flavour and version; `PlatformError`, with what it says, if it is none of these."""
    heard = []
    for option in _OPTIONS:
        try:
            said = system.ask(path, option)
        except PlatformError as error:
            heard.append(str(error))
            continue
        for flavour, sign in _SIGNS:
            found = sign.search(said)
            if found:
                return Program(path, found[1], flavour)
        heard.append(f'`{path} {option}` says: {said[:200]}')
    if '/pals/' in path:   # it may know none of these options
        return Program(path, '', 'PALS')
    raise PlatformError(f'{path} is none of {", ".join(FLAVOURS)}: {"; ".join(heard)}')
