"""An application for tests to attach to: `leaver.py UID HOW`, in the directory of the session.

Submits a pilot and tasks, each of which prints its uid when there is a file `go`, and goes at some moment, by SIGKILL
unless said otherwise:

- pilot: as soon as the pilot has been submitted
- unbound: when tasks have been submitted, and no task manager has a pilot
- tasks: as soon as tasks for the pilot have been submitted
- running: when the first task runs
- files: as running, with tasks that bring a file along, and have one brought back
- left: as running, but leaves the session with close(terminate=False)
- returned: when a pilot that is being drained has returned two tasks, and there is no other pilot
- stay: as running, but waits for a line on standard input, and closes the session then
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import radical.pilot as rp

COUNT = 6


def describe(number: int, how: str) -> rp.TaskDescription:
    """A task that waits for the file."""
    base = Path.cwd()
    description = {'executable': '/bin/sh', 'arguments': [
        '-c', f'until [ -e {base}/go ]; do sleep 0.02; done; echo $RP_TASK_ID']}
    if how == 'files':
        (base / f'in.{number}').write_text(str(number))
        description |= {'input_staging': [f'in.{number} > in'], 'output_staging': [f'in > out.{number}']}
    return rp.TaskDescription(description)


def go_when(reached: str, how: str) -> None:
    """End here, if this is the moment."""
    if reached == how:
        print(reached, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    uid, how = sys.argv[1:]
    session = rp.Session(uid=uid)
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(rp.PilotDescription({
        'resource': 'local.exact', 'cores': 4, 'runtime': 10, 'sandbox': os.getcwd()}))
    go_when('pilot', how)
    if how != 'unbound':
        tmgr.add_pilots(pilot)
    tasks = tmgr.submit_tasks([describe(number, how) for number in range(COUNT)])
    go_when('unbound', how)
    go_when('tasks', how)
    tasks[0].wait(rp.AGENT_EXECUTING, timeout=30)
    go_when('running', how)
    go_when('files', how)
    if how == 'returned':
        threading.Thread(target=tmgr.remove_pilots, args=(pilot.uid, True), daemon=True).start()
        while [task.pilot for task in tasks].count(None) < COUNT - 4:
            time.sleep(0.01)
    go_when('returned', how)
    if how == 'left':
        session.close(terminate=False)
    print(how, flush=True)
    if how == 'stay':
        sys.stdin.readline()
        session.close()


if __name__ == '__main__':
    main()
