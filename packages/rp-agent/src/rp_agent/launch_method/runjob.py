"""The launch method RUNJOB, of Blue Gene/Q: ranks on a block of nodes, or on a part of it, a sub-block.

Sub-blocks are what the scheduler TORUS gives: a corner and a shape. The options are those of IBM's manual of runjob.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rp_agent.launch_method.base import Command, Job, LaunchMethod
from rp_agent.launch_method.nodes import blocks


class Runjob(LaunchMethod):
    """RUNJOB."""

    NAME: ClassVar[str] = 'RUNJOB'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('runjob',)
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'BG_*')

    rank_variables = ('PMI_RANK', 'MPI_RANK', 'PMIX_RANK')

    def refuses(self, job: Job) -> str:
        if 'loadl_bg_block' not in self.setting.facts:
            return 'the pilot has no block of a Blue Gene/Q (LOADL_BG_BLOCK)'
        return '' if 'corner_node' in job.details else 'the slots are no sub-block, as agent_scheduler TORUS gives them'

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        argv = [self.program.path, '--np', str(len(job.ranks)), '--ranks-per-node', str(_ranks_per_node(job)),
                '--block', self.setting.facts['loadl_bg_block'], '--corner', str(job.details['corner_node']),
                '--shape', 'x'.join(map(str, job.details['shape'])), *self._arguments]
        for name in job.variables:
            argv += ['--exp-env', name]
        return Command((*argv, ':', *executable))


def _ranks_per_node(job: Job) -> int:
    """A power of two, as runjob takes no other numbers."""
    return 1 << (max(run.ranks for run in blocks(job.ranks)) - 1).bit_length()
