"""An application with tasks that run, wait and have failed: `watched.py UID`, in the directory of the session.

It prints `ready`, and closes the session when there is a line on standard input. Its cores are held by `task.000004`
and `task.000005` until there is a file `go`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import radical.pilot as rp

HOLD = f'until [ -e {Path.cwd()}/go ]; do sleep 0.02; done; echo over'


def shell(line: str, **values: object) -> rp.TaskDescription:
    return rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', line]} | values)


def main() -> None:
    session = rp.Session(uid=sys.argv[1])
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription({
        'resource': 'local.exact', 'cores': 2, 'runtime': 10, 'sandbox': os.getcwd()})))
    ended = tmgr.submit_tasks([*(shell(f'echo line {number}', name=f'fit-{number}') for number in range(2)),
                               shell('echo wrong >&2; exit 3', name='bad'), shell('exit 4')])
    tmgr.wait_tasks([task.uid for task in ended], timeout=40)
    running = tmgr.submit_tasks([shell(f'echo begins; {HOLD}', name=f'hold-{number}') for number in range(2)])
    for task in running:
        task.wait(rp.AGENT_EXECUTING, timeout=40)
    tmgr.submit_tasks([shell('true', name=f'later-{number}') for number in range(60)])
    print('ready', flush=True)
    sys.stdin.readline()
    session.close()


if __name__ == '__main__':
    main()
