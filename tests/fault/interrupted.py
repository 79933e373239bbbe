"""An application that is interrupted: `interrupted.py BASE WHEN SIGNAL GAP...`, so often, these seconds apart.

WHEN is `opening` (the session), `working`, or `closing`. It prints what it got to. SIGTERM raises SystemExit.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import radical.pilot as rp

STUBBORN = "trap '' TERM INT; while :; do sleep 0.1; done"


def bombard(number: int, gaps: Sequence[float]) -> None:
    """Send this process a signal again and again."""
    for gap in gaps:
        time.sleep(gap)
        os.kill(os.getpid(), number)


def main() -> None:
    """Run it."""
    base, when, number, *gaps = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))
    thread = threading.Thread(target=bombard, args=(int(number), [float(gap) for gap in gaps]), daemon=True)
    close: Callable[..., Any] = rp.Session.close

    def begin(wanted: str) -> None:
        if when == wanted and thread.ident is None:
            thread.start()

    def closing(session: rp.Session, **options: bool) -> None:
        begin('closing')
        close(session, **options)

    rp.Session.close = closing  # type: ignore[method-assign, assignment]
    begin('opening')
    with rp.Session(cfg={'base': base}, orphan_timeout=600.0) as session:
        print('open', flush=True)
        tmgr, pmgr = rp.TaskManager(session), rp.PilotManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription({
            'resource': 'local.exact', 'cores': 4, 'runtime': 10, 'sandbox': base})))
        tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', STUBBORN]})
                                   for _ in range(4)])
        for task in tasks:
            task.wait(rp.AGENT_EXECUTING)
        print('working', flush=True)
        begin('working')
        if when != 'closing':
            tmgr.wait_tasks()


if __name__ == '__main__':
    main()
