"""Resource limits of processes (`ulimit`): raising the limit on open files, and checks that report limits too low.

A process that runs out of files or threads during its work fails in obscure ways, so ours check the limits when they
start. Those that start tasks keep the user's limit for the tasks.
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Sequence
from typing import NamedTuple

from rp_api.errors import LimitError

MAX_DESCRIPTORS = 1 << 16
"""Maximum to which the limit on open files is raised: some programs iterate over all possible descriptors."""


OF_ZEROMQ = 2
"""Threads that ZeroMQ starts with the first socket of a context."""

_MAX_CHECKED_PROCESSES = 4096
"""Limit on a user's processes and threads above which it is not checked."""


class Descriptors(NamedTuple):
    """The limit on open files: as set by the user, and in this process now."""

    own: int
    raised: int


def raise_descriptors(known: Sequence[int] = ()) -> Descriptors:
    """Raise this process's limit on open files as far as allowed, up to `MAX_DESCRIPTORS`.

    `known` are the `Descriptors` of the parent process, by which an inherited raised limit is recognised.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    own = known[0] if known and soft == known[1] else soft
    most = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return Descriptors(own, soft)


def require_descriptors(who: str, count: int) -> None:
    """Raise LimitError unless `count` more files can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = _used(soft)
    if soft != resource.RLIM_INFINITY and soft - used < count:
        raise LimitError(f'{who} needs {count} more open files, but {used} are open and {soft} are allowed (hard limit '
                         f'{hard}): allow at least {used + count}, see ulimit -n')


def _used(most: int) -> int:
    """Return the number of open files; `most` if none can be opened to count them."""
    try:
        return len(os.listdir('/proc/self/fd')) - 1
    except OSError:
        return most


def require_file_size(who: str, count: int) -> None:
    """Raise this process's limit on file sizes as far as allowed; raise LimitError if it is below `count` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < count:
        raise LimitError(f'{who} needs files of {count >> 20} MB, but only {hard} bytes are allowed, see ulimit -f')


def require_threads(who: str, count: int, others: int = 0) -> None:
    """Raise LimitError unless `count` threads can be started here, and `others` in other processes of this user.

    ZeroMQ aborts a process in which it cannot start its threads. Without a limit this is not tried.
    """
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    few = 0 <= processes < _MAX_CHECKED_PROCESSES
    if few or _limits_memory():
        _try_threads(who, count + others if few else count, f'{processes}' if processes >= 0 else 'any number of')


def _limits_memory() -> bool:
    return any(resource.getrlimit(each)[0] != resource.RLIM_INFINITY for each in (
        resource.RLIMIT_AS, resource.RLIMIT_DATA))


def _try_threads(who: str, count: int, allowed: str) -> None:
    over = threading.Event()
    started = []
    try:
        for _ in range(count):
            thread = threading.Thread(target=over.wait, name='probe', daemon=True)
            thread.start()
            started.append(thread)
    except (RuntimeError, MemoryError) as error:
        raise LimitError(f'{who} needs {count} threads, but only {len(started)} can be started ({error}): user '
                         f'{os.getuid()} may have {allowed} processes and threads, see ulimit -u, and each takes '
                         'memory, see ulimit -v, -d and -s') from error
    finally:
        over.set()
        for thread in started:
            thread.join()
