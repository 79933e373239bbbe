"""Which processes serve and use a session, as its file notes them (meta `hub` and `client`), so that others can look.

A process that ends in order takes its note away. So a note of a process that is not there tells that it died.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from rp_api.host import host_id

HUB = 'hub'
CLIENT = 'client'


@dataclass(frozen=True)
class Where:
    """A process: its id, the host that knows this id (`host_id`), and the name of that host."""

    pid: int
    host: str
    host_name: str

    @property
    def local(self) -> bool:
        """Whether the process id means something here."""
        return self.host == host_id()

    @property
    def gone(self) -> bool:
        """Whether the process cannot exist any more: this host was started again since."""
        return not self.local and self.host_name == os.uname().nodename

    def runs(self, program: str = '') -> bool:
        """Whether a process of that id exists here, with that text in its command line."""
        if not self.local:
            return False
        try:
            return program.encode() in Path(f'/proc/{self.pid}/cmdline').read_bytes()
        except OSError:
            return False


def note(pid: int, host: str, host_name: str) -> str:
    """What a session notes about a process."""
    return json.dumps([pid, host, host_name])


def own_note() -> str:
    """What a session notes about this process."""
    return note(os.getpid(), host_id(), os.uname().nodename)


def read_note(text: str | None) -> Where | None:
    """The process of a note; None if there is none."""
    return Where(*json.loads(text)) if text else None
