"""An application that is killed while it opens a session: `opener.py UID CALL`, in the directory of the session.

It is killed when the code of the project has called so many functions (0: never), in all threads; what it prints at
the end is how many it were until the session was open, and whether it is attached.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

import radical.pilot as rp

OURS = ('/rp_api/', '/rp_client/', '/rp_profiling/')


def main() -> None:
    uid, call = sys.argv[1], int(sys.argv[2])
    calls = itertools.count(1)
    done = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal done
        if event == 'call' and any(name in frame.f_code.co_filename for name in OURS):
            done = next(calls)
            if done == call:
                os.kill(os.getpid(), signal.SIGKILL)

    session_class = rp.Session   # is loaded with the first look
    print('go', flush=True)
    threading.setprofile(count)
    sys.setprofile(count)
    session = session_class(uid=uid)
    sys.setprofile(None)
    threading.setprofile(None)
    print(done, session.attached, flush=True)
    session.close()


if __name__ == '__main__':
    main()
