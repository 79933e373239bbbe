"""The launch methods of runtimes: FLUX, a job in the Flux instance that owns the nodes, and DRAGON.

Flux chooses the cores and GPUs of ranks on the given nodes. `flux_uri` in the details of a job is the address of its
instance; without it, the job runs in the agent's instance. The options are those of `flux run`:
https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man1/flux-run.html.

The executor DRAGON itself starts the ranks, in the runtime that it keeps on the nodes.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rp_agent.launch_method.base import Command, Job, LaunchMethod, Program, Setting
from rp_agent.launch_method.nodes import blocks
from rp_agent.launch_method.system import LaunchSystem
from rp_api.errors import PlatformError

HERE = os.uname().nodename
"""Name of this host in Flux, used for the node name `localhost` of pilots without a batch system."""

FLUX_URI = 'flux_uri'
"""Key in the details of a job for the URI of its instance."""


class Flux(LaunchMethod):
    """FLUX."""

    NAME: ClassVar[str] = 'FLUX'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('flux',)
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'FLUX_*', 'MPICH_*', 'PMI_*', 'PMIX_*', 'SLURM_*')

    SHARES_NODES: ClassVar[bool] = False

    rank_variables = ('FLUX_TASK_RANK',)
    size_variables = ('FLUX_JOB_SIZE',)
    chooses_devices = True

    @classmethod
    def detect(cls, system: LaunchSystem, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        path = system.which(*cls.PROGRAMS)
        output = system.ask(path, 'version')
        found = re.search(r'^(?:commands|libflux-core):\s*(\S+)', output, re.MULTILINE)
        if found is None:
            raise PlatformError(f'`{path} version` did not print the version of Flux: {output[:200]}')
        return cls(Program(path, found[1]), setting, options)

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        nodes = dict.fromkeys(run.node for run in blocks(job.ranks))
        names = (HERE if node == 'localhost' else node for node in nodes)
        argv = [self.program.path, 'run', f'--nodes={len(nodes)}', f'--ntasks={len(job.ranks)}',
                f'--cores-per-task={math.ceil(job.cores_per_rank / self.setting.threads_per_core)}']
        if job.gpus_per_rank:
            argv.append(f'--gpus-per-task={math.ceil(job.gpus_per_rank)}')
        argv += [f'--requires=hosts:{",".join(names)}', '--input=/dev/null',
                 '-o', 'exit-on-error' if job.mpi else 'exit-timeout=none']
        if len(job.ranks) > 1:   # else each sees the cores and GPUs of all ranks on its node
            argv += ['-o', 'cpu-affinity=per-task', *(['-o', 'gpu-affinity=per-task'] if job.gpus_per_rank else [])]
        uri = job.details.get(FLUX_URI)
        return Command((*argv, *self._arguments, *executable), {}, {'FLUX_URI': uri} if uri else {})


class Dragon(LaunchMethod):
    """DRAGON."""

    NAME: ClassVar[str] = 'DRAGON'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('dragon',)
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'DRAGON_*', 'PMI_*')
    SPAWNER: ClassVar[str] = 'DRAGON'

    rank_variables = ('RP_RANK',)

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        return Command(tuple(executable))
