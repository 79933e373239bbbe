"""An application for `test_report_system.py`: waits, in the foreground of a terminal, until Ctrl-C ends a wait."""

from __future__ import annotations

import os
import signal
import sys
import threading

import radical.pilot as rp


def main() -> None:
    """Wait with and without a report; lines on standard error say which."""
    with rp.Session(cfg={'base': sys.argv[1]}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        pilot = pmgr.submit_pilots(rp.PilotDescription({'resource': 'local.exact', 'cores': 2, 'runtime': 5}))
        tmgr.add_pilots(pilot)
        pilot.wait(rp.PMGR_ACTIVE)
        tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/sleep', 'arguments': [60]}) for _ in range(2)])
        tmgr.wait_tasks(state=rp.AGENT_EXECUTING)
        threads = set(threading.enumerate())
        _say('first')
        tmgr.wait_tasks(timeout=3)
        _say('second')
        left = set(threading.enumerate()) - threads
        assert not left, left
        pmgr._rep._enabled = False
        tmgr.wait_tasks(timeout=1.5)
        pmgr._rep._enabled = True
        _say('third')
        threading.Timer(2.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            tmgr.wait_tasks()
        except KeyboardInterrupt:
            _say('interrupted')


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == '__main__':
    main()
