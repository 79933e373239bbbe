"""The command `rp session attach`: attaches to a session, shows its progress, and detaches."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

from rp_api import states
from rp_api.errors import PilotError
from rp_client.progress import TaskProgress
from rp_client.session import Session


def follow(uid: str, where: dict[str, Any], *, cancel: bool, wait: bool) -> int:
    """Attach to a session until its tasks have ended, or close it (`cancel`), and return the exit code."""
    logging.getLogger('radical.pilot').addHandler(logging.NullHandler())   # errors are printed as one sentence
    session = Session(uid=uid, **where)
    leave = not cancel and session.attached
    try:
        if not session.attached:
            raise PilotError(f'there was no open session {uid} to attach to')
        if cancel:
            print(f'{uid} is closed', file=sys.stderr)
            return 0
        with suppress(KeyboardInterrupt):
            _wait(session)
        failed = _report(session)
    finally:
        session.close(terminate=not leave)
    return 1 if wait and failed else 0


def _wait(session: Session) -> None:
    """Return when all tasks of all managers have ended."""
    tasks = [task for tmgr in session.get_task_managers() for task in tmgr.get_tasks()]
    left = sum(task.state not in states.FINAL for task in tasks)
    print(f'{session.uid}: {len(tasks)} tasks, {left} of them have not ended yet', file=sys.stderr, flush=True)
    for tmgr in session.get_task_managers():
        waiting = sum(task.state not in states.FINAL for task in tmgr.get_tasks())
        with TaskProgress(tmgr, waiting):
            tmgr.wait_tasks()


def _report(session: Session) -> bool:
    """Print the states of tasks and pilots, and return whether a task has a state other than DONE."""
    counts = Counter(task.state for tmgr in session.get_task_managers() for task in tmgr.get_tasks())
    pilots = [pilot for pmgr in session.get_pilot_managers() for pilot in pmgr.get_pilots()]
    live = [pilot.uid for pilot in pilots if pilot.state not in states.FINAL]
    print('tasks: ' + (', '.join(f'{count} {state}' for state, count in sorted(counts.items())) or 'none'))
    print(f'{session.uid} stays open' + (f', with {", ".join(live)}' if live else '')
          + f'; rp session attach {session.uid} --cancel ends it')
    return bool(set(counts) - {states.DONE})
