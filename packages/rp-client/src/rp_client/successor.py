"""Successors of applications that have died: processes that attach to their sessions to store results in the cache.

The cached requests of other sessions wait for these results. A successor ends with the application that has started it,
when the tasks are final whose results are cached. It then leaves the session as it found it: without an application.
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
from pathlib import Path
from typing import TYPE_CHECKING

from rp_api import states
from rp_api.coordination.sessions import CRASHED, OPEN, ORPHANED, RESTING, state_of

if TYPE_CHECKING:
    from rp_client.session import Session

OPENING_TIMEOUT = 60.0
"""Seconds that another application that has attached may take to claim its tasks."""

SETTLE_TIMEOUT = 10.0
"""Seconds that the results of pilots that have ended may take to arrive."""

END_TIMEOUT = 10.0
"""Seconds that the end of a successor may take while the application waits."""

_OTHER_COORDINATORS = ('RADICAL_PILOT_DBURL', 'RADICAL_PILOT_PROXY_URL')

_POLL_S = 1.0


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


def succeed(owner: Mapping[str, str], ended: threading.Event) -> None:
    """Attach to the session of an application that has died, until its cached tasks are final, or an event is set.

    A session of which all tasks are final is left with its results, but without its pilots.
    """
    from rp_client.session import Session

    directory = Path(owner['session'])
    session = Session(uid=owner['uid'], cfg={'base': str(directory.parent), 'path': str(directory),
                                             'client_sandbox': owner['client_sandbox']})
    if not session.attached:   # it was closed meanwhile
        session.close()
        return
    settled = time.monotonic() + SETTLE_TIMEOUT
    while _waits(session, settled) and not ended.wait(_POLL_S):
        pass
    for tmgr in session.get_task_managers():
        tmgr._store_results()
    if not any(task.state not in states.FINAL for tmgr in session.get_task_managers() for task in tmgr.get_tasks()):
        for pmgr in session.get_pilot_managers():
            pmgr.cancel_pilots()
        session.close(terminate=False)   # its results can be fetched


def _waits(session: Session, settled: float) -> bool:
    """Return whether a task whose result is cached may end: a pilot lives, or its results may be on their way."""
    pilots = [pilot for pmgr in session.get_pilot_managers() for pilot in pmgr.get_pilots()]
    live = time.monotonic() < settled or any(pilot.state not in states.FINAL for pilot in pilots)
    return live and any(task.state not in states.FINAL and task._common.cache
                        for tmgr in session.get_task_managers() for task in tmgr.get_tasks())


def _watch_parent(ended: threading.Event) -> None:
    """Set the event when the application that has started this process has ended, or has closed its session."""
    sys.stdin.buffer.read()
    ended.set()


if __name__ == '__main__':
    over = threading.Event()
    threading.Thread(target=_watch_parent, args=(over,), daemon=True).start()
    try:
        succeed(json.loads(sys.argv[1]), over)
    finally:
        os._exit(0)   # without closing the session
