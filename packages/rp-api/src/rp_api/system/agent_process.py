"""The record of an agent's process on this host, which its launcher writes to the pilot's sandbox.

An agent with the setting `launcher` (the process id of its launcher) waits for the record, and ends if it names another
process, or if the launcher dies before writing it. So the next application of the session finds every agent.
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
        """Return the process of that number, or None if it does not exist."""
        started = start_time(pid)
        return None if started is None else cls(pid, started)

    def note(self, sandbox: str | os.PathLike[str]) -> None:
        """Write the record to the sandbox, replacing an earlier one atomically."""
        private.write_file(path_in(sandbox), json.dumps(self._asdict()).encode())


def path_in(sandbox: str | os.PathLike[str]) -> str:
    """Return the path of the record."""
    return f'{os.fspath(sandbox)}/agent_0.process'


def noted(sandbox: str | os.PathLike[str]) -> AgentProcess | None:
    """Return the process of the record in a sandbox, or None if there is none."""
    try:
        return AgentProcess(**json.loads(private.read_file(path_in(sandbox))))
    except FileNotFoundError:
        return None
