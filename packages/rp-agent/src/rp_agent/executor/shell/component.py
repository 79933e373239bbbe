"""The executor SHELL: one persistent /bin/sh starts all tasks and reports their exit codes.

The shell (`shell.process`) reads batches of commands on its standard input (`shell.program`), and is the parent of the
tasks' processes. Rules of this file:

- The shell never waits for a running process. The executor watches the processes, and asks the shell for the exit code
  of a process that has ended. So one shell serves any number of tasks and handles every command at once.
- The number of requested processes that the shell has not started yet is limited, so that a cancel usually finds a task
  either queued or running.
- A task is started only when there are descriptors to watch its processes.
- If the shell dies, or does not answer in time, the tasks that it ran fail; the next task gets a new shell.
- Processes are ended by the same rules as in the default executor (groups, SIGTERM, grace period, SIGKILL).
- The shell's code 128 + n counts as the end by signal n, because it means that for nearly all programs.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from functools import partial
from itertools import islice

from rp_agent.executor.launching import outcome
from rp_agent.executor.launching.environment import PilotContext
from rp_agent.executor.launching.launch_outcome import conclude
from rp_agent.executor.launching.plan import DIRECT, LAUNCH, LaunchPlan, plan
from rp_agent.executor.popen.base import RETRY_AFTER, SHORTAGE_LIMIT, STARTS_PER_TURN, ProcessExecutor
from rp_agent.executor.popen.deferred import Deferred
from rp_agent.executor.processes.launchloop import SPARE
from rp_agent.executor.shell import program
from rp_agent.executor.shell.process import ShellProcess, find_tools
from rp_agent.executor.shell.reaper import SHELL_NAME, ShellReaper
from rp_agent.executor.shell.run import ShellRun
from rp_agent.executor.starter import make_sandbox, write_scripts
from rp_agent.lookup import LaunchRefused
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.failures.kinds import LOST
from rp_api.loop.event_loop import Loop, Timer
from rp_profiling.write.tracer import Tracer

_AHEAD = 64
"""Maximum number of requested processes that the shell has not started yet."""

_ON_THE_WAY = 10 + SPARE
"""Descriptors that must stay free: for the start of a task or the shell, and for purposes other than tasks."""

_EXPLAIN = partial(outcome.explain, shell=True)

_SHELL_TIMEOUT = 10.0
"""Seconds after which a shell that does not answer is killed."""


class ShellExecutor(ProcessExecutor[ShellRun]):
    """Runs tasks as processes of this node, started by a shell; `grace` is the time between SIGTERM and SIGKILL.

    Raise PlatformError if the machine lacks programs that the shell needs.
    """

    def __init__(self, uid: str, tracer: Tracer, loop: Loop, context: PilotContext, grace: float = 5.0) -> None:
        super().__init__(uid, tracer, loop, context)
        self._tools = find_tools(context.base_env.get('PATH', os.defpath))
        self._base_env = list(self._environment.with_gpus.block({}))   # `env` can add variables, and remove none
        self._shared = frozenset(self._base_env)
        self._messages = os.path.join(context.own_sandbox, f'{uid}.sh.err')
        self._belongs = context.belongs
        self._reaper: ShellReaper = ShellReaper(loop, tracer, self._belongs, grace, self._finished, self._ask_code,
                                                self._abandon)
        self._deferred = Deferred(loop, context.launchers, self._queue)
        self._shell: ShellProcess | None = None
        self._shells = 0
        self._ranks: dict[int, tuple[ShellRun, int]] = {}
        self._next_number = 0
        self._ahead = 0
        self._turn_comes = False
        self._short_since: float | None = None
        self._retry: Timer | None = None
        self._answers = 0
        self._watchdog: Timer | None = None

    def close(self) -> None:
        """End the shell; called when the executor has no tasks."""
        self._drop_shell()
        super().close()

    def check(self) -> None:
        """Verify all invariants; raise AssertionError."""
        super().check()
        runs = self._reaper.running.values()
        assert self._ahead == sum(len(run.unstarted) for run in runs), 'wrong number of unstarted processes'
        assert not self._owed() or self._watchdog is not None, 'no timer for an answer of the shell'
        comes = self._turn_comes or self._ahead or self._retry is not None
        assert comes or not self._queued, f'no turn is scheduled for {list(self._queued)}'
        for number, (run, rank) in self._ranks.items():
            assert self._reaper.running.get(run.task.uid) is run, f'the task of process {number} does not run'
            assert rank not in run.codes, f'process {number} has ended'

    # starting

    def _begin(self, tasks: list[AgentTask]) -> None:
        self._queue([task for task in tasks if not self._deferred.take(task)])

    def _queue(self, tasks: Iterable[AgentTask]) -> None:
        self._queued.update((task.uid, task) for task in tasks)
        self._start_soon()

    def _start_soon(self) -> None:
        if self._queued and not self._turn_comes and self._retry is None and self._ahead < _AHEAD:
            self._turn_comes = True
            self._loop.call_soon(self._start_some)

    def _start_some(self) -> None:
        """Start some queued tasks by one batch of commands."""
        self._turn_comes = False
        batch = []
        for task in list(islice(self._queued.values(), STARTS_PER_TURN)):
            if self._ahead >= _AHEAD:
                break
            try:
                reserved = _reserve(task.processes)
            except OSError as error:
                self._postpone(task, error)
                break
            del self._queued[task.uid]
            batch.append(self._prepare(task, reserved))
        if batch:
            self._short_since = None
            self._send(b''.join(batch))
        self._start_soon()

    def _postpone(self, task: AgentTask, error: OSError) -> None:
        """Retry the start of a task when another task has ended, or after a delay; refuse it after SHORTAGE_LIMIT."""
        now = time.monotonic()
        if self._short_since is None:
            self._short_since = now
        if not self._reaper.running and now - self._short_since >= SHORTAGE_LIMIT:
            del self._queued[task.uid]
            self._refuse(task, LaunchRefused(f'cannot follow the processes of the task: {error.strerror} (for '
                                             f'{now - self._short_since:.0f} s, with no other task running)'))
        else:
            self._retry = self._loop.call_later(RETRY_AFTER, self._try_again)

    def _try_again(self) -> None:
        """Retry the start that failed for lack of descriptors."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._start_soon()

    def _prepare(self, task: AgentTask, reserved: list[int]) -> bytes:
        """Prepare a task, and return the commands that start it; empty if it is refused."""
        uid = task.uid
        try:
            self._record(uid, 'task_start', 'task_mkdir')
            make_sandbox(task.sandbox)
            self._record(uid, 'task_mkdir_done', 'task_run_start')
            launch_plan = plan(task, self._environment)
            write_scripts(task, launch_plan)
            _create_outputs(launch_plan)
            self._start_shell()
            run = ShellRun(task, launch_plan, self._next_number)
            commands = self._commands(run)
        except Exception as error:   # fails only this task
            _close(reserved)
            self._refuse(task, error)
            return b''
        self._keep(run, reserved)
        self._record(uid, 'task_run_ok')
        if launch_plan.kind != LAUNCH:
            self._record(uid, 'launch_start', 'launch_pre', 'launch_submit')
        return commands

    def _commands(self, run: ShellRun) -> bytes:
        jobs = [program.Job(number, process.argv, [entry for entry in process.env if entry not in self._shared],
                                  process.cpus, process.memory)
                for number, process in zip(run.numbers, run.plan.processes, strict=True)]
        stdout, stderr = map(os.fsencode, run.plan.output)
        try:
            inherited = self._open_pipes(run)
            return program.start_text(jobs, os.fsencode(run.task.sandbox), (stdout, stderr), inherited)
        except BaseException:
            self._forget_start(run)
            run.close_pipes()
            raise

    def _open_pipes(self, run: ShellRun) -> dict[int, bytes]:
        try:
            inherited = run.open_pipes()
            if run.start_fd >= 0:
                self._loop.add_fd(run.start_fd, partial(self._rank_started, run))
        except OSError as error:
            raise LaunchRefused(f'cannot create a pipe: {error.strerror}') from error
        return inherited

    def _keep(self, run: ShellRun, reserved: list[int]) -> None:
        _close(reserved[len(run.numbers):])   # one script may run several ranks
        run.reserved = reserved[:len(run.numbers)]
        self._next_number = run.numbers.stop
        self._ahead += len(run.numbers)
        self._ranks.update((number, (run, rank)) for rank, number in enumerate(run.numbers))
        self._reaper.watch(run)

    # the shell

    def _start_shell(self) -> None:
        if self._shell is None:
            self._shells += 1
            marks = {**self._belongs, SHELL_NAME: self._shell_name()}
            try:
                self._shell = ShellProcess(self._loop, self._messages, marks, self._answered, self._shell_died)
            except OSError as error:
                raise LaunchRefused(f'cannot start the shell that runs the task: {error.strerror}') from error
            self._shell.send(program.prologue(self._tools, self._base_env))

    def _shell_name(self) -> str:
        return f'{self.uid}.{self._shells:04d}'

    def _send(self, commands: bytes) -> None:
        """Send the shell commands that it must answer."""
        if self._shell is not None:
            self._shell.send(commands)
        if self._watchdog is None:
            self._watchdog = self._loop.call_later(_SHELL_TIMEOUT, self._look, self._answers)

    def _look(self, answers: int) -> None:
        """Kill the shell if it has not answered in time."""
        self._watchdog = None
        if self._owed():
            if self._answers == answers and self._shell is not None:
                self._shell.kill()
            self._watchdog = self._loop.call_later(_SHELL_TIMEOUT, self._look, self._answers)

    def _owed(self) -> bool:
        """Return whether the shell owes an answer."""
        return any(run.waits_for_shell for run in self._reaper.running.values())

    def _answered(self, answers: list[program.Answer]) -> None:
        self._answers += 1
        assert self._shell is not None
        shell = self._shell.pid
        for kind, number, value in answers:
            if number not in self._ranks:   # its task was abandoned
                if kind == 'S':
                    self._reaper.kill(value, shell)
            else:
                run, rank = self._ranks[number]
                if kind == 'S':
                    self._started(run, rank, value, shell)
                elif kind == 'E':
                    self._coded(run, rank, value)
                else:
                    self._failed(run, rank, started=kind == 'F')
        self._reaper.reap_orphans(self._shell.pid if self._shell is not None else None)
        self._start_soon()

    def _started(self, run: ShellRun, rank: int, pid: int, shell: int) -> None:
        """Watch the process of a rank that the shell has started."""
        if run.plan.kind == DIRECT:
            self._record(run.task.uid, 'exec_start', 'exec_pre', 'rank_start')
        try:
            runs = self._reaper.follow(run, rank, pid, shell)
        except OSError as error:
            runs = False
            run.failure = f'cannot watch the processes of the task: {error.strerror}'
            self._reaper.kill(pid, shell)
        self._leave_start(run, rank)
        if not runs:
            self._ask_code(run, rank)

    def _failed(self, run: ShellRun, rank: int, *, started: bool) -> None:
        """Note that the shell could not start the program of a rank."""
        run.failure = (f'the shell could not prepare the task (sandbox, output files, memory limit), '
                       f'{outcome.end_of_output(self._messages)}')
        if not started:
            run.make_room(1)
            self._leave_start(run, rank)
            self._end_rank(run, rank, 126)

    def _leave_start(self, run: ShellRun, rank: int) -> None:
        """Note that a rank was started or could not be started; the last rank starts the deadlines of the task."""
        run.unstarted.discard(rank)
        self._ahead -= 1
        if run.unstarted:
            return
        run.close_pipes()
        if run.ending is None:
            self._deadlines.begin(run)

    def _ask_code(self, run: ShellRun, rank: int) -> None:
        """Ask the shell for the exit code of a rank whose process has ended."""
        run.uncoded.add(rank)
        self._send(program.wait_text(run.numbers[rank], run.pids[rank]))

    def _coded(self, run: ShellRun, rank: int, code: int) -> None:
        """Take the exit code of a rank."""
        run.uncoded.discard(rank)
        self._reaper.reaped(run, rank)
        if run.plan.kind == DIRECT:   # no exec script records it
            pid = run.pids[rank]
            self.tracer.record('rank_stop', run.task.uid, msg=f'RP_EXEC_PID={pid}:RP_RANK_PID={pid}')
            self._record(run.task.uid, 'exec_post', 'exec_stop')
            code = outcome.code_of(code, shell=True)
        self._end_rank(run, rank, code)

    def _end_rank(self, run: ShellRun, rank: int, code: int) -> None:
        run.codes[rank] = code
        del self._ranks[run.numbers[rank]]
        if len(run.codes) == len(run.numbers):
            self._reaper.settle(run)

    # time limits

    def _rank_started(self, run: ShellRun) -> None:
        """Start the timeout of a task: a rank has signalled its start, or all ranks have closed the pipe."""
        try:
            os.read(run.start_fd, 1)
        except BlockingIOError:   # a late event of an earlier pipe with the same descriptor number
            return
        self._forget_start(run)
        if not run.unstarted:
            self._deadlines.runs(run)

    # ending

    def _finished(self, run: ShellRun) -> None:
        """Hand on a task of which all processes have ended."""
        run.stop_timer()
        self._forget_start(run)
        if run.plan.kind != LAUNCH:
            self._record(run.task.uid, 'launch_collect', 'launch_post', 'launch_stop')
        if run.ending is not None or self._reaper.has_left(run, self._shell.pid if self._shell is not None else None):
            self._to_sweep.add(run.task.uid)
        if run.ending is None and run.failure is not None:
            outcome.fail(run.task, run.failure, {'kind': LOST}, exception=run.failure)
        if run.plan.launch is not None and run.failure is None:
            self._launch_ended(run)
        else:
            script = run.plan.output[0] if run.plan.kind == LAUNCH else ''
            self._leave(run.task, run.codes, run.ending, _EXPLAIN, script=script)
        self._try_again()

    def _launch_ended(self, run: ShellRun) -> None:
        """Hand on a task whose launcher has ended; the notes of its ranks decide its outcome."""
        task = run.task
        if run.ending is not None:
            self._leave(task, run.codes, run.ending, _EXPLAIN)
        else:
            task.exit_code = outcome.exit_code_of_task(run.codes)
            self._conclude(task, partial(conclude, task, run.plan))
            self._record(task.uid, 'task_run_stop')
            self._hand_on(task)
        if task.target_state != states.DONE:
            self._to_sweep.add(task.uid)
            launch = run.plan.launch
            if launch is not None and launch.elsewhere:
                self._ports.sweep_elsewhere(task.uid, launch.elsewhere)

    def _abandon(self, run: ShellRun) -> None:
        """Finish a run without waiting for missing answers of the shell."""
        self._ahead -= len(run.unstarted)
        run.unstarted.clear()
        run.uncoded.clear()
        run.close_pipes()
        run.make_room(len(run.reserved))
        for rank, number in enumerate(run.numbers):
            self._ranks.pop(number, None)
            run.codes.setdefault(rank, -signal.SIGKILL)
        self._reaper.abandon(run)

    def _shell_died(self, how: str) -> None:
        """Fail the tasks that the shell ran, because only the shell can tell their exit codes."""
        assert self._shell is not None
        self._reaper.kill_all(self._shell.pid, self._shell_name())
        self._drop_shell()
        for run in list(self._reaper.running.values()):
            run.failure = run.failure or how
            self._to_sweep.add(run.task.uid)
            self._abandon(run)
        self._reaper.reap_orphans(None)
        self._start_soon()

    def _drop_shell(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None


def _create_outputs(launch_plan: LaunchPlan) -> None:
    """Create or truncate the files to which the shell appends, to report errors that the shell cannot report."""
    for path in dict.fromkeys(launch_plan.output):
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666))
        except OSError as error:
            raise LaunchRefused(f'cannot open {path}: {error.strerror}') from error


def _reserve(count: int) -> list[int]:
    """Open `count` placeholder descriptors; raise OSError unless _ON_THE_WAY more are free."""
    reserved: list[int] = []
    try:
        for _ in range(count + _ON_THE_WAY):
            reserved.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))  # noqa: PERF401 - those opened are closed
    except OSError:
        _close(reserved)
        raise
    _close(reserved[count:])
    return reserved[:count]


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
