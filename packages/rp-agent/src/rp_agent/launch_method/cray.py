"""The launch methods of Cray's systems: APRUN, CCMRUN and MPIRUN_CCMRUN.

aprun belongs to ALPS and is described in S-2496 (http://docs.cray.com/books/S-2496-4101); PALS has one that takes
the same options. ccmrun enters the Cluster Compatibility Mode, in which the nodes of a job are an ordinary cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rp_agent.launch_method.base import Command, Job, LaunchMethod, Setting, one_process
from rp_agent.launch_method.mpirun import Mpirun
from rp_agent.launch_method.nodes import NodeBlock, blocks, joined, parts
from rp_agent.launch_method.system import LaunchSystem

_NODE = re.compile(r'nid0*(\d+)')


class Aprun(LaunchMethod):
    """APRUN."""

    NAME: ClassVar[str] = 'APRUN'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('aprun',)
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'ALPS_*', 'PALS_*', 'PMI_*')

    rank_variables = ('ALPS_APP_PE', 'PALS_RANKID', 'PMI_RANK')

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        options = [self._part(job, part) for part in parts(blocks(job.ranks))]
        # -b: the executable is on all nodes; aprun need not send it there
        options[0] = ['-b', *options[0], *self._arguments]
        return Command((self.program.path, *joined(options, executable)))

    def _part(self, job: Job, part: Sequence[NodeBlock]) -> list[str]:
        argv = ['-n', str(sum([run.ranks for run in part])), '-N', str(part[0].ranks), '-d', str(job.cores_per_rank),
                '-cc', 'none']
        if self.setting.threads_per_core > 1:
            argv += ['-j', str(self.setting.threads_per_core)]
        if job.mem_per_rank:
            argv += ['-m', f'{job.mem_per_rank}M']
        numbers = [found[1] for found in (_NODE.fullmatch(run.node) for run in part) if found]
        if len(numbers) == len(part):
            argv += ['-L', ','.join(numbers)]
        return argv


class Ccmrun(LaunchMethod):
    """CCMRUN: one process, on the first node of the pilot."""

    NAME: ClassVar[str] = 'CCMRUN'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('ccmrun',)

    def refuses(self, job: Job) -> str:
        reason = one_process(job)
        if not reason and job.ranks[0].index:
            reason = f'it starts processes on the first node of the pilot, not on {job.ranks[0].node}'
        return reason

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        return Command((self.program.path, '-n', '1', *self._arguments, *executable))


class MpirunCcmrun(Mpirun):
    """MPIRUN_CCMRUN: mpirun, started by ccmrun on the first node of the pilot."""

    NAME: ClassVar[str] = 'MPIRUN_CCMRUN'

    @classmethod
    def detect(cls, system: LaunchSystem, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        ccmrun = system.which('ccmrun')
        method = super().detect(system, setting, options)
        assert isinstance(method, MpirunCcmrun)
        method.first = (ccmrun, *method.first)
        return method
