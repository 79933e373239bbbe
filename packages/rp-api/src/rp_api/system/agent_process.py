"""The process of an agent that was started on this host, as its launcher notes it in the pilot's sandbox.

An agent that is told in its configuration who launches it (`launcher`, a process id) waits until it was noted, and ends
if another process was, or none, because the launcher died before. So there is never an agent that the next application
of the session does not find.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from rp_api.system import private
from rp_api.system.processes import start_time


class AgentProcess(NamedTuple):
    """A process, on the host and since the boot that the coordinator knows of the pilot."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> AgentProcess | None:
        """The process of that number; None if there is none."""
        started = start_time(pid)
        return None if started is None else cls(pid, started)

    def note(self, sandbox: str | os.PathLike[str]) -> None:
        """Write it into the sandbox, in place of an earlier one; whole at any moment."""
        private.write_file(path_in(sandbox), json.dumps(self._asdict()).encode())


def path_in(sandbox: str | os.PathLike[str]) -> str:
    """The path of the note."""
    return f'{os.fspath(sandbox)}/agent_0.process'


def noted(sandbox: str | os.PathLike[str]) -> AgentProcess | None:
    """The process that was noted last in a sandbox; None if none was."""
    try:
        return AgentProcess(**json.loads(private.read_file(path_in(sandbox))))
    except FileNotFoundError:
        return None
