"""The launch method FLUX: a job in the instance of Flux that the nodes belong to.

Flux gives ranks their cores and GPUs itself, on the nodes that it is told. The job may name its instance, as `flux_uri`
of its details; else it is the one that the agent runs in. The options are those of `flux run`, at
https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man1/flux-run.html.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rp_agent.launch_method.base import Command, Job, LaunchMethod, Program, Setting
from rp_agent.launch_method.nodes import blocks
from rp_agent.launch_method.system import System
from rp_api.errors import PlatformError

HERE = os.uname().nodename
"""What Flux calls this host, which is `localhost` where no batch system has given it a name."""

FLUX_URI = 'flux_uri'
"""Where in the details of a job the URI of its instance stands."""


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
    def detect(cls, system: System, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        path = system.which(*cls.PROGRAMS)
        said = system.ask(path, 'version')
        found = re.search(r'^(?:commands|libflux-core):\s*(\S+)', said, re.MULTILINE)
        if found is None:
            raise PlatformError(f'`{path} version` is not the answer of Flux: {said[:200]}')
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
        uri = job.details.get(FLUX_URI)
        return Command((*argv, *self._arguments, *executable), {}, {'FLUX_URI': uri} if uri else {})
