"""The launch method SRUN: a step of the job of the pilot.

The pilot's scheduler has decided who gets which cores and GPUs. So steps may overlap as far as Slurm is concerned, and
none of them waits until Slurm has cleaned up after another one. On platforms that say `exclusive`, Slurm keeps steps
apart itself (`--exact`), and chooses cores and GPUs on the nodes that it is told.

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
from rp_agent.launch_method.nodes import MANY, Block, blocks, hosts, in_order
from rp_agent.launch_method.system import System
from rp_api.errors import PlatformError

_OVERLAP = (20, 11)
"""The first version in which steps have to say that they may share a node; before, all of them might."""
_NODEFILE = (19,)

VERBOSE = 'RADICAL_PILOT_SRUN_VERBOSE'
"""A variable that, when set, makes it tell what it does."""


class Srun(LaunchMethod):
    """SRUN."""

    NAME: ClassVar[str] = 'SRUN'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('srun',)
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'SLURM_*')
    # the second one within a second makes it end its step at once
    CANCEL: ClassVar[tuple[signal.Signals, ...]] = (signal.SIGINT, signal.SIGINT, signal.SIGKILL)

    rank_variables = ('SLURM_PROCID',)
    size_variables = ('SLURM_STEP_NUM_TASKS', 'SLURM_NTASKS')

    def __init__(self, program: Program, setting: Setting, options: Mapping[str, Any] | None = None, *,
                 binds: bool = True, counts_gpus: bool = False, verbose: bool = False) -> None:
        super().__init__(program, setting, options)
        self.chooses_devices = setting.exclusive
        self._counts_gpus = counts_gpus
        self._verbose = {'SLURM_DEBUG': '1', 'SLURM_CPU_BIND': 'verbose'} if verbose else {}
        self._fixed = ('--export=ALL', *self._sharing(binds), *self._threads())

    @classmethod
    def detect(cls, system: System, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        path = system.which(*cls.PROGRAMS)
        said = system.ask(path, '--version')
        found = re.search(r'^slurm\S* (\d+\.\d+\S*)', said, re.MULTILINE)   # `slurm-wlm 22.05.8` of Debian
        program = Program(path, found[1] if found else '')
        return cls(program, setting, options, binds=_binds(system, path), counts_gpus='SLURM_GPUS' in system.environ,
                   verbose=VERBOSE in system.environ)

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        ranks = len(job.ranks)
        runs = blocks(job.ranks)
        most = max(run.ranks for run in runs)
        argv = [self.program.path, *self._fixed, *_together(job), '--ntasks', str(ranks),
                '--cpus-per-task', str(job.cores_per_rank), '--mem', str(job.mem_per_rank * most),
                *self._gpus(job, runs, most)]
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
        """Who decides which cores a step gets."""
        if self.setting.exclusive:
            return ('--exact',) if self._is(_OVERLAP) else ('--exclusive',)
        return (*(('--overlap',) if self._is(_OVERLAP) else ()), '--overcommit',
                *(('--cpu-bind=none',) if binds else ()))   # else it would complain, in the output of each task

    def _threads(self) -> tuple[str, ...]:
        threads = self.setting.threads_per_core
        return ('--threads-per-core', str(threads)) if threads > 1 else ()

    def _gpus(self, job: Job, runs: Sequence[Block], most: int) -> tuple[str, ...]:
        """What Slurm is told about GPUs: as little as possible where ranks see all of a node and know their own."""
        each = self.setting.gpus_per_node
        if not each or job.skip_gpus:
            return ()
        nodes = len({run.position for run in runs})
        if not self.setting.exclusive:
            return (*self._total(nodes * each), '--gpus-per-node', str(each)) if self._counts_gpus else ()
        if not job.gpus_per_rank:
            return ('--gpus=0',)   # else the step would take all of the job
        if job.gpus_per_rank < 1:   # which Slurm does not know: the ranks of a node share what their task has there
            shared = math.ceil(most * job.gpus_per_rank)
            return *self._total(nodes * shared), '--gpus-per-node', str(shared)
        whole = int(job.gpus_per_rank)
        return *self._total(len(job.ranks) * whole), '--gpus-per-task', str(whole), '--gpu-bind=closest'

    def _total(self, gpus: int) -> tuple[str, ...]:
        """The GPUs of all nodes, if the job has a number of them: else its step would ask for as many."""
        return ('--gpus', str(gpus)) if self._counts_gpus else ()

    def _nodes(self, job: Job, runs: Sequence[Block], files: dict[str, str]) -> tuple[str, ...]:
        names = ','.join(run.node for run in runs)
        if len(runs) <= MANY or not self._is(_NODEFILE):
            return (f'--nodelist={names}',)
        files[f'{job.uid}.nodes'] = f'{names}\n'
        return (f'--nodefile={job.sandbox}/{job.uid}.nodes',)

    def _is(self, version: tuple[int, ...]) -> bool:
        """Whether it is that version or a later one; one that does not tell is new."""
        return not self.program.numbers or self.program.numbers >= version


def _binds(system: System, srun: str) -> bool:
    """Whether this Slurm can bind processes to cores, or does not tell."""
    try:
        said = system.ask(os.path.join(os.path.dirname(srun), 'scontrol'), 'show', 'config')
    except PlatformError:
        return True
    plugin = re.search(r'^TaskPlugin\s*=\s*(\S+)', said, re.MULTILINE)
    return plugin is None or 'affinity' in plugin[1]


def _together(job: Job) -> tuple[str, ...]:
    """Whether ranks end when one of them, or a node, fails: those of an MPI program would wait for it forever.

    Others go on, however long after the first one that has ended (sites may have set a limit).
    """
    if len(job.ranks) == 1:
        return ()
    return ('-K1', '--quit-on-interrupt') if job.mpi else ('-K0', '--no-kill', '--wait=0')
