"""The processes that serve and use a session, as recorded in its database (meta `hub` and `client`) for other tools.

A process removes its record at a regular end. A record of a process that does not exist means that it died.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from rp_api.system.host import host_id
from rp_api.system.processes import lives, start_time

HUB = 'hub'
CLIENT = 'client'


class Where(NamedTuple):
    """A process: its id, the id and name of its host (`host_id`), and its start time there.

    The start time is None in sessions of version 2.0.0.
    """

    pid: int
    host: str
    host_name: str
    started: int | None = None

    @property
    def local(self) -> bool:
        """True if the process id is valid on this host."""
        return self.host == host_id()

    @property
    def gone(self) -> bool:
        """True if the process cannot exist any more because its host has booted since."""
        return not self.local and self.host_name == os.uname().nodename

    @property
    def runs(self) -> bool:
        """True if the process runs on this host."""
        return self.local and lives(self.pid, self.started)


def note(pid: int, host: str, host_name: str, started: int | None) -> str:
    """Return the record of a process."""
    return json.dumps([pid, host, host_name, started])


def own_note() -> str:
    """Return the record of this process."""
    return note(os.getpid(), host_id(), os.uname().nodename, start_time(os.getpid()))


def read_note(text: str | None) -> Where | None:
    """Return the process of a record; None if there is none."""
    return Where(*json.loads(text)) if text else None
