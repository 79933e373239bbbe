"""The launch method SRUN: a step of the pilot's Slurm job.

The pilot's scheduler assigns cores and GPUs. Slurm therefore lets steps overlap, and no step waits until Slurm has
cleaned up another one. On platforms with `exclusive`, Slurm separates the steps (`--exact`), and chooses cores and GPUs
on the given nodes.

The options are those of https://slurm.schedmd.com/srun.html.
"""

from __future__ import annotations

import math
import os
import re
import signal
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rp_agent.launch_method.base import Command, Job, LaunchMethod, Program, Setting
from rp_agent.launch_method.mpi_library import MPICH, OPEN_MPI
from rp_agent.launch_method.nodes import MAX_HOSTS_IN_COMMAND, NodeBlock, blocks, hosts, in_order
from rp_agent.launch_method.system import LaunchSystem
from rp_api.errors import PlatformError

_OVERLAP = (20, 11)
"""First version in which steps that share a node need `--overlap`; before, all steps could."""
_NODEFILE = (19,)
"""First version with `--nodefile`."""

_PMI = {MPICH: ('pmi2', 'cray_shasta'), OPEN_MPI: ('pmix', 'pmi2'), None: ('pmi2',)}
"""Types of PMI by which ranks of an MPI library find each other, the first one preferred. For an unknown library (None)
it is the one under which a program with another library fails; without, each rank would be a program of one rank."""

VERBOSE = 'RADICAL_PILOT_SRUN_VERBOSE'
"""Name of a variable that makes srun print details."""


class Srun(LaunchMethod):
    """SRUN."""

    NAME: ClassVar[str] = 'SRUN'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('srun',)
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'SLURM_*')
    # a second SIGINT within a second makes srun end its step at once
    CANCEL: ClassVar[tuple[signal.Signals, ...]] = (signal.SIGINT, signal.SIGINT, signal.SIGKILL)

    rank_variables = ('SLURM_PROCID',)
    size_variables = ('SLURM_STEP_NUM_TASKS', 'SLURM_NTASKS')

    def __init__(self, program: Program, setting: Setting, options: Mapping[str, Any] | None = None, *,
                 binds: bool = True, counts_gpus: bool = False, verbose: bool = False,
                 pmi: str = '', pmis: Sequence[str] = ()) -> None:
        super().__init__(program, setting, options)
        self.chooses_devices = setting.exclusive
        self._counts_gpus = counts_gpus
        chosen = any(argument.startswith('--mpi') for argument in self._arguments)
        self._pmi, self._pmis = pmi, () if chosen else tuple(pmis)
        self.asks_library = bool(self._pmis)
        self._verbose = {'SLURM_DEBUG': '1', 'SLURM_CPU_BIND': 'verbose'} if verbose else {}
        threads = ('--threads-per-core', str(setting.threads_per_core)) if setting.threads_per_core > 1 else ()
        self._fixed = ('--export=ALL', *self._sharing(binds), *threads)

    @classmethod
    def detect(cls, system: LaunchSystem, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        path = system.which(*cls.PROGRAMS)
        output = system.ask(path, '--version')
        found = re.search(r'^slurm\S* (\d+\.\d+\S*)', output, re.MULTILINE)   # `slurm-wlm 22.05.8` on Debian
        program = Program(path, found[1] if found else '')
        configured = _configuration(system, path)
        return cls(program, setting, options, binds='affinity' in configured.get('TaskPlugin', 'affinity'),
                   counts_gpus='SLURM_GPUS' in system.environ, verbose=VERBOSE in system.environ,
                   pmi=system.environ.get('SLURM_MPI_TYPE') or configured.get('MpiDefault', ''),
                   pmis=_types_of_pmi(system, path))

    def refuses(self, job: Job) -> str:
        if self._pmi_of(job) is not None or job.linked is None:
            return ''
        return (f'{job.linked.program} uses {job.linked.kind} ({job.linked.library}), whose ranks find each other by '
                f'{" or ".join(_PMI[job.linked.kind])}, and this Slurm has {", ".join(self._pmis)}: each rank would '
                f'run as a separate program')

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        ranks = len(job.ranks)
        runs = blocks(job.ranks)
        most = max(run.ranks for run in runs)
        argv = [self.program.path, *self._fixed, *_together(job), '--ntasks', str(ranks),
                '--cpus-per-task', str(job.cores_per_rank), '--mem', str(job.mem_per_rank * most),
                *self._gpus(job, runs, most)]
        if pmi := self._pmi_of(job):
            argv.append(f'--mpi={pmi}')
        files: dict[str, str] = {}
        environment = dict(self._verbose)
        if in_order(runs) and all(run.ranks == most for run in runs):
            argv += ['--nodes', str(len(runs)), '--ntasks-per-node', str(most)]
            argv += self._nodes(job, runs, files)
        else:
            environment['SLURM_HOSTFILE'], files[f'{job.uid}.hosts'] = hosts(job)
            argv.append('--distribution=arbitrary')
        return Command((*argv, *self._arguments, *executable), files, environment)

    def _sharing(self, binds: bool) -> tuple[str, ...]:
        """Return the options that separate steps, or let them overlap."""
        if self.setting.exclusive:
            return ('--exact',) if self._is(_OVERLAP) else ('--exclusive',)
        return (*(('--overlap',) if self._is(_OVERLAP) else ()), '--overcommit',
                *(('--cpu-bind=none',) if binds else ()))   # a Slurm that cannot bind warns in each task's output

    def _pmi_of(self, job: Job) -> str | None:
        """Return the type of PMI that a job has to ask for: empty for Slurm's default; None if none fits."""
        kind = job.linked.kind if job.linked else None
        if not self._pmis or not job.mpi or len(job.ranks) == 1 or not (kind or self._pmi == 'none'):
            return ''
        if self._pmi.partition('_v')[0] in _PMI[kind]:
            return ''
        return next((pmi for pmi in _PMI[kind] if pmi in self._pmis), None)

    def _gpus(self, job: Job, runs: Sequence[NodeBlock], most: int) -> tuple[str, ...]:
        """Return the options for GPUs; without `exclusive`, all GPUs of each node, of which ranks choose their own."""
        each = self.setting.gpus_per_node
        if not each or job.skip_gpus:
            return ()
        nodes = len({run.position for run in runs})
        if not self.setting.exclusive:
            return (*self._total(nodes * each), '--gpus-per-node', str(each)) if self._counts_gpus else ()
        if not job.gpus_per_rank:
            return ('--gpus=0',)   # otherwise the step takes all GPUs of the job
        if job.gpus_per_rank < 1:   # Slurm has no fractions: the ranks of a node share the GPUs of their task there
            shared = math.ceil(most * job.gpus_per_rank)
            return *self._total(nodes * shared), '--gpus-per-node', str(shared)
        whole = int(job.gpus_per_rank)
        return *self._total(len(job.ranks) * whole), '--gpus-per-task', str(whole), '--gpu-bind=closest'

    def _total(self, gpus: int) -> tuple[str, ...]:
        """Return the option for the GPUs of all nodes, if the job has a total, which the step would inherit."""
        return ('--gpus', str(gpus)) if self._counts_gpus else ()

    def _nodes(self, job: Job, runs: Sequence[NodeBlock], files: dict[str, str]) -> tuple[str, ...]:
        names = ','.join(run.node for run in runs)
        if len(runs) <= MAX_HOSTS_IN_COMMAND or not self._is(_NODEFILE):
            return (f'--nodelist={names}',)
        files[f'{job.uid}.nodes'] = f'{names}\n'
        return (f'--nodefile={job.sandbox}/{job.uid}.nodes',)

    def _is(self, version: tuple[int, ...]) -> bool:
        """Return whether srun has this version or a later one; an unknown version counts as new."""
        return not self.program.numbers or self.program.numbers >= version


def _configuration(system: LaunchSystem, srun: str) -> dict[str, str]:
    """Return values of this Slurm's configuration; empty if they are unknown."""
    try:
        output = system.ask(os.path.join(os.path.dirname(srun), 'scontrol'), 'show', 'config')
    except PlatformError:
        return {}
    return dict(re.findall(r'^(TaskPlugin|MpiDefault)\s*=\s*(\S+)', output, re.MULTILINE))


def _types_of_pmi(system: LaunchSystem, srun: str) -> tuple[str, ...]:
    """Return the types of PMI that this Slurm has; empty if they are unknown."""
    try:
        output = system.ask(srun, '--mpi=list')
    except PlatformError:
        return ()
    return tuple(re.findall(r'^(?:srun:)?\s+(\w+)\s*$', output, re.MULTILINE))


def _together(job: Job) -> tuple[str, ...]:
    """Return the options that end the ranks of an MPI program when a rank or node fails, and let others continue."""
    # `--wait=0` lifts a site's limit on the time that ranks may run after the first one has ended
    if len(job.ranks) == 1:
        return ()
    return ('-K1', '--quit-on-interrupt') if job.mpi else ('-K0', '--no-kill', '--wait=0')
