"""Starter: carries out a launch plan, from sandbox, scripts and output files to the processes.

Every failure is a LaunchRefused whose text names the action, the path and the reason; it leaves no open file and no
process behind. A Shortage may pass, and the executor starts the task again later. An error in a process that has been
created shows when the process ends: `Starter.refusal` explains it.
"""

from __future__ import annotations

import errno
import os

from rp_agent.executor.launching.plan import LaunchPlan, Process
from rp_agent.executor.processes.launchloop import OWN, SPARE, LaunchLoop
from rp_agent.executor.run import Run
from rp_agent.lookup import LaunchRefused, Programs
from rp_agent.task import AgentTask

# out of processes, memory, descriptors of this process, descriptors of the machine
_SHORTAGES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class Shortage(LaunchRefused):
    """A task cannot be started now, because the machine or this process is short of a resource."""


class Moved(LaunchRefused):
    """A program has moved since it was found; the next start uses its new path."""


def make_sandbox(path: str) -> None:
    """Create the directory unless it exists."""
    try:
        try:
            os.mkdir(path)
        except FileNotFoundError:
            os.makedirs(path, exist_ok=True)
    except OSError as error:
        if not (isinstance(error, FileExistsError) and os.path.isdir(path)):
            raise _refusal('cannot create the task sandbox', error.filename or path, error) from error


def write_scripts(task: AgentTask, plan: LaunchPlan) -> None:
    """Write the scripts of the plan into the sandbox, and remove the notes of an earlier run."""
    if plan.launch is not None:
        from rp_agent.executor.launching import rank_script  # most agents never need it

        try:
            rank_script.prepare(task.sandbox, task.uid, bool(task.description['pre_exec_sync']))
        except OSError as error:
            raise _refusal('cannot prepare', error.filename or task.sandbox, error) from error
    for name, text in plan.scripts.items():
        write_script(f'{task.sandbox}/{name}', text)


def write_script(path: str, text: bytes) -> None:
    """Write an executable file."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o777)
        with open(descriptor, 'wb') as stream:
            stream.write(text)
    except OSError as error:
        raise _refusal('cannot write', path, error) from error


class Starter:
    """Starts the processes of tasks; the launch loop `launched` watches them."""

    def __init__(self, launched: LaunchLoop, programs: Programs) -> None:
        self._launched = launched
        self._programs = programs
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        """Descriptor of the standard input of all tasks."""

    def start(self, task: AgentTask, plan: LaunchPlan) -> Run:
        """Start all processes of the plan."""
        run = Run(task, plan)
        opened: list[int] = []
        try:
            stdout, stderr = _open_outputs(task, plan, opened)
            passed = self._open_pipes(plan, opened, run)
            stdio = self.null, stdout, stderr
            cwd = os.fsencode(task.sandbox)
            for rank, process in enumerate(plan.processes):
                self._start(run, rank, process, cwd, stdio, passed)
        except BaseException:
            self.abandon(run)
            raise
        finally:
            for descriptor in opened:
                os.close(descriptor)
        return run

    def close(self) -> None:
        """Close the descriptor of the standard input."""
        if self.null >= 0:
            os.close(self.null)
            self.null = -1

    def refusal(self, run: Run, rank: int, error: OSError) -> LaunchRefused:
        """Return the reason why the program of a rank was not executed."""
        process = run.plan.processes[rank]
        refusal = _explain(error, process.path)
        if not process.name or error.filename != process.path or isinstance(refusal, Shortage):
            return refusal
        try:
            path = self._programs.find_again(process.name, process.search_path, run.task.sandbox)
        except LaunchRefused as missing:
            return missing
        return refusal if path == process.path else Moved(f'{process.path} is now {path}')

    def _start(self, run: Run, rank: int, process: Process, cwd: bytes, stdio: tuple[int, int, int],
               passed: tuple[int, ...]) -> None:
        if self._launched.full:
            most = self._launched.most
            raise Shortage(f'the agent can watch at most {most} processes at a time: of the open files that '
                           f'`ulimit -n` allows, it needs {OWN + SPARE} for other purposes')
        try:
            started = self._launched.start(run, rank, process.argv, process.env, cwd, stdio, passed,
                                           os.fsencode(process.path), process.cpus, process.memory)
        except ValueError as error:   # a string contains a NUL character
            raise LaunchRefused(str(error)) from error
        except OSError as error:
            raise _explain(error, process.path) from error
        run.leaders[rank] = started
        run.pids.append(started.pid)

    def abandon(self, run: Run) -> None:
        """Kill the processes of a run that was not started completely."""
        for process in run.leaders.values():
            self._launched.kill(process)
        if run.start_fd >= 0:
            os.close(run.start_fd)

    def _open_pipes(self, plan: LaunchPlan, opened: list[int], run: Run) -> tuple[int, ...]:
        """Open the descriptors that the scripts know as START and SYNC; none if the plan uses neither."""
        if not plan.signals_start and not plan.sync:
            return ()
        start_fd = sync_fd = self.null
        try:
            if plan.signals_start:
                run.start_fd, start_fd = os.pipe()
                opened.append(start_fd)
                os.set_blocking(run.start_fd, False)
            if plan.sync:
                read_fd, sync_fd = os.pipe()
                # the ranks hold the pipe; each opens its own read end
                opened += (read_fd, sync_fd)
        except OSError as error:
            raise _refused(error, f'cannot create a pipe: {error.strerror}') from error
        return start_fd, sync_fd


def _open_outputs(task: AgentTask, plan: LaunchPlan, opened: list[int]) -> tuple[int, int]:
    """Open standard output and error of all processes; only once if they are the same file."""
    stdout, stderr = plan.output
    named = task.description['stdout'] or task.description['stderr']
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    if stdout == stderr or len(plan.processes) > 1:
        flags |= os.O_APPEND
    if named:
        flags |= os.O_NONBLOCK   # it may be a FIFO without a reader
    for path in (stdout, stderr) if stdout != stderr else (stdout,):
        try:
            opened.append(os.open(path, flags, 0o666))
        except OSError as error:
            raise _refusal('cannot open', path, error) from error
        if named:
            os.set_blocking(opened[-1], True)
    return opened[0], opened[-1]


def _explain(error: OSError, path: str) -> LaunchRefused:
    where = f' ({error.filename})' if error.filename else ''
    return _refused(error, f'{error.strerror}{where}{_hint(error, path)}')


def _hint(error: OSError, path: str) -> str:
    if error.filename != path:
        return ''
    if error.errno == errno.ENOENT and os.path.exists(path):
        return ': the interpreter that its first line names, or its loader, does not exist'
    if error.errno == errno.E2BIG:
        return ': arguments and environment together are too long'
    return ''


def _refusal(action: str, path: str, error: OSError) -> LaunchRefused:
    error.filename = path   # errors of a write have no path
    return _refused(error, f'{action} {path}: {error.strerror}')


def _refused(error: OSError, text: str) -> LaunchRefused:
    return Shortage(text) if error.errno in _SHORTAGES else LaunchRefused(text)
