"""An application that callbacks tell things, for tests to kill: `teller.py UID HOW`, in the directory of the session.

Submits a pilot and tasks that end when there is a file `go`, every other one with exit code 1. Its callbacks write what
they are told to `told.<UID>`, a line for each state. Waits for ever, after a line on standard output:

- telling: when each task runs, as its callbacks were told
- stuck: when each task is final, though a callback does not return before a file `on` is there, and so none was told
- before: the same, but there is no callback
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import radical.pilot as rp

COUNT = 6


def describe(number: int) -> rp.TaskDescription:
    """A task that waits for the file."""
    command = f'until [ -e {Path.cwd()}/go ]; do sleep 0.02; done; exit {number % 2}'
    return rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', command]})


class Told:
    """A callback that writes down what it is told; a kill must not take any of it, so nothing is buffered."""

    def __init__(self, path: Path, running: threading.Event) -> None:
        self._file = path.open('ab', buffering=0)
        self._running: set[str] = set()
        self._all_run = running

    def __call__(self, entity: rp.Task | rp.Pilot, state: str) -> None:
        self._file.write(f'{entity.uid} {state}\n'.encode())
        if state == rp.AGENT_EXECUTING:
            self._running.add(entity.uid)
            if len(self._running) == COUNT:
                self._all_run.set()


def main() -> None:
    uid, how = sys.argv[1:]
    running = threading.Event()
    session = rp.Session(uid=uid)
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    if how == 'stuck':
        for manager in (pmgr, tmgr):
            manager.register_callback(wait_for_on)
    if how != 'before':
        told = Told(Path(f'told.{uid}'), running)
        for manager in (pmgr, tmgr):
            manager.register_callback(told)
    pilot = pmgr.submit_pilots(rp.PilotDescription({
        'resource': 'local.exact', 'cores': COUNT, 'runtime': 10, 'sandbox': os.getcwd()}))
    tmgr.add_pilots(pilot)
    tmgr.submit_tasks([describe(number) for number in range(COUNT)])
    if how == 'telling':
        assert running.wait(60)
    else:
        Path('go').touch()
        tmgr.wait_tasks(timeout=60)
    session._owner.engine.settle(10)
    print(how, flush=True)
    sys.stdin.read()


def wait_for_on(*_: object) -> None:
    while not Path('on').exists():
        time.sleep(0.05)


if __name__ == '__main__':
    main()
