"""An application of its own for tests: `python pilot_application.py BASE [NAME=VALUE ...]`.

It submits a pilot with these attributes to `test.machine`, runs four tasks on it, and prints as JSON how all that went.
Then the session's directory has what pilots have written of it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import radical.pilot as rp

SCRIPT = 'hostname; echo $SLURM_JOB_ID; $RP_PROF app_start; $RP_PROF app_stop'


def main() -> None:
    """Run it."""
    base, *values = sys.argv[1:]
    pairs = (value.split('=', 1) for value in values)
    wanted: dict[str, Any] = {'resource': 'test.machine', 'cores': 8, 'runtime': 10} | dict(pairs)
    with rp.Session(cfg={'base': base}, download=True) as session:
        pmgr, tmgr = rp.PilotManager(session=session), rp.TaskManager(session=session)
        started = time.monotonic()
        pilot = pmgr.submit_pilots(rp.PilotDescription(wanted))
        pilot.wait([rp.PMGR_ACTIVE, rp.FAILED, rp.DONE, rp.CANCELED], timeout=40)
        told = {'state': pilot.state, 'exception': str(pilot.exception), 'detail': str(pilot.exception_detail),
                'seconds': time.monotonic() - started, 'sandbox': str(pilot.pilot_sandbox), 'session': session.path}
        if pilot.state == rp.PMGR_ACTIVE:
            tmgr.add_pilots(pilot)
            tasks = tmgr.submit_tasks([rp.TaskDescription({
                'executable': '/bin/sh', 'arguments': ['-c', SCRIPT]}) for _ in range(4)])
            tmgr.wait_tasks(timeout=40)
            told['tasks'] = [[task.state, task.stdout] for task in tasks]
    print(json.dumps(told))


if __name__ == '__main__':
    main()
