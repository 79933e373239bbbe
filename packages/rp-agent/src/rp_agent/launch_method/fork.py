"""The launch method FORK: the program itself, without a launcher, on the agent's host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rp_agent.launch_method.base import Command, Job, LaunchMethod, Program, Setting, one_process
from rp_agent.launch_method.system import LaunchSystem


class Fork(LaunchMethod):
    """FORK."""

    NAME: ClassVar[str] = 'FORK'
    PROGRAMS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, program: Program, setting: Setting, options: Mapping[str, Any] | None = None,
                 here: frozenset[str] = frozenset()) -> None:
        super().__init__(program, setting, options)
        self._here = here

    @classmethod
    def detect(cls, system: LaunchSystem, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        return cls(Program(system.which(*cls.PROGRAMS) if cls.PROGRAMS else ''), setting, options, system.names)

    def refuses(self, job: Job) -> str:
        reason = one_process(job)
        node = job.ranks[0].node
        if not reason and node not in self._here:
            reason = f'it starts processes on the host of the agent, not on {node}'
        return reason

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        return Command(tuple(executable))
