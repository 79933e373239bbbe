"""Which processes serve and use a session, as its file notes them (meta `hub` and `client`), so that others can look.

A process that ends in order takes its note away. So a note of a process that is not there tells that it died.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from rp_api.system.host import host_id
from rp_api.system.processes import lives, start_time

HUB = 'hub'
CLIENT = 'client'


@dataclass(frozen=True)
class Where:
    """A process: its id, the host that knows this id (`host_id`), the name of that host, and its start time there.

    The start time is None in the file of a session that version 2.0.0 has served.
    """

    pid: int
    host: str
    host_name: str
    started: int | None = None

    @property
    def local(self) -> bool:
        """Whether the process id means something here."""
        return self.host == host_id()

    @property
    def gone(self) -> bool:
        """Whether the process cannot exist any more: this host was started again since."""
        return not self.local and self.host_name == os.uname().nodename

    @property
    def runs(self) -> bool:
        """Whether the process runs here."""
        return self.local and lives(self.pid, self.started)


def note(pid: int, host: str, host_name: str, started: int | None) -> str:
    """What a session notes about a process."""
    return json.dumps([pid, host, host_name, started])


def own_note() -> str:
    """What a session notes about this process."""
    return note(os.getpid(), host_id(), os.uname().nodename, start_time(os.getpid()))


def read_note(text: str | None) -> Where | None:
    """The process of a note; None if there is none."""
    return Where(*json.loads(text)) if text else None
