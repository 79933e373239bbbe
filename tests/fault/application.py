"""An application for tests to kill: `application.py BASE ORPHAN_TIMEOUT [task arguments...]`, one task per argument.

Each argument is a shell command that a task runs, or `raptor`: a RAPTOR master with a worker. Prints
`ready <session directory> <hub pid> <agent pid>` when all tasks have been accepted by the hub, then waits for them, and
prints their states.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import radical.pilot as rp


def main() -> None:
    base, orphan_timeout, *commands = sys.argv[1:]
    with rp.Session(cfg={'base': base}, orphan_timeout=float(orphan_timeout)) as session:
        pmgr = rp.PilotManager(session=session)
        tmgr = rp.TaskManager(session=session)
        pilot = pmgr.submit_pilots(rp.PilotDescription({
            'resource': 'local.exact', 'cores': 4, 'runtime': 10, 'sandbox': base,
            'prepare_env': {'built': {'type': 'shell', 'pre_exec': ['sleep 4']}} if 'built' in commands else {}}))
        tmgr.add_pilots(pilot)
        if 'raptor' in commands:
            tmgr.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER, 'uid': 'master'}))
            worker = tmgr.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'raptor_id': 'master'}))
            tmgr.wait_tasks([worker[0].uid], rp.AGENT_EXECUTING, timeout=30)
        if what := set(commands).intersection(WAITS):
            wait_in_vain(tmgr, what.pop())
            session._owner.engine.settle(10)
            print('ready', session.path, flush=True)
            tmgr.wait_tasks()
        tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', command]})
                                   for command in commands if command != 'raptor'])
        pilot.wait(rp.PMGR_ACTIVE, timeout=30)
        tmgr.wait_tasks([tasks[0].uid], rp.AGENT_EXECUTING, timeout=30)
        session._owner.engine.settle(10)
        print('ready', session.path, flush=True)
        tmgr.wait_tasks()
        print(*[task.state for task in tasks], flush=True)


WAITS: dict[str, dict[str, Any]] = {
    'environment': {'named_env': 'unknown'}, 'service': {'cores_per_rank': 4}, 'worker': {'cores_per_rank': 4},
    'built': {'named_env': 'built'}}


def wait_in_vain(tmgr: rp.TaskManager, what: str) -> None:
    """Submit a task that waits, and one after it unless it waits for something that will come."""
    before: Sequence[rp.Task] = []
    if what == 'service':
        before = [tmgr.submit_tasks(rp.TaskDescription({
            'mode': rp.TASK_SERVICE, 'executable': 'sleep', 'arguments': [1000], 'service': {'name': 'serves'}}))]
    elif what == 'worker':
        tmgr.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER, 'uid': 'master'}))
        before = tmgr.submit_workers([rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'raptor_id': 'master'})])
    tmgr.wait_tasks([task.uid for task in before], rp.AGENT_EXECUTING, timeout=60)
    tmgr.submit_tasks(rp.TaskDescription({'uid': 'waits', 'executable': 'true', **WAITS[what]}))
    if what != 'built':
        tmgr.submit_tasks(rp.TaskDescription({'uid': 'after', 'executable': 'true', 'after': ['waits']}))
    tmgr.wait_tasks(['waits'], rp.AGENT_SCHEDULING, timeout=60)


if __name__ == '__main__':
    main()
