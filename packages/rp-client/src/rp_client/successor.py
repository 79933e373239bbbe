"""The program of a successor, see `rp_client.cache.successors`.

It ends with the application that has started it, when the tasks are final whose results are cached. It then leaves the
session as it found it: without an application.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from rp_api import states
from rp_client.handles.base import record_of
from rp_client.handles.session import Session
from rp_client.service.owner import owner_of

SETTLE_TIMEOUT = 10.0
"""Seconds that the results of pilots that have ended may take to arrive."""

_POLL_S = 1.0


def succeed(owner: Mapping[str, str], ended: threading.Event) -> None:
    """Attach to the session of an application that has died, until its cached tasks are final, or an event is set.

    A session of which all tasks are final is left with its results, but without its pilots.
    """
    directory = Path(owner['session'])
    session = Session(uid=owner['uid'], cfg={'base': str(directory.parent), 'path': str(directory),
                                             'client_sandbox': owner['client_sandbox']})
    if not session.attached:   # it was closed meanwhile
        session.close()
        return
    settled = time.monotonic() + SETTLE_TIMEOUT
    while _waits(session, settled) and not ended.wait(_POLL_S):
        pass
    for tmgr in owner_of(session).tmgrs.values():
        tmgr.flow.store_results()
    if not any(task.state not in states.FINAL for tmgr in session.get_task_managers() for task in tmgr.get_tasks()):
        for pmgr in session.get_pilot_managers():
            pmgr.cancel_pilots()
        session.close(terminate=False)   # its results can be fetched


def _waits(session: Session, settled: float) -> bool:
    """Return whether a task whose result is cached may end: a pilot lives, or its results may be on their way."""
    pilots = [pilot for pmgr in session.get_pilot_managers() for pilot in pmgr.get_pilots()]
    live = time.monotonic() < settled or any(pilot.state not in states.FINAL for pilot in pilots)
    return live and any(task.state not in states.FINAL and record_of(task).common.cache
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
