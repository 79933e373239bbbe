"""One program of the launch loop, for tests of how programs are started: `spawn` waits until it runs."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path
from typing import Any

from rp_agent.executor.processes.launchloop import LaunchLoop


def spawn(argv: Any, env: Any, cwd: bytes, stdin: int, stdout: int, stderr: int, pass_fds: tuple[int, ...] = (),
          **more: Any) -> tuple[int, int]:
    """Start a program; return its pid and a process descriptor, or raise the reason why it was not executed.

    No program that runs may end with exit code 127.
    """
    loop = LaunchLoop()
    try:
        process = loop.start('run', 0, argv, env, cwd, (stdin, stdout, stderr), pass_fds, **more)
        pidfd = os.dup(process.pidfd)
        while not select.select([pidfd], [], [], 0)[0] and not _runs(process.pid):
            time.sleep(0.001)
        ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None and ended.si_status == 127:
            loop.ended()
            os.close(pidfd)
            assert process.failure is not None
            raise process.failure
        loop.forget(process)
        return process.pid, pidfd
    finally:
        loop.close()


def _runs(pid: int) -> bool:
    """Whether the child has executed its program: until then, it has the memory of its parent."""
    try:
        return Path(f'/proc/{pid}/cmdline').read_bytes() != Path('/proc/self/cmdline').read_bytes()
    except OSError:
        return False
