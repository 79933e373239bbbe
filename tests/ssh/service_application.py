"""An application of its own for tests: `python service_application.py BASE`.

Its pilot has the hosts h1 and h2. A server runs on h2, where it is killed once; tasks on h1 ask it before and after. It
prints as JSON what the tasks were told, and by which processes they were served.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import radical.pilot as rp

STUB = str(Path(__file__).parents[1] / 'system' / 'service_stub.py')
USER = ('import os, socket, urllib.request as r; url = os.environ["RP_INFO_WEB"]; '
        'print(socket.gethostname(), url, r.urlopen(url, timeout=20).read().decode(), os.environ["RP_INFO_LINES"])')


def main() -> None:
    """Run it."""
    with rp.Session(cfg={'base': sys.argv[1]}) as session:
        pmgr, tmgr = rp.PilotManager(session=session), rp.TaskManager(session=session)
        tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription({
            'resource': 'test.machine', 'cores': 4, 'runtime': 10})))
        web, lines = tmgr.submit_tasks([rp.TaskDescription({
            'mode': rp.TASK_SERVICE, 'executable': sys.executable, 'arguments': [STUB, '0', '0.0.0.0'],
            'tags': {'nodes': ['h2']}, 'startup_timeout': 30, 'service': service}) for service in (
            {'name': 'web', 'port': 0, 'probe': {'http': '/', 'interval': 0.1}, 'info': 'http://{host}:{port}',
             'restart': {'attempts': 2, 'delay': 0.5}},
            {'name': 'lines', 'port': 0, 'probe': {'pattern': 'stdout:(listens) at', 'interval': 0.1}})])
        told: dict[str, Any] = {'infos': [web.wait_info(40), lines.wait_info(40)], 'users': [ask(tmgr)]}
        os.kill(int(told['users'][0][2]), signal.SIGKILL)   # hosts share their processes
        while web.info is not None and web.reason is None:
            time.sleep(0.01)
        told['users'].append(ask(tmgr))
        told['states'] = [web.state, lines.state]
    print(json.dumps(told))


def ask(tmgr: rp.TaskManager) -> list[str]:
    """The words that a task on h1 prints."""
    task = tmgr.submit_tasks(rp.TaskDescription({
        'executable': sys.executable, 'arguments': ['-c', USER], 'tags': {'nodes': ['h1']},
        'services': ['web', 'lines']}))
    task.wait(timeout=40)
    return task.stdout.split() or [task.state, task.stderr]


if __name__ == '__main__':
    main()
