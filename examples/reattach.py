"""Kill an application in the middle of its work, take its session over, and collect all results.

The first application submits tasks and is killed with SIGKILL when some of them have ended. Its pilot works on. The
second one opens the session of the same uid: it finds the pilot and all tasks, with the results that were there
already, and waits for the others.

    python examples/reattach.py [--tasks N]
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile

import radical.pilot as rp

UID = 'campaign'
PROGRAM = os.path.abspath(__file__)


def main() -> int:
    """Run the example; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tasks', type=int, default=200, help='number of tasks')
    parser.add_argument('--submit', action='store_true', help='be the application that is killed')
    options = parser.parse_args()
    if options.submit:
        submit(options.tasks)
        return 0
    with tempfile.TemporaryDirectory(prefix='reattach.') as work:
        os.chdir(work)
        kill_an_application(options.tasks)
        return collect(options.tasks)


def submit(count: int) -> None:
    """The first application: submit everything, and tell when there are first results."""
    session = rp.Session(uid=UID)
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription({
        'resource': 'local.exact', 'cores': 4, 'runtime': 10, 'sandbox': os.getcwd()})))
    tasks = tmgr.submit_tasks([rp.TaskDescription({
        'executable': '/bin/sh', 'arguments': ['-c', f'sleep 0.05; echo $(({number} * {number}))']})
        for number in range(count)])
    tmgr.wait_tasks([task.uid for task in tasks[:count // 10]])
    print('first results', flush=True)
    tmgr.wait_tasks()


def kill_an_application(count: int) -> None:
    """Start the first application, and kill it when it has some results."""
    application = subprocess.Popen([sys.executable, PROGRAM, '--submit', '--tasks', str(count)],
                                   stdout=subprocess.PIPE, text=True)
    assert application.stdout is not None
    application.stdout.readline()
    application.send_signal(signal.SIGKILL)
    application.communicate()
    print(f'the first application is gone (exit code {application.returncode})')


def collect(count: int) -> int:
    """The second application: take the session over, wait for everything, and check it."""
    with rp.Session(uid=UID) as session:
        pmgr, tmgr = session.get_pilot_managers('pmgr.0000'), session.get_task_managers('tmgr.0000')
        tasks = tmgr.get_tasks()
        done = sum(task.state == rp.DONE for task in tasks)
        print(f'attached: {len(tasks)} tasks, {done} of them done, on {", ".join(pmgr.list_pilots())}')
        tmgr.wait_tasks()
        right = sum(task.stdout == f'{number * number}\n' for number, task in enumerate(tasks))
        print(f'{right} of {count} results are there and right')
    return 0 if right == count else 1


if __name__ == '__main__':
    sys.exit(main())
