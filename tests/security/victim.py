"""The application of an ordinary user: `python victim.py SETTINGS`, with what is to be done as JSON.

`session`, `pilot` and `task` are arguments of Session and of the descriptions. With `stay` it waits, after
its first task has begun, until it may go on. What it has seen is its last line, as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import radical.pilot as rp


def main() -> None:
    """Do it."""
    settings = json.loads(sys.argv[1])
    told: dict[str, Any] = {}
    try:
        with rp.Session(**settings.get('session', {})) as session:
            told |= {'uid': session.uid, 'path': session.path, 'attached': session.attached}
            work(session, settings, told)
    except rp_errors() as error:
        told['error'] = f'{type(error).__name__}: {error}'
    print(json.dumps(told))


def rp_errors() -> type[Exception]:
    """The errors that say what is wrong."""
    from rp_api.errors import PilotError

    return PilotError


def work(session: rp.Session, settings: dict[str, Any], told: dict[str, Any]) -> None:
    """Run a task on a pilot, and another one after the pause."""
    managers = session.list_task_managers()
    told['managers'] = managers
    tmgr = session.get_task_managers(managers[0]) if managers else rp.TaskManager(session)
    pilot = rp.PilotManager(session).submit_pilots(rp.PilotDescription(
        {'resource': 'local.exact', 'cores': 2, 'runtime': 10} | settings['pilot']))
    tmgr.add_pilots(pilot)
    pilot.wait([rp.PMGR_ACTIVE, rp.FAILED, rp.DONE, rp.CANCELED], timeout=60)
    if settings.get('stay') and pilot.state == rp.PMGR_ACTIVE:
        lasts = tmgr.submit_tasks(rp.TaskDescription({
            'executable': 'sleep', 'arguments': ['300'], 'environment': {'MYSECRET': 'hunter2'},
            'pre_exec': ['echo hunter2; echo hunter2 > secret.txt; touch ready']}))
        lasts.wait(rp.AGENT_EXECUTING, timeout=60)
        print(json.dumps(told | {'sandbox': lasts.sandbox, 'pilot_sandbox': pilot.pilot_sandbox,
                                 'reg_addr': session.reg_addr}), flush=True)
        sys.stdin.readline()
        lasts.cancel()
    tasks: list[rp.Task] = []
    if pilot.state == rp.PMGR_ACTIVE:
        tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': 'id', 'arguments': ['-un']}
                                                      | settings.get('task', {}))])
    tmgr.wait_tasks(timeout=60)
    told |= {'pilot': pilot.state, 'exception': str(pilot.exception), 'tasks': [[t.state, t.stdout] for t in tasks],
             'reasons': [str(t.exception) for t in tasks],
             'all': len(tmgr.get_tasks())}


if __name__ == '__main__':
    main()
