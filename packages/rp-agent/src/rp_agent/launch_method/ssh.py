"""The launch methods SSH and RSH: the program in a shell on another host, with an environment of its own."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rp_agent.launch_method.base import Command, Job, LaunchMethod, Program, Setting, one_process
from rp_agent.launch_method.system import System

# it asks no questions, which nobody would answer, and does not wait forever for a host that is down or gone
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
        # what follows the host is joined with spaces and read by a shell there
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
    def detect(cls, system: System, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        path = system.which(*cls.PROGRAMS)
        is_rsh = os.path.basename(os.path.realpath(path)).startswith('rsh')   # some sites have one for the other
        return cls(Program(path, '', 'rsh' if is_rsh else ''), setting, options)
