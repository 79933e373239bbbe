"""The launch method POE: IBM's Parallel Environment under LSF, which takes hosts and ranks from a variable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rp_agent.launch_method.base import Command, Job, LaunchMethod
from rp_agent.launch_method.nodes import blocks


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
