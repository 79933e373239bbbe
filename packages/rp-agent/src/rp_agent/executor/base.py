"""Base class of executors: accept tasks, end them at their time limits, hand on ended tasks, end all tasks.

Rules of this file:

- All methods are called in the thread of the event loop.
- A task leaves by `output`, in one batch with all tasks that ended in the same turn of the loop. It keeps its slots
  until then; the executor keeps no record of it.
- The failure of a task is data on the task and affects nothing else.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from rp_agent.executor import memory_failures
from rp_agent.executor.launching import outcome
from rp_agent.lookup import LaunchRefused
from rp_agent.task import UNSTARTED, AgentTask
from rp_api import states
from rp_api.component import Component
from rp_api.constants import RAPTOR_WORKER
from rp_api.failures.kinds import INTERNAL, LAUNCH, PILOT, TIMEOUT
from rp_api.loop.event_loop import Loop, Timer
from rp_api.states import DONE
from rp_profiling.write.tracer import Tracer


class Ending:
    """The reason why the executor ends a task early, and the final state that the task gets."""

    __slots__ = ('detail', 'exception', 'record', 'state')

    def __init__(self, error: Exception | None = None, state: str = states.CANCELED, kind: str = INTERNAL) -> None:
        """Create a reason.

        Args:
            error: The exception that the task reports; None if the application cancels the task.
            state: Final state of the task, CANCELED or FAILED.
            kind: The kind of failure if there is an exception, see `rp_api.failures.kinds`.
        """
        self.state = state
        self.exception = None if error is None else repr(error)
        self.detail = None if error is None else str(error)
        self.record = None if error is None else {'kind': kind, 'sentence': str(error)}

    def apply(self, task: AgentTask) -> None:
        """Set the target state and the exception of a task, unless it has failed."""
        task.settle(self.state, self.exception, self.detail, self.record)


class TimedRun:
    """A task that an executor runs, its time limits in seconds, 0 for none, and the timer of the current one.

    `ending` is set while the executor ends the task.
    """

    __slots__ = ('ending', 'limit', 'start_limit', 'task', 'timer')

    def __init__(self, task: AgentTask) -> None:
        self.task = task
        self.limit = float(task.description['timeout'])
        self.start_limit = float(task.description['startup_timeout'])
        self.ending: Ending | None = None
        self.timer: Timer | None = None

    def stop_timer(self) -> None:
        """Cancel the current time limit."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class TimeLimits:
    """Timers that end tasks by `end(uids, ending)` at their time limits, first `startup_timeout`, then `timeout`."""

    def __init__(self, loop: Loop, tracer: Tracer, end: Callable[[list[str], Ending], object]) -> None:
        self._loop = loop
        self._tracer = tracer
        self._end = end

    def start(self, run: TimedRun) -> None:
        """Start the timer of `startup_timeout`."""
        if run.start_limit > 0:
            self._arm(run, run.start_limit, not_started(run.start_limit))

    def runs(self, run: TimedRun) -> None:
        """Replace the startup timer of a run whose task has signalled its start."""
        if run.ending is None:
            run.stop_timer()
            self.limit(run)

    def limit(self, run: TimedRun) -> None:
        """Start the timer of `timeout`."""
        self._safely(run, self._limit)

    def _safely(self, run: TimedRun, do: Callable[[Any], object]) -> None:
        """Call `do(run)`; an unexpected error ends this run, and no other."""
        try:
            do(run)
        except Exception as error:
            run.task.broke(error, 'limiting its time')
            self._end([run.task.uid], Ending(error, states.FAILED))

    def _limit(self, run: TimedRun) -> None:
        if run.limit > 0:
            self._arm(run, run.limit, f'timeout: the task ran longer than {run.limit:g} s')

    def _arm(self, run: TimedRun, seconds: float, reason: str) -> None:
        run.timer = self._loop.call_later(seconds, self._timed_out, run, reason)

    def _timed_out(self, run: TimedRun, reason: str) -> None:
        self._tracer.record('task_timeout', run.task.uid)
        self._end([run.task.uid], Ending(TimeoutError(reason), kind=TIMEOUT))


def not_started(seconds: float) -> str:
    """Return the reason of a task that has reached its `startup_timeout`."""
    return f'startup_timeout: the task did not start to execute within {seconds:g} s'


class BaseExecutor(Component, ABC):
    """A component that runs tasks: the base class of executors.

    An executor takes tasks in AGENT_EXECUTING_PENDING by `put`, and passes them in AGENT_STAGING_OUTPUT_PENDING to
    `output`. A subclass implements `__contains__`, `_uids`, `_begin` and `_end`. It calls `_leave` for each task that
    has run, and `_refuse` for each that cannot run. The entry-point group `radical_pilot.executors` makes it available
    (see `rp_agent.executor.registry`).
    """

    def __init__(self, uid: str, tracer: Tracer, loop: Loop) -> None:
        """Create an executor without tasks.

        Args:
            uid: Identifier of the component, such as `agent_executing.0000`.
            tracer: Records the events of tasks.
            loop: The event loop, in whose thread all methods are called.
        """
        super().__init__(uid, tracer)
        self._loop = loop
        self._memory = memory_failures.of_this_process()
        self._done: list[AgentTask] = []
        self._to_sweep: set[str] = set()
        self._flushing = False
        self._stopping: Ending | None = None
        self._on_empty: Callable[[], Any] | None = None

    def expect(self, expected: Callable[[int], Sequence[AgentTask]]) -> None:
        """Accept a forecast of the next tasks, for executors that prepare starts. The inherited method ignores it.

        Args:
            expected: `expected(count)` returns at most `count` tasks that are likely, not certain, to be put next.
        """

    def put(self, tasks: list[AgentTask]) -> None:
        """Run tasks.

        Cancelled tasks, and all tasks after `stop`, are handed on as CANCELED without a start.

        Args:
            tasks: Tasks with slots, in state AGENT_EXECUTING_PENDING.
        """
        self.received(tasks)
        ready = []
        for task in tasks:
            if task.cancelled or self._stopping is not None:
                self._end_unstarted(task)
            else:
                ready.append(task)
        now = time.time()
        for task in ready:
            task.note_run(now)
        self.advance(ready, states.AGENT_EXECUTING)
        self._begin(ready)

    def cancel(self, uids: Iterable[str]) -> None:
        """End tasks as CANCELED.

        Args:
            uids: Identifiers of tasks; unknown ones are ignored.
        """
        self._end([uid for uid in dict.fromkeys(uids) if uid in self], Ending())

    def stop(self, on_empty: Callable[[], Any], reason: str) -> None:
        """End all tasks as CANCELED, and start no more.

        Args:
            on_empty: Called once, when the last task has been handed on.
            reason: The sentence that the tasks report.
        """
        self._stopping = Ending(RuntimeError(reason), kind=PILOT)
        self._on_empty = on_empty
        self._end(self._uids(), self._stopping)
        self._flush_soon()

    def sweep(self, uids: Iterable[str]) -> None:
        """Kill processes that ended tasks of this pilot have left on this node. The inherited method does nothing.

        Args:
            uids: Identifiers of tasks; another executor of the pilot may have started them.
        """

    def forward_signal(self, number: int) -> None:
        """Pass a signal on to the running tasks that want it. The inherited method does nothing.

        Args:
            number: The signal, which the job got.
        """

    def check(self) -> None:
        """Verify all invariants.

        Raises:
            AssertionError: An invariant is violated.
        """
        done = [task.uid for task in self._done]
        places = [*self._uids(), *done]
        assert len(places) == len(set(places)), f'tasks in several places: {sorted(places)}'
        assert self._to_sweep <= set(done), f'to be swept, but not done: {self._to_sweep - set(done)}'
        assert not done or self._flushing, f'done, but no flush is scheduled: {done}'

    @abstractmethod
    def __contains__(self, uid: object) -> bool:
        """Return whether the task with this uid is here and has not ended."""

    @abstractmethod
    def _uids(self) -> list[str]:
        """Return the uids of all tasks that are here and have not ended."""

    @abstractmethod
    def _begin(self, tasks: list[AgentTask]) -> None:
        """Run tasks, in state AGENT_EXECUTING, now or when there is room.

        Args:
            tasks: New tasks; each must leave by `_leave`, `_refuse` or `_hand_on`.
        """

    @abstractmethod
    def _end(self, uids: list[str], ending: Ending) -> None:
        """End tasks.

        Args:
            uids: Identifiers of tasks that are here.
            ending: The reason; a task that is already being ended keeps its first reason.
        """

    def _leave(self, task: AgentTask, codes: Mapping[int, int], ending: Ending | None,
               explain: Callable[[Mapping[int, int]], str] | None = None, *, shell: bool = True,
               script: str = '') -> None:
        """Hand on a task that has run.

        Args:
            task: The task.
            codes: Exit codes by rank; empty if there are none.
            ending: The reason if the executor has ended the task, else None.
            explain: `explain(codes)` returns why the task failed; default: what the exit codes mean.
            shell: Whether the exit codes are those of shells.
            script: The output file of a launch script; empty without one.
        """
        self._record(task.uid, 'task_run_stop')
        task.exit_code = outcome.code_of(outcome.exit_code_of_task(codes), shell=shell) if codes else None
        if ending is not None:
            self._record(task.uid, 'task_run_cancel_stop')
            ending.apply(task)
        elif task.exit_code == 0:
            task.target_state = DONE
        else:
            self._conclude(task, lambda: outcome.fail_by_codes(
                task, codes, shell=shell, script=script, reason=explain(codes) if explain else ''))
        self._hand_on(task)

    @staticmethod
    def _conclude(task: AgentTask, judge: Callable[[], object]) -> None:
        """Set the outcome of a task by `judge()`; an exception in it fails only this task."""
        try:
            judge()
        except Exception as error:
            task.broke(error, 'concluding')

    def _refuse(self, task: AgentTask, error: Exception) -> None:
        """Hand on a task that cannot be started, as FAILED.

        Args:
            task: The task.
            error: The reason; the agent logs it with a traceback unless it is a LaunchRefused.
        """
        if not isinstance(error, LaunchRefused):
            task.broke(error, 'starting')
        task.has_not_run()
        task.fail(outcome.named(error.__cause__ or error), str(error), LAUNCH, sentence=str(error))
        self._record(task.uid, 'task_run_stop')
        self._hand_on(task)

    def _end_unstarted(self, task: AgentTask) -> None:
        (self._stopping or Ending()).apply(task)
        task.extra[UNSTARTED] = True
        task.has_not_run()
        self._hand_on(task)

    def _hand_on(self, task: AgentTask) -> None:
        self._done.append(task)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Hand on all tasks that are done, in one batch."""
        self._flushing = False
        tasks, self._done = self._done, []
        if self._to_sweep:
            uids, self._to_sweep = self._to_sweep, set()
            self.sweep(uids)
        if any('mode' in task.description and task.description['mode'] == RAPTOR_WORKER for task in tasks):
            from rp_api.system import shared_directory  # few agents have workers

            shared_directory.sweep()   # a killed manager leaves its directory
        for task in tasks:
            if task.error is not None:
                self._conclude(task, partial(self._memory.explain, task))
        if tasks:
            self.advance(tasks, states.AGENT_STAGING_OUTPUT_PENDING)
            self.forward(tasks)
        if self._on_empty is not None and not self._uids() and not self._done:
            on_empty, self._on_empty = self._on_empty, None
            on_empty()

    def _record(self, uid: str, *events: str) -> None:
        for event in events:
            self.tracer.record(event, uid)
