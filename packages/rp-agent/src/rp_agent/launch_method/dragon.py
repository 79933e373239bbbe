"""The launch method DRAGON: the executor DRAGON starts the ranks in the runtime that it keeps on the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rp_agent.launch_method.base import Command, Job, LaunchMethod


class Dragon(LaunchMethod):
    """DRAGON."""

    NAME: ClassVar[str] = 'DRAGON'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('dragon',)
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'DRAGON_*', 'PMI_*')
    SPAWNER: ClassVar[str] = 'DRAGON'

    rank_variables = ('RP_RANK',)

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        return Command(tuple(executable))
