"""The executor POPEN: starts tasks as child processes of the agent, watches them, and ends them.

Rules of this file:

- The thread of the loop must live as long as the agent, because the kernel kills the tasks that a thread has started
  when the thread ends.
- Scripts record their own events. For processes without a script, this file records the same events in the same order.
- A task is in one of four places: deferred (it waits for a launch method), queued, running or done.
- Compiled code starts plain tasks, and creates those that are expected next in advance (see `plain`). Their events are
  recorded when they start, like those of other tasks.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from rp_agent.executor.base import BaseExecutor, Ending
from rp_agent.executor.launching import outcome
from rp_agent.executor.launching.environment import PilotContext, TaskEnvironment
from rp_agent.executor.launching.plan import DIRECT, LAUNCH, plan
from rp_agent.executor.popen.deferred import Deferred
from rp_agent.executor.popen.plain import PlainTasks, Prelaunch
from rp_agent.executor.popen.reaper import Reaper
from rp_agent.executor.processes.launchloop import LaunchLoop
from rp_agent.executor.run import Deadlines, Run
from rp_agent.executor.starter import Moved, Shortage, Starter, make_sandbox, write_scripts
from rp_agent.lookup import LaunchRefused
from rp_agent.task import DEFAULTS, DVM, LAUNCH_INFO, AgentTask
from rp_api import states
from rp_api.loop.event_loop import Loop, Timer
from rp_api.states import DONE
from rp_api.system.signals import name_of
from rp_profiling.write.tracer import Tracer

SHORTAGE_LIMIT = 60.0
"""Seconds that a task waits for resources to create its process, while no task runs whose end could free some."""

STARTS_PER_TURN = 16
"""Maximum number of tasks started in one turn of the loop, so that a large batch does not delay ends and commands."""

RETRY_AFTER = 1.0
"""Seconds before the start of a task that failed for lack of resources is retried."""

_STARTED = ('task_start', 'task_mkdir', 'task_mkdir_done', 'task_run_start', 'task_run_ok', 'launch_start',
            'launch_pre', 'launch_submit', 'exec_start', 'exec_pre', 'rank_start')
"""Events of the start of a plain task."""

_COLLECTED = ('launch_collect', 'launch_post', 'launch_stop')
"""Events of the end of a task without a launch script."""
_STOPPED = (*_COLLECTED, 'task_run_stop')


class Executor(BaseExecutor):
    """Runs tasks as processes of this node; `grace` is the time in seconds between SIGTERM and SIGKILL."""

    by_shell = False
    """True if exit codes of programs are those that a shell reports."""
    uses_dvms = True
    """True if tasks are launched into DVMs on platforms that use them."""

    def __init__(self, uid: str, tracer: Tracer, loop: Loop, context: PilotContext,
                 options: Mapping[str, Any] = MappingProxyType({}), grace: float = 5.0) -> None:
        super().__init__(uid, tracer, loop)
        self._environment = TaskEnvironment(context)
        self._ports = context.ports
        self._deadlines = Deadlines(loop, tracer, self._end)
        self._queued: OrderedDict[str, AgentTask] = OrderedDict()
        self._reaper = Reaper(loop, tracer, context.belongs, grace, self._finished, self._make_loop(context),
                              self._environment)
        self._deferred = Deferred(loop, tracer, context, self._reaper, self, uses_dvms=self.uses_dvms)
        self._starter = Starter(self._reaper.launched, self._environment.programs)
        self._plain = PlainTasks(self._reaper.launched, self._environment.shared, DEFAULTS, self._environment.programs,
                                 self._environment.search_path, context.detail.on, self._starter.null)
        self._prelaunch = Prelaunch(loop, self._plain)
        self._short_since: dict[str, float] = {}
        """Time of the first failed start of tasks that wait for resources; their start events are recorded."""
        self._retry: Timer | None = None

    def expect(self, expected: Callable[[int], Sequence[AgentTask]]) -> None:
        """Prepare the tasks that `expected(count)` returns; the caller must put or cancel each of them."""
        self._prelaunch.expected = expected

    def cancel(self, uids: Iterable[str]) -> None:
        uids = list(uids)
        for uid in uids:
            self._prelaunch.discard(uid)
        super().cancel(uids)

    def sweep(self, uids: Iterable[str]) -> None:
        self._reaper.sweep(set(uids))

    def forward_signal(self, number: int) -> None:
        wanted = name_of(number)
        self._reaper.forward([run for run in self._reaper.running.values() if run.ending is None
                              and wanted in run.task.description['forward_signals']], number)

    def stop(self, on_empty: Callable[[], Any], reason: str) -> None:
        """End all tasks, then the DVMs, then call `on_empty`."""
        self._short_since.clear()
        self._prelaunch.close()
        super().stop(partial(self._deferred.stop, on_empty), reason)

    def close(self) -> None:
        """Release all resources; called when the executor has no tasks."""
        self._prelaunch.close()
        self._deferred.close()
        self._starter.close()
        self._reaper.close()
        super().close()

    def check(self) -> None:
        """Verify all invariants; raise AssertionError."""
        super().check()
        self._reaper.check()
        self._deferred.check(self._queued)
        places = {*self._uids(), *(task.uid for task in self._done)}
        assert self._short_since.keys() <= self._queued.keys(), 'tasks that wait for resources are not queued'
        assert self._prelaunch.held.isdisjoint(places), f'both started and held: {self._prelaunch.held & places}'

    def __contains__(self, uid: object) -> bool:
        return uid in self._queued or uid in self._reaper.running or uid in self._deferred

    def _uids(self) -> list[str]:
        return [*(task.uid for task in self._deferred.tasks), *self._queued, *self._reaper.running]

    def _make_loop(self, context: PilotContext) -> LaunchLoop:
        return LaunchLoop()

    def _begin(self, tasks: Iterable[AgentTask]) -> None:
        idle = not self._queued
        for task in tasks:
            self._queued[task.uid] = task
        if idle:
            self._start_some()

    def _start_some(self) -> None:
        """Start some queued tasks now, and the others in later turns of the loop."""
        for _ in range(min(STARTS_PER_TURN, len(self._queued))):
            _, task = self._queued.popitem(last=False)
            if task.cancelled:
                self._end_unstarted(task)
            elif not self._start(task):
                return
        if self._queued:
            self._loop.call_soon(self._start_some)
        else:
            self._prelaunch.refill()

    def _start(self, task: AgentTask) -> bool:
        """Start or defer a task; return False if it must wait for resources."""
        again = bool(self._short_since) and task.uid in self._short_since
        try:
            if not again and (self._start_plain(task) or self._deferred.take(task)):
                return True
            try:
                self._prepare(task, again)
            except Shortage as shortage:
                return self._postpone(task, shortage)
            except LaunchRefused as error:
                self._refuse(task, error)
            if again:
                del self._short_since[task.uid]
        except Exception as error:
            self._broke(task, error, 'starting')
        return True

    def _start_plain(self, task: AgentTask) -> bool:
        """Start a plain task; return False for a task that needs the complete procedure."""
        cpus = self._environment.bindings[task.cores(0)]
        run = self._prelaunch.start(task, cpus) or self._plain.start(task, cpus)
        if run is None:
            return False
        self._reaper.watch(run)
        self.tracer.record_many(task.uid, _STARTED)
        if run.limit != 0:
            self._deadlines.limit(run)
        return True

    def _prepare(self, task: AgentTask, again: bool) -> None:
        """Start a task; `again` if an earlier attempt has recorded its events."""
        uid = task.uid
        if not again:
            self.tracer.record_many(uid, ('task_start', 'task_mkdir'))
        make_sandbox(task.sandbox)
        if not again:
            self.tracer.record_many(uid, ('task_mkdir_done', 'task_run_start'))
        launch_plan = plan(task, self._environment)
        if launch_plan.scripts:
            write_scripts(task, launch_plan)
        if not again:
            self.tracer.record('task_run_ok', uid)
            if launch_plan.kind != LAUNCH:
                self.tracer.record_many(uid, ('launch_start', 'launch_pre', 'launch_submit'))
        self._watch(self._starter.start(task, launch_plan))

    def _postpone(self, task: AgentTask, shortage: Shortage) -> bool:
        """Queue a task again that cannot be started now; return True if it has waited too long and is refused."""
        self._prelaunch.clear()   # frees processes and descriptors
        now = time.monotonic()
        since = self._short_since.setdefault(task.uid, now)
        if not self._reaper.running and now - since >= SHORTAGE_LIMIT:
            del self._short_since[task.uid]
            self._refuse(task, LaunchRefused(f'{shortage} (for {now - since:.0f} s, with no other task running)'))
            return True
        self._put_back(task)
        if self._retry is None:
            self._retry = self._loop.call_later(RETRY_AFTER, self._try_again)
        return False

    def _put_back(self, task: AgentTask) -> None:
        self._queued[task.uid] = task
        self._queued.move_to_end(task.uid, last=False)

    def _try_again(self) -> None:
        """Retry the starts that failed for lack of resources."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
            self._start_some()

    def _watch(self, run: Run) -> None:
        """Watch the processes of a task that has just been started."""
        uid = run.task.uid
        try:
            if run.start_fd >= 0:
                self._loop.add_fd(run.start_fd, partial(self._rank_started, run))
        except OSError as error:
            self._starter.abandon(run)
            raise Shortage(f'cannot watch the start of the task: {error.strerror}') from error
        self._reaper.watch(run)   # from here on, an error ends its processes
        if run.plan.kind == DIRECT:
            for _ in run.pids:
                self.tracer.record_many(uid, ('exec_start', 'exec_pre', 'rank_start'))
        self._deadlines.begin(run)
        self._deferred.started(run)

    def _rank_started(self, run: Run) -> None:
        """Start the timeout of a task: a rank has signalled its start, or all ranks have closed the pipe."""
        try:
            os.read(run.start_fd, 1)
        except BlockingIOError:   # a late event of an earlier pipe with the same descriptor number
            return
        self._loop.remove_fd(run.start_fd)   # it stays open: other ranks will write to it
        self._deadlines.runs(run)

    def _broke(self, task: AgentTask, error: Exception, doing: str) -> None:
        """End a task after an unexpected error, in whatever place it is."""
        task.broke(error, doing)
        run = self._reaper.running.get(task.uid)
        if run is not None:
            self._reaper.end([run], Ending(error, states.FAILED))
            return
        self._short_since.pop(task.uid, None)
        self._queued.pop(task.uid, None)
        if task.uid in self._deferred:
            self._deferred.pop(task.uid)
        self._hand_on(task)

    def _finished(self, run: Run) -> None:
        """Hand on a task of which all processes have ended."""
        try:
            self._judge(run)
        except Exception as error:
            self._broke(run.task, error, 'concluding')

    def _judge(self, run: Run) -> None:
        task = run.task
        uid = task.uid
        run.stop_timer()
        if run.start_fd >= 0:
            self._reaper.forget(run.start_fd)
            run.start_fd = -1
        if run.plan.launch is not None and self._deferred.takes_back(run):
            if self._stopping is not None and uid in self._deferred:
                self._end_unstarted(self._deferred.pop(uid))
            return
        if run.failure is not None and run.ending is None:
            if run.plan.kind != LAUNCH:
                self.tracer.record_many(uid, _COLLECTED)
            self._not_executed(run, *run.failure)
            return
        self.tracer.record_many(uid, ('task_run_stop',) if run.plan.kind == LAUNCH else _STOPPED)
        run.note_end()
        task.exit_code = outcome.exit_code_of_task(run.codes) if any(run.codes.values()) else 0
        if run.ending is not None or self._reaper.has_daemons(uid):
            self._to_sweep.add(uid)
        if run.ending is not None:
            self.tracer.record('task_run_cancel_stop', uid)
            run.ending.apply(task)
        elif run.plan.launch is not None:
            outcome.conclude(task, run.plan)
        elif task.exit_code == 0:
            task.target_state = DONE
        else:
            shell = self.by_shell or run.plan.kind != DIRECT
            task.exit_code = outcome.code_of(task.exit_code, shell=shell)
            outcome.fail_by_codes(task, run.codes, shell=shell, script=run.plan.script)
        if run.plan.launch is not None and task.target_state != DONE:
            self._to_sweep.add(uid)   # the launcher may have left processes
            if run.plan.launch.elsewhere:
                self._ports.sweep_elsewhere(uid, run.plan.launch.elsewhere)
        self._hand_on(task)
        if self._retry is not None:
            self._loop.call_soon(self._try_again)

    def _not_executed(self, run: Run, rank: int, error: OSError) -> None:
        """Retry or refuse a task with a process that did not execute its program."""
        refusal = self._starter.refusal(run, rank, error)
        if isinstance(refusal, Shortage):
            self._postpone(run.task, refusal)
        elif isinstance(refusal, Moved):
            self._short_since.setdefault(run.task.uid, time.monotonic())
            self._put_back(run.task)
            self._loop.call_soon(self._start_some)
        else:
            refusal.__cause__ = error
            self._refuse(run.task, refusal)

    def _end(self, uids: list[str], ending: Ending) -> None:
        running = self._reaper.running
        for uid in uids:
            if uid in self._queued:
                self._end_unstarted(self._queued.pop(uid))
            elif uid in self._deferred:
                self._end_unstarted(self._deferred.pop(uid))
        self._reaper.end([running[uid] for uid in uids if uid in running], ending)

    def _end_unstarted(self, task: AgentTask) -> None:
        self._short_since.pop(task.uid, None)
        super()._end_unstarted(task)

    def _hand_on(self, task: AgentTask) -> None:
        if DVM in task.extra:
            self._deferred.drop(task.uid)
        self._done.append(task)
        self._flush_soon()

    def launch(self, tasks: Iterable[AgentTask]) -> None:
        """Start deferred tasks."""
        ready = []
        for task in tasks:
            if task.cancelled or self._stopping is not None:
                self._end_unstarted(task)
                continue
            if LAUNCH_INFO in task.extra:   # an earlier attempt has recorded its events
                self._short_since.setdefault(task.uid, time.monotonic())
            ready.append(task)
        self._begin(ready)

    def refuse(self, task: AgentTask, reason: str) -> None:
        """Hand on a deferred task that cannot be launched."""
        self._refuse(task, LaunchRefused(reason))
