"""What the operating system allows a process (`ulimit`): more open files where that is possible, or a clear refusal.

A process that lacks files or threads in the middle of its work fails in ways that say nothing. So ours look before they
begin. Those that start tasks remember what limit the user has set, which is what tasks get.
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Sequence
from typing import NamedTuple

from rp_api.errors import LimitError

MOST = 1 << 16
"""Open files beyond which a limit is not raised: some programs look at each number that one might have."""


_MANY = 4096
"""Processes and threads of a user that are too many to be a limit for what we need."""


class Descriptors(NamedTuple):
    """How many files may be open: as the user has set it, and in this process now."""

    own: int
    raised: int


def raise_descriptors(known: Sequence[int] = ()) -> Descriptors:
    """Let this process open as many files as it may, within reason.

    `known` are the `Descriptors` of the process that has started this one, by which an inherited limit is recognised.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    own = known[0] if known and soft == known[1] else soft
    most = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return Descriptors(own, soft)


def require_descriptors(who: str, count: int) -> None:
    """Raise LimitError unless so many more files can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = _used(soft)
    if soft != resource.RLIM_INFINITY and soft - used < count:
        raise LimitError(f'{who} needs {count} more open files, but {used} are open and {soft} are allowed (hard limit '
                         f'{hard}): allow at least {used + count}, see ulimit -n')


def _used(most: int) -> int:
    """How many files are open; as many as there may be if there is none left to look with."""
    try:
        return len(os.listdir('/proc/self/fd')) - 1
    except OSError:
        return most


def require_file_size(who: str, count: int) -> None:
    """Let this process write files as large as it may, and raise LimitError unless these can have so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < count:
        raise LimitError(f'{who} needs files of {count >> 20} MB, but only {hard} bytes are allowed, see ulimit -f')


def require_threads(who: str, count: int, others: int = 0) -> None:
    """Raise LimitError unless so many threads can be started here, and some in other processes of this user.

    ZeroMQ ends a process that cannot have its own. Where nothing limits them, this is not tried out.
    """
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    few = 0 <= processes < _MANY
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
