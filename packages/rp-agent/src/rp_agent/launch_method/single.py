"""The launch methods of single processes: FORK on the host of the agent; SSH and RSH in a shell on another host."""

from __future__ import annotations

import os
import shlex
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


# no questions, and timeouts for hosts that are down
_SSH = ('-o', 'BatchMode=yes', '-o', 'StrictHostKeyChecking=no', '-o', 'ConnectTimeout=20',
        '-o', 'ServerAliveInterval=30', '-o', 'ServerAliveCountMax=4')


class Rsh(LaunchMethod):
    """RSH."""

    NAME: ClassVar[str] = 'RSH'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('rsh',)
    FORWARDS: ClassVar[bool] = False

    def refuses(self, job: Job) -> str:
        return one_process(job)

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        # the remote shell parses the arguments after the host, joined with spaces
        return Command((self.program.path, *self._arguments, job.ranks[0].node, shlex.join(executable)))


class Ssh(Rsh):
    """SSH."""

    NAME: ClassVar[str] = 'SSH'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('ssh',)

    def __init__(self, program: Program, setting: Setting, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(program, setting, options)
        if program.flavour != 'rsh':
            self._arguments = (*_SSH, *self._arguments)

    @classmethod
    def detect(cls, system: LaunchSystem, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        path = system.which(*cls.PROGRAMS)
        is_rsh = os.path.basename(os.path.realpath(path)).startswith('rsh')   # some sites link ssh to rsh
        return cls(Program(path, '', 'rsh' if is_rsh else ''), setting, options)
