"""An application that ignores and blocks signals: `signal_application.py HOW WHAT DESCRIPTION`, in its base directory.

HOW is `ignore` or `block` (all of them), or `inherit` (those that it was started with). WHAT is `tasks`, or the class
of RAPTOR workers that are to run calls. DESCRIPTION (JSON) is that of the pilot, with what all tasks have as `tasks`.
Tells on standard output, as JSON, how its tasks and its pilot have ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import radical.pilot as rp

MASKS = 'grep -E "SigIgn|SigBlk" /proc/self/status'

SCRIPTS = {
    'masks': MASKS,
    'fails': 'echo said; exit 3',
    'is_told_to_end': r'kill -TERM \$\$; echo survived',
    'writes_to_a_closed_pipe': 'yes | head -n 1',
    'is_late': 'exec sleep 1000'}

CALLS: dict[str, dict[str, Any]] = {
    'shell': {'mode': rp.TASK_SHELL, 'command': f'{MASKS}; exit 3'},
    'program': {'mode': rp.TASK_PROC, 'executable': '/bin/sh', 'arguments': ['-c', f'{MASKS}; exit 3']},
    'python': {'mode': rp.TASK_EXEC, 'code': 'import subprocess; print(subprocess.call(["sh", "-c", "exit 3"]))'}}


def ignore_or_block(how: str) -> None:
    """Do to all signals what is said."""
    for number in signal.valid_signals() if how == 'ignore' else ():
        with suppress(OSError):   # two cannot be ignored
            signal.signal(number, signal.SIG_IGN)
    if how == 'block':
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def tasks(common: dict[str, Any]) -> Iterator[rp.TaskDescription]:
    """The tasks, one for each script."""
    for name, script in SCRIPTS.items():
        late = {'timeout': 1.0} if name == 'is_late' else {}
        yield rp.TaskDescription({'uid': name, 'executable': '/bin/sh', 'arguments': ['-c', script], **common, **late})


def call(pilot: rp.Pilot, worker: str) -> list[rp.Task]:
    """The calls, which a worker of this class runs."""
    raptor, = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
    raptor.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'raptor_class': worker, 'ranks': 2}))
    found: list[rp.Task] = raptor.submit_tasks([rp.TaskDescription({'uid': name, **each})
                                                for name, each in CALLS.items()])
    for task in found:
        task.wait(timeout=60)
    return found


def main() -> None:
    how, what, text = sys.argv[1:]
    ignore_or_block(how)
    description = json.loads(text)
    common = description.pop('tasks', {})
    with rp.Session() as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        pilot = pmgr.submit_pilots(rp.PilotDescription({
            'resource': 'local.exact', 'runtime': 10, 'sandbox': os.getcwd(), **description}))
        tmgr.add_pilots(pilot)
        if what == 'tasks':
            found = tmgr.submit_tasks(list(tasks(common)))
            tmgr.wait_tasks(timeout=60)
        else:
            found = call(pilot, what)
        ended = {task.uid: [task.state, task.exit_code, task.stdout, task.exception_detail] for task in found}
    print(json.dumps({'pilot': pilot.state, 'exception': pilot.exception, 'tasks': ended}))


if __name__ == '__main__':
    main()
