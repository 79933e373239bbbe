"""Carrying out a plan: sandbox, scripts, output files and, at last, the processes.

Every failure is a LaunchRefused whose text names what was tried, the path and the reason, and leaves no open file and
no process behind.
"""

from __future__ import annotations

import errno
import os
import signal

from rp_agent.executor.launchloop import spawn
from rp_agent.executor.lookup import LaunchRefused
from rp_agent.executor.plan import LaunchPlan, Process
from rp_agent.task import AgentTask


class Started:
    """The processes of a task: pid and rank by process file descriptor.

    `start_fd` becomes readable when the task says that it runs; -1 if it was not asked to.
    """

    __slots__ = ('processes', 'start_fd')

    def __init__(self) -> None:
        self.processes: dict[int, tuple[int, int]] = {}
        self.start_fd = -1


def make_sandbox(path: str) -> None:
    """Make sure that the directory exists."""
    try:
        os.mkdir(path)
    except FileExistsError as error:
        if not os.path.isdir(path):
            raise _refusal('cannot create the task sandbox', path, error) from error
    except FileNotFoundError:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise _refusal('cannot create the task sandbox', error.filename or path, error) from error
    except OSError as error:
        raise _refusal('cannot create the task sandbox', path, error) from error


def write_scripts(task: AgentTask, plan: LaunchPlan) -> None:
    """Write the scripts of the plan into the sandbox."""
    for name, text in plan.scripts.items():
        path = f'{task.sandbox}/{name}'
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o777)
            with open(descriptor, 'wb') as stream:
                stream.write(text)
        except OSError as error:
            raise _refusal('cannot write', path, error) from error


def start(task: AgentTask, plan: LaunchPlan, null: int) -> Started:
    """Start all processes of the plan; `null` is an open /dev/null, for their standard input."""
    started = Started()
    opened: list[int] = []
    try:
        outputs = _open_outputs(plan, opened)
        passed = _open_pipes(plan, null, opened, started)
        cwd = os.fsencode(task.sandbox)
        for rank, process in enumerate(plan.processes):
            pid, pidfd = _spawn(process, cwd, (null, *outputs), passed)
            started.processes[pidfd] = pid, rank
    except LaunchRefused:
        abandon(started)
        raise
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return started


def abandon(started: Started) -> None:
    """Kill what was started and forget about it."""
    for pidfd, (pid, _) in started.processes.items():
        os.killpg(pid, signal.SIGKILL)
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        os.close(pidfd)
    started.processes.clear()
    if started.start_fd >= 0:
        os.close(started.start_fd)
        started.start_fd = -1


def _open_outputs(plan: LaunchPlan, opened: list[int]) -> tuple[int, int]:
    """Standard output and error, for all processes; once if they are the same file."""
    stdout, stderr = plan.output
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    if stdout == stderr or len(plan.processes) > 1:
        flags |= os.O_APPEND
    for path in (stdout, stderr) if stdout != stderr else (stdout,):
        try:
            opened.append(os.open(path, flags, 0o666))
        except OSError as error:
            raise _refusal('cannot open', path, error) from error
    return opened[0], opened[-1]


def _open_pipes(plan: LaunchPlan, null: int, opened: list[int], started: Started) -> tuple[int, ...]:
    """The descriptors that the scripts know as START and SYNC; none if the plan uses neither."""
    if not plan.signals_start and not plan.sync:
        return ()
    start_fd = sync_fd = null
    try:
        if plan.signals_start:
            started.start_fd, start_fd = os.pipe()
            opened.append(start_fd)
            os.set_blocking(started.start_fd, False)
        if plan.sync:
            read_fd, sync_fd = os.pipe()
            # the ranks hold the pipe; each opens a read end of its own
            opened += (read_fd, sync_fd)
    except OSError as error:
        raise LaunchRefused(f'cannot create a pipe: {error.strerror}') from error
    return start_fd, sync_fd


def _spawn(process: Process, cwd: bytes, stdio: tuple[int, int, int], passed: tuple[int, ...]) -> tuple[int, int]:
    try:
        return spawn(process.argv, process.env, cwd, *stdio, passed, os.fsencode(process.path))
    except ValueError as error:   # something holds a NUL character
        raise LaunchRefused(str(error)) from error
    except OSError as error:
        where = f' ({error.filename})' if error.filename else ''
        hint = _hint(error, process.path)
        raise LaunchRefused(f'{error.strerror}{where}{hint}') from error


def _hint(error: OSError, path: str) -> str:
    if error.filename != path:
        return ''
    if error.errno == errno.ENOENT and os.path.exists(path):
        return ': the interpreter that its first line names, or its loader, does not exist'
    if error.errno == errno.E2BIG:
        return ': arguments and environment together are too long'
    return ''


def _refusal(action: str, path: str, error: OSError) -> LaunchRefused:
    return LaunchRefused(f'{action} {path}: {error.strerror}')
