"""The guard of an agent or sub-agent: a process that outlives it and kills its tasks' processes on this host.

It also removes the copies of environments on the disk of this host (see `rp_agent.node_copies`).

When an agent dies, the kernel kills the processes that it has started, but not their children. A batch system that ends
a job by force kills the agent's session, or its process tree, at once. Therefore the guard is an orphan in a session of
its own. It keeps no file, environment or name of the agent, so that a search for the agent does not find it.
"""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

from rp_agent.node_copies import place
from rp_api.errors import LimitError
from rp_api.system import processes, signals

TITLE = b'rp-guard'

# indices of the values behind the name in /proc/PID/stat: the begin of the arguments, and the end of the environment,
# which follows the arguments
_ARGUMENTS, _ENVIRONMENT_END = 45, 48


def start(belongs: Mapping[str, str], copies: str) -> None:
    """Start the guard of this process; when the process ends, the guard kills all processes with these variables.

    Then it removes the directory `copies`, when no other agent on this host holds it.

    To be called before other threads are started. Raises `LimitError` if no process can be created.
    """
    pidfd = os.pidfd_open(os.getpid())
    try:
        child = os.fork()
        if not child:
            _guard(pidfd, belongs, copies)
        if os.waitpid(child, 0)[1]:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    except OSError as error:
        raise LimitError(f'no process can be made that ends the tasks when the agent dies: {error.strerror}') from error
    finally:
        os.close(pidfd)


def _guard(pidfd: int, belongs: Mapping[str, str], copies: str) -> NoReturn:
    code = 1   # of the intermediate process
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, *signals.WARNINGS):   # sent to the agent
            signal.signal(number, signal.SIG_IGN)
        with suppress(OSError):   # it keeps the agent's title, and works
            _take_title()
        if not os.fork():
            _let_go_of_all_but(pidfd)
            select.select([pidfd], [], [])
            processes.sweep(belongs, signal.SIGKILL)
            place.remove_when_released(copies)
        code = 0
    finally:
        os._exit(code)


def _take_title() -> None:
    """Replace the command line and environment that other processes see by the title."""
    with open('/proc/self/stat', 'rb') as stat:
        values = stat.read().rpartition(b') ')[2].split()
    begin, end = int(values[_ARGUMENTS]), int(values[_ENVIRONMENT_END])
    with open('/proc/self/mem', 'r+b', buffering=0) as memory:
        memory.seek(begin)
        memory.write(TITLE.ljust(end - begin, b'\0'))


def _let_go_of_all_but(pidfd: int) -> None:
    """Leave the directory and close all other files: open pipes would not end with the agent."""
    os.chdir('/')
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in {0, 1, 2} - {pidfd}:
        os.dup2(null, descriptor)
    for descriptor in map(int, os.listdir('/proc/self/fd')):
        if descriptor > 2 and descriptor != pidfd:
            with suppress(OSError):   # the descriptor of the listing itself
                os.close(descriptor)
