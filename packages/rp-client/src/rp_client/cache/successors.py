"""Successors of applications that have died: processes that attach to their sessions to store results in the cache.

The cached requests of other sessions wait for these results. `rp_client.successor` is the program of a successor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from rp_api.coordination.sessions import CRASHED, OPEN, ORPHANED, RESTING, state_of

OPENING_TIMEOUT = 60.0
"""Seconds that another application that has attached may take to claim its tasks."""

END_TIMEOUT = 10.0
"""Seconds that the end of a successor may take while the application waits."""

_OTHER_COORDINATORS = ('RADICAL_PILOT_DBURL', 'RADICAL_PILOT_PROXY_URL')


class SessionSuccessors:
    """The successors that an application has started, at most one for each session."""

    def __init__(self) -> None:
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._opening: dict[str, float] = {}
        self._lock = threading.Lock()
        self._closed = False

    def follow(self, owner: Mapping[str, str]) -> bool:
        """Return whether a session without its process is followed until its cached tasks have ended; see `Claims`."""
        directory = owner['session']
        with self._lock:
            if directory in self._started:
                return self._started[directory].poll() is None
            state = state_of(directory)
            if state == OPEN:
                return time.monotonic() - self._opening.setdefault(directory, time.monotonic()) < OPENING_TIMEOUT
            if state not in (ORPHANED, CRASHED, RESTING) or self._closed:
                return False
            environment = {name: value for name, value in os.environ.items() if name not in _OTHER_COORDINATORS}
            with suppress(OSError):
                self._started[directory] = subprocess.Popen(
                    [sys.executable, '-m', 'rp_client.successor', json.dumps(dict(owner))], stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, start_new_session=True)
            return directory in self._started

    def close(self) -> None:
        """End all successors; their sessions go on."""
        with self._lock:
            self._closed = True
            for process in self._started.values():
                assert process.stdin
                process.stdin.close()
            for process in self._started.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(END_TIMEOUT)
