"""Search for processes and ending them: whole trees, and all processes of a task, pilot or session.

There are two ways, because each misses some. `kill_tree` follows sessions, process groups and parents, and misses a
daemon that left all three. `sweep` reads the initial environment of processes, and misses one that cleared it.

A process is identified by its number and its start time, on the host `host.host_id()`: the number alone is reused
later, and the command line is shared by children that have not executed their programs yet. Signals are sent through a
process file descriptor that was checked against that identity. Source of the formats: proc(5).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import subprocess

# a process may start another one just before it is signalled; more rounds mean a fork bomb
_ROUNDS = 20

# maximum seconds for processes without environment, which are about to execute a program, and seconds between two
# checks; callers wait for as long, which is short unless a file server hangs
_EXECUTION, _LOOK_AGAIN = 0.25, 0.001

# positions behind the name in /proc/PID/stat: the size of the memory, and the end of the environment in it
_SIZE, _ENVIRONMENT_END = 20, 48


class Process(NamedTuple):
    """A row of the process table; `started` is in clock ticks since boot."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    started: int

    @property
    def alive(self) -> bool:
        """False for a process that has ended and waits to be reaped."""
        return self.state not in 'ZX'


def pidfd_open(pid: int) -> int | None:
    """Return a file descriptor of a process, readable when it has ended; None if it does not exist."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def open_process(pid: int, started: int | None) -> int | None:
    """Return a file descriptor of the process with that number and start time; None if it has ended.

    A start time of None matches any, for processes of version 2.0.0, which do not report it.
    """
    descriptor = pidfd_open(pid)
    if descriptor is None or started is None:
        return descriptor
    same = False
    try:
        same = start_time(pid) == started   # otherwise the number is in use again
    finally:
        if not same:
            os.close(descriptor)
    return descriptor if same else None


def start_time(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if it does not exist."""
    process = read_process(pid)
    return None if process is None else process.started


def lives(pid: int, started: int | None) -> bool:
    """Return True if the process with that number and start time has not ended; see `open_process`."""
    process = read_process(pid)
    return process is not None and process.alive and started in (None, process.started)


_UNKNOWN = 256
"""The return code of a `Popen` whose exit code is unknown; not a valid exit code."""


def exit_code(process: subprocess.Popen[Any], *, waits: bool = True) -> int | None:
    """Return the exit code of a child that has ended, or wait for its end; -n for signal n.

    None if it has not ended, or if its exit code is lost: the kernel keeps none where SIGCHLD is ignored, and another
    part of the application may reap all children. (`Popen.wait` returns 0 in that case.)
    """
    if process.returncode is None:
        try:
            ended = os.waitid(os.P_PID, process.pid, os.WEXITED | (0 if waits else os.WNOHANG))
        except ChildProcessError:
            process.returncode = _UNKNOWN
        else:
            if ended is not None:
                process.returncode = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    return None if process.returncode == _UNKNOWN else process.returncode


_left: set[int] = set()


def leave(process: subprocess.Popen[Any]) -> None:
    """Leave a child running; `reap_left` reaps it after its end."""
    _left.add(process.pid)
    process.returncode = 0   # prevents a ResourceWarning when the object is deleted


def reap_left() -> None:
    """Reap those children passed to `leave` that have ended."""
    for pid in list(_left):
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:   # already reaped, or a child of the process that this one is a fork of
            ended = pid
        if ended:
            _left.discard(pid)


def variable(pid: int, name: str) -> str:
    """Return a variable of the initial environment of a process; empty if it is unknown."""
    try:
        with open(f'/proc/{pid}/environ', 'rb') as file:
            entries = file.read().split(b'\0')
    except OSError:   # it has ended, or belongs to another user
        return ''
    start = os.fsencode(f'{name}=')
    return next((os.fsdecode(entry[len(start):]) for entry in entries if entry.startswith(start)), '')


def read_process(pid: int) -> Process | None:
    """Return the process of that number, or None if it does not exist."""
    fields = _fields(pid)
    if fields is None:
        return None
    return Process(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def _fields(pid: int) -> list[bytes] | None:
    """Return the fields behind the name in /proc/PID/stat; None if the process does not exist."""
    try:
        with open(f'/proc/{pid}/stat', 'rb') as stream:
            # the name, in parentheses, may contain spaces and parentheses
            return stream.read().rpartition(b') ')[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def process_table() -> dict[int, Process]:
    """Return all processes by number."""
    found = (read_process(int(name)) for name in os.listdir('/proc') if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def tree(roots: Collection[int], table: Mapping[int, Process]) -> set[int]:
    """Return the processes in `roots`, in the sessions and groups with those numbers, and all their descendants.

    Processes that have ended are not included.
    """
    members = {process.pid for process in table.values()
               if process.pid in roots or process.session in roots or process.group in roots}
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    waiting = list(members)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in members:
                members.add(child)
                waiting.append(child)
    return {pid for pid in members if table[pid].alive}


def handles(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal; False if it has ended."""
    try:
        with open(f'/proc/{pid}/status', 'rb') as status:
            caught = next((line for line in status if line.startswith(b'SigCgt:')), b'SigCgt: 0')
    except OSError:
        return False
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def kill_tree(roots: Iterable[int], sig: int) -> list[int]:
    """Send a signal to the trees of the processes (or sessions) in `roots`, and return the signalled processes.

    Before SIGKILL all of them are stopped, so that none can start another process unnoticed. This process itself is
    never signalled.
    """
    wanted = frozenset(roots) - {0}
    if not wanted:
        return []
    if sig != signal.SIGKILL:
        return sorted(_signal_tree(wanted, sig))
    stopped: dict[int, Process] = {}
    for _ in range(_ROUNDS):
        new = _signal_tree(wanted, signal.SIGSTOP)
        if new.keys() <= stopped.keys():
            break
        stopped |= new
    killed = set(_signal_tree(wanted, sig))
    # a process that has lost its parent meanwhile is no longer in the tree, and would stay stopped
    killed |= {pid for pid, process in stopped.items()
               if pid not in killed and _send(pid, sig, partial(lives, pid, process.started))}
    return sorted(killed)


def sweep(environ_match: Mapping[str, str | Collection[str]], sig: int) -> list[int]:
    """Send a signal to all processes of this user with these initial variables, and return their numbers.

    A collection as value matches any of its members, e.g. {'RP_SESSION_ID': 's', 'RP_TASK_ID': {'a', 'b'}}. With
    SIGKILL this is repeated until no new process is found. This process itself is never signalled.
    """
    if not environ_match:
        raise ValueError('environ_match is empty: it would match every process of this user')
    wanted = [_entries(name, value) for name, value in environ_match.items()]
    once = partial(_signal_matching, wanted, sig)
    return sorted(_repeat(once) if sig == signal.SIGKILL else once())


def _repeat(once: Callable[[], set[int]]) -> set[int]:
    """Repeat until a round finds nothing new, and return all processes found."""
    found: set[int] = set()
    for _ in range(_ROUNDS):
        new = once() - found
        found |= new
        if not new:
            break
    return found


def _signal_tree(roots: Collection[int], sig: int) -> dict[int, Process]:
    """Signal a tree once, and return the signalled processes."""
    table = process_table()
    # parents first: a shell whose command has ended would start the next one
    found = sorted(tree(roots, table), key=lambda pid: (table[pid].started, pid))
    return {pid: table[pid] for pid in found if _send(pid, sig, partial(lives, pid, table[pid].started))}


def _signal_matching(wanted: list[frozenset[bytes]], sig: int) -> set[int]:
    found: set[int] = set()
    pids = [int(name) for name in os.listdir('/proc') if name.isdigit() and int(name) != os.getpid()]
    deadline = time.monotonic() + _EXECUTION
    while True:
        unknown = []
        for pid in pids:
            matches = _matches(pid, wanted)
            if matches and _send(pid, sig, partial(_matches, pid, wanted)):
                found.add(pid)
            elif matches or (matches is None and any(_executes(pid) or _matches(pid, wanted) for _ in range(3))):
                unknown.append(pid)   # it may just have executed one, and another one since
        if not unknown or time.monotonic() > deadline:
            return found
        time.sleep(_LOOK_AGAIN)
        pids = unknown


def _entries(name: str, value: str | Collection[str]) -> frozenset[bytes]:
    values = [value] if isinstance(value, str) else value
    return frozenset(os.fsencode(f'{name}={text}') for text in values)


def _matches(pid: int, wanted: list[frozenset[bytes]]) -> bool | None:
    """Return whether the process was started with one entry of each set; None if it has no environment (yet).

    Processes of other users cannot be read and do not match.
    """
    try:
        with open(f'/proc/{pid}/environ', 'rb') as stream:
            environ = stream.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    entries = environ.split(b'\0')
    return all(not entries_of_name.isdisjoint(entries) for entries_of_name in wanted) if environ else None


def _executes(pid: int) -> bool:
    """Return whether a process is about to execute a program: it has memory, but no environment yet."""
    fields = _fields(pid)
    return fields is not None and fields[0] not in b'ZX' and fields[_SIZE] != b'0' and fields[_ENVIRONMENT_END] == b'0'


def _send(pid: int, sig: int, still_meant: Callable[[], object]) -> bool:
    """Signal a process if `still_meant()` confirms its identity; return whether it was signalled."""
    if pid == os.getpid():
        return False
    descriptor = pidfd_open(pid)
    if descriptor is None:
        return False
    try:
        if not still_meant():
            return False
        signal.pidfd_send_signal(descriptor, sig)
    except (ProcessLookupError, PermissionError):
        # it has ended, or runs as another user by a set-user-id program
        return False
    finally:
        os.close(descriptor)
    return True
