"""The launch method RUNJOB of Blue Gene/Q: ranks on a block of nodes, or on a sub-block.

The scheduling policy TORUS assigns sub-blocks: a corner and a shape. IBM's manual of runjob describes the options.
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
        if 'corner_node' not in job.details:
            return 'it starts ranks on sub-blocks, which only agent_scheduler TORUS assigns'
        return ''

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        argv = [self.program.path, '--np', str(len(job.ranks)), '--ranks-per-node', str(_ranks_per_node(job)),
                '--block', self.setting.facts['loadl_bg_block'], '--corner', str(job.details['corner_node']),
                '--shape', 'x'.join(map(str, job.details['shape'])), *self._arguments]
        for name in job.variables:
            argv += ['--exp-env', name]
        return Command((*argv, ':', *executable))


def _ranks_per_node(job: Job) -> int:
    """Return the largest number of ranks on a node, rounded up to a power of two, as runjob requires."""
    return 1 << (max(run.ranks for run in blocks(job.ranks)) - 1).bit_length()
