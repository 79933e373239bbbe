"""The executor: starts tasks that have their resources, watches them, and ends them when it is told to.

Rules of this file:

- All methods are called in the thread of the loop. That thread must live as long as the agent, because the kernel
  kills the tasks that it started when it ends.
- A task is in one of three places: queued, running or done; `check` verifies it. It leaves by `output`, in the bulk
  of all tasks that ended in one turn of the loop, and keeps its slots until then.
- A run that is to be ended gets SIGTERM, all its processes; what is left after the grace period gets SIGKILL; what
  even that does not end (a dead file server, a program of another user) is given up after the same time again.
- A failure of a task is data on the task and touches nothing else.
"""

from __future__ import annotations

import errno
import os
import signal
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from rp_agent.executor import starter
from rp_agent.executor.environment import PilotContext, TaskEnvironment
from rp_agent.executor.lookup import LaunchRefused
from rp_agent.executor.outcome import exit_code_of_task, explain
from rp_agent.executor.plan import DIRECT, LAUNCH, LaunchPlan, plan
from rp_agent.task import AgentTask
from rp_api import processes, states
from rp_api.component import Component
from rp_api.mesh.loop import Loop, Timer
from rp_profiling.tracer import Tracer

# tasks that are started in one turn of the loop, so that ends and commands do not wait for a large bulk
_STARTS_PER_TURN = 16


class Ending:
    """Why a task is ended before its time; `exception` and `detail` become those of the task."""

    __slots__ = ('detail', 'exception')

    def __init__(self, error: Exception | None = None) -> None:
        self.exception = None if error is None else repr(error)
        self.detail = None if error is None else str(error)


class Run:
    """A task that has processes.

    `leaders` are the processes that were started (pid and rank), `survivors` others that are waited for when the run
    is ended, both by process file descriptor. `codes` are the exit codes by rank.
    """

    __slots__ = ('codes', 'ending', 'leaders', 'pids', 'plan', 'start_fd', 'survivors', 'task', 'timer')

    def __init__(self, task: AgentTask, launch_plan: LaunchPlan, started: starter.Started) -> None:
        self.task = task
        self.plan = launch_plan
        self.leaders = started.processes
        self.pids = [pid for pid, _ in started.processes.values()]
        self.start_fd = started.start_fd
        self.survivors: set[int] = set()
        self.codes: dict[int, int] = {}
        self.ending: Ending | None = None
        self.timer: Timer | None = None


class Executor(Component):
    """Runs tasks as processes of this node; `grace` is the time in seconds between SIGTERM and SIGKILL."""

    def __init__(self, uid: str, tracer: Tracer, loop: Loop, context: PilotContext, grace: float = 5.0) -> None:
        super().__init__(uid, tracer)
        self._loop = loop
        self._environment = TaskEnvironment(context)
        self._grace = grace
        self._queued: OrderedDict[str, AgentTask] = OrderedDict()
        self._running: dict[str, Run] = {}
        self._done: list[AgentTask] = []
        self._to_sweep: set[str] = set()
        self._flushing = False
        self._stopping: Ending | None = None
        self._on_empty: Callable[[], Any] | None = None
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)

    def put(self, tasks: list[AgentTask]) -> None:
        """Take tasks that have their slots, in state AGENT_EXECUTING_PENDING, and run them."""
        ready = []
        for task in tasks:
            if task.cancelled or self._stopping is not None:
                self._end_unstarted(task)
            else:
                ready.append(task)
        self.advance(ready, states.AGENT_EXECUTING)
        idle = not self._queued
        self._queued.update((task.uid, task) for task in ready)
        if idle and ready:
            self._start_some()

    def cancel(self, uids: Iterable[str]) -> None:
        """End these tasks as CANCELED; those that are not here are ignored."""
        runs = []
        for uid in uids:
            if uid in self._queued:
                self._end_unstarted(self._queued.pop(uid))
            elif uid in self._running:
                runs.append(self._running[uid])
        self._end(runs, Ending())

    def stop(self, on_empty: Callable[[], Any], reason: str) -> None:
        """End all tasks as CANCELED for this reason, take no more, and call `on_empty` when the last one is out."""
        self._stopping = Ending(RuntimeError(reason))
        self._on_empty = on_empty
        while self._queued:
            self._end_unstarted(self._queued.popitem()[1])
        self._end(list(self._running.values()), self._stopping)
        self._flush_soon()

    def close(self) -> None:
        """Free what the component holds; to be called when no task is left."""
        if self._null >= 0:
            os.close(self._null)
            self._null = -1
        super().close()

    def check(self) -> None:
        """Verify all invariants; raises AssertionError."""
        done = [task.uid for task in self._done]
        places = [*self._queued, *self._running, *done]
        assert len(places) == len(set(places)), f'tasks in several places: {sorted(places)}'
        assert not done or self._flushing, f'nobody will hand on {done}'
        assert self._to_sweep <= set(done), f'to be swept, but not done: {self._to_sweep - set(done)}'
        descriptors: list[int] = []
        for uid, run in self._running.items():
            assert run.task.uid == uid, f'{run.task.uid} runs as {uid}'
            assert run.leaders or run.survivors, f'{uid} runs without a process'
            assert len(run.leaders) + len(run.codes) == len(run.pids), f'{uid} has lost a rank'
            descriptors += [*run.leaders, *run.survivors, *([run.start_fd] if run.start_fd >= 0 else [])]
        assert len(descriptors) == len(set(descriptors)), f'descriptors with several owners: {sorted(descriptors)}'
        for descriptor in descriptors:
            os.fstat(descriptor)

    # starting

    def _start_some(self) -> None:
        """Start a few of the queued tasks now, and the others later."""
        for _ in range(min(_STARTS_PER_TURN, len(self._queued))):
            _, task = self._queued.popitem(last=False)
            if task.cancelled:
                self._end_unstarted(task)
            else:
                self._start(task)
        if self._queued:
            self._loop.call_soon(self._start_some)

    def _start(self, task: AgentTask) -> None:
        record = self.tracer.record
        uid = task.uid
        record('task_start', uid)
        try:
            record('task_mkdir', uid)
            starter.make_sandbox(task.sandbox)
            record('task_mkdir_done', uid)
            record('task_run_start', uid)
            launch_plan = plan(task, self._environment)
            starter.write_scripts(task, launch_plan)
            record('task_run_ok', uid)
            self._trace_launch(uid, launch_plan)
            started = starter.start(task, launch_plan, self._null)
            self._watch(task, launch_plan, started)
        except LaunchRefused as error:
            task.fail(repr(error.__cause__ or error), str(error))
            record('task_run_stop', uid)
            self._hand_on(task)

    def _watch(self, task: AgentTask, launch_plan: LaunchPlan, started: starter.Started) -> None:
        """Follow the processes of a task that has just been started."""
        run = Run(task, launch_plan, started)
        watched = []
        try:
            for pidfd in run.leaders:
                self._loop.add_fd(pidfd, partial(self._leader_ended, run, pidfd))
                watched.append(pidfd)
            if run.start_fd >= 0:
                self._loop.add_fd(run.start_fd, partial(self._says_it_runs, run))
        except OSError as error:
            for pidfd in watched:
                self._loop.remove_fd(pidfd)
            starter.abandon(started)
            raise LaunchRefused(f'cannot watch the processes of the task: {error.strerror}') from error
        self._running[task.uid] = run
        if launch_plan.kind == DIRECT:
            self._trace_ranks(run)
        if run.start_fd >= 0:
            seconds = task.description['startup_timeout']
            run.timer = self._loop.call_later(seconds, self._timed_out, run, f'startup_timeout: the task did not start '
                                              f'to execute within {seconds:g} s')
        else:
            self._limit_time(run)

    def _trace_launch(self, uid: str, launch_plan: LaunchPlan) -> None:
        """Without a launch script it is the executor that launches."""
        if launch_plan.kind != LAUNCH:
            for event in ('launch_start', 'launch_pre', 'launch_submit'):
                self.tracer.record(event, uid)

    def _trace_ranks(self, run: Run) -> None:
        """Without an exec script nothing happens between the steps."""
        uid = run.task.uid
        for _ in run.leaders:
            for event in ('exec_start', 'exec_pre', 'rank_start'):
                self.tracer.record(event, uid)

    # time limits

    def _limit_time(self, run: Run) -> None:
        seconds = run.task.description['timeout']
        if seconds > 0:
            run.timer = self._loop.call_later(seconds, self._timed_out, run,
                                              f'timeout: the task ran longer than {seconds:g} s')

    def _says_it_runs(self, run: Run) -> None:
        """A rank has told that it runs, or none will any more; the time that the task may take counts from now on."""
        self._forget_start(run)
        if run.ending is None:
            self._stop_timer(run)
            self._limit_time(run)

    def _timed_out(self, run: Run, reason: str) -> None:
        self.tracer.record('task_timeout', run.task.uid)
        self._end([run], Ending(TimeoutError(reason)))

    @staticmethod
    def _stop_timer(run: Run) -> None:
        if run.timer is not None:
            run.timer.cancel()
            run.timer = None

    def _forget_start(self, run: Run) -> None:
        if run.start_fd >= 0:
            self._forget(run.start_fd)
            run.start_fd = -1

    # ending runs before their time

    def _end(self, runs: list[Run], ending: Ending) -> None:
        """Ask all processes of the runs to end; what does not follow is killed later."""
        runs = [run for run in runs if run.ending is None]
        if not runs:
            return
        for run in runs:
            run.ending = ending
            self._stop_timer(run)
            self.tracer.record('task_run_cancel_start', run.task.uid)
        processes.kill_tree(_pids(runs), signal.SIGTERM)
        self._loop.call_later(self._grace, self._kill, runs)

    def _kill(self, runs: list[Run]) -> None:
        runs = self._still_running(runs)
        if runs:
            processes.kill_tree(_pids(runs), signal.SIGKILL)
            self._sweep({run.task.uid for run in runs})
            self._loop.call_later(self._grace, self._give_up, runs)

    def _give_up(self, runs: list[Run]) -> None:
        """Let go of processes that do not die: no task may hang because of them."""
        for run in self._still_running(runs):
            left = sorted(pid for pid, _ in run.leaders.values())
            run.codes.update((rank, -signal.SIGKILL) for _, rank in run.leaders.values())
            for descriptor in (*run.leaders, *run.survivors):
                self._forget(descriptor)
            run.leaders.clear()
            run.survivors.clear()
            run.ending = Ending(RuntimeError(f'the task was ended, but processes of it cannot be killed and may still '
                                             f'run (sessions {left or run.pids})'))
            self._finish(run)

    def _still_running(self, runs: list[Run]) -> list[Run]:
        return [run for run in runs if self._running.get(run.task.uid) is run]

    def _sweep(self, uids: set[str]) -> None:
        """Kill all that was started for these tasks, also what has left their sessions."""
        context = self._environment.context
        processes.sweep({'RP_TASK_ID': uids, 'RP_PILOT_ID': context.pilot_id, 'RP_SESSION_ID': context.session_id},
                        signal.SIGKILL)

    # the end of processes

    def _leader_ended(self, run: Run, pidfd: int) -> None:
        """A process that was started has ended: note its exit code, and end what it left behind."""
        ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            # news about another process whose descriptor had the same number
            return
        pid, rank = run.leaders.pop(pidfd)
        if run.ending is None:
            # as long as it has not been reaped its number cannot be that of anyone else's group
            _signal_group(pid, signal.SIGKILL)
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        self._forget(pidfd)
        run.codes[rank] = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        if run.plan.kind == DIRECT:
            uid = run.task.uid
            self.tracer.record('rank_stop', uid, msg=f'RP_EXEC_PID={pid}:RP_RANK_PID={pid}')
            self.tracer.record('exec_post', uid)
            self.tracer.record('exec_stop', uid)
        if not run.leaders:
            self._settle(run)

    def _survivor_ended(self, run: Run, descriptor: int) -> None:
        self._forget(descriptor)
        run.survivors.discard(descriptor)
        if not run.survivors and not run.leaders:
            self._settle(run)

    def _settle(self, run: Run) -> None:
        """Finish the run, unless it is being ended and processes of it use their grace period."""
        if run.ending is not None and any(_signal_group(pid, 0) for pid in run.pids):
            self._watch_survivors(run)
        if not run.survivors:
            self._finish(run)

    def _watch_survivors(self, run: Run) -> None:
        for pid in processes.tree(run.pids, processes.process_table()):
            try:
                descriptor = processes.pidfd_open(pid)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                # they cannot be followed, so they cannot be given time either
                processes.kill_tree(run.pids, signal.SIGKILL)
                return
            if descriptor is not None:
                self._loop.add_fd(descriptor, partial(self._survivor_ended, run, descriptor))
                run.survivors.add(descriptor)

    def _forget(self, descriptor: int) -> None:
        self._loop.remove_fd(descriptor)
        os.close(descriptor)

    # handing on

    def _finish(self, run: Run) -> None:
        """All processes of the task have ended: note how, and let it go."""
        task = run.task
        uid = task.uid
        del self._running[uid]
        self._stop_timer(run)
        self._forget_start(run)
        if run.plan.kind != LAUNCH:
            for event in ('launch_collect', 'launch_post', 'launch_stop'):
                self.tracer.record(event, uid)
        self.tracer.record('task_run_stop', uid)
        task.exit_code = exit_code_of_task(run.codes)
        if run.ending is not None:
            self.tracer.record('task_run_cancel_stop', uid)
            self._to_sweep.add(uid)
            _set_canceled(task, run.ending)
        elif task.exit_code == 0:
            task.target_state = states.DONE
        else:
            where = f', see {run.plan.output[0]}' if run.plan.kind == LAUNCH else ''
            task.fail("RuntimeError('task failed')", explain(run.codes, run.plan.kind != DIRECT) + where)
        self._hand_on(task)

    def _end_unstarted(self, task: AgentTask) -> None:
        _set_canceled(task, self._stopping or Ending())
        self._hand_on(task)

    def _hand_on(self, task: AgentTask) -> None:
        self._done.append(task)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Hand on all tasks that are done, in one bulk."""
        self._flushing = False
        tasks, self._done = self._done, []
        if self._to_sweep:
            uids, self._to_sweep = self._to_sweep, set()
            self._sweep(uids)
        if tasks:
            self.advance(tasks, states.AGENT_STAGING_OUTPUT_PENDING)
            self.output(tasks)
        if self._on_empty is not None and not (self._queued or self._running or self._done):
            on_empty, self._on_empty = self._on_empty, None
            on_empty()


def _pids(runs: Iterable[Run]) -> set[int]:
    return {pid for run in runs for pid in run.pids}


def _signal_group(pid: int, sig: int) -> bool:
    """Signal a process group; False if there is none of that number."""
    try:
        os.killpg(pid, sig)
    except ProcessLookupError:
        return False
    except PermissionError:
        # it has a member, but one that runs as another user
        return True
    return True


def _set_canceled(task: AgentTask, ending: Ending) -> None:
    task.target_state = states.CANCELED
    task.exception = ending.exception
    task.exception_detail = ending.detail
