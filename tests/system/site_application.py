"""The application of an ordinary user: `python site_application.py RESOURCE`.

It runs programs with files that are staged, and functions on a RAPTOR worker of two ranks, and prints how that went as
JSON.
"""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import radical.pilot as rp

SCRIPT = 'cat input; id -un; echo out > output'


def functions(tmgr: rp.TaskManager, pilot: rp.Pilot) -> dict[str, Any]:
    """Run functions; one returns an object that is no plain data."""
    master, = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
    worker, = master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': 2}))
    calls = master.submit_tasks([
        rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': '6 * 7'}),
        rp.TaskDescription({'mode': rp.TASK_FUNCTION, 'function': rp.PythonTask(Fraction, (1, 3))}),
        rp.TaskDescription({'mode': rp.TASK_EXEC, 'code': 'import rp_raptor\nreturn rp_raptor.__file__'})])
    tmgr.wait_tasks([call.uid for call in calls], timeout=100)
    found = {'calls': [[call.state, str(call.return_value), call.exception] for call in calls]}
    tmgr.cancel_tasks([worker.uid, master.uid])
    tmgr.wait_tasks([worker.uid, master.uid], timeout=60)
    return found


def main() -> None:
    """Run it in the current directory."""
    Path('input').write_text('in\n')
    with rp.Session() as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        pilot = pmgr.submit_pilots(rp.PilotDescription({'resource': sys.argv[1], 'cores': 4, 'runtime': 10}))
        tmgr.add_pilots(pilot)
        pilot.wait([rp.PMGR_ACTIVE, *rp.FINAL], timeout=100)
        told: dict[str, Any] = {'pilot': pilot.state, 'exception': f'{pilot.exception} {pilot.exception_detail}'}
        if pilot.state == rp.PMGR_ACTIVE:
            tasks = tmgr.submit_tasks([rp.TaskDescription({
                'executable': '/bin/sh', 'arguments': ['-c', SCRIPT], 'input_staging': ['input'],
                'output_staging': [f'output > output.{number}']}) for number in range(3)])
            tmgr.wait_tasks(timeout=100)
            told['tasks'] = [[task.state, task.stdout, task.exception] for task in tasks]
            told |= functions(tmgr, pilot)
    print(json.dumps(told))


if __name__ == '__main__':
    main()
