"""A parent for a sub-agent on another host, which outlives it: nobody else there ends what its tasks leave running."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping

from rp_agent.lineage import die_with_parent
from rp_api import processes


def guarded(run: Callable[[], int], belongs: Mapping[str, str]) -> int:
    """The exit code of `run()`, which is called in a child; if that dies, what has these variables is killed."""
    parent = os.getpid()
    child = os.fork()
    if not child:
        die_with_parent(parent)
        return run()
    for number in (signal.SIGTERM, signal.SIGINT):   # as in the child
        signal.signal(number, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        processes.sweep(belongs, signal.SIGKILL)
    return code if code >= 0 else 128 - code
