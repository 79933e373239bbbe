"""The time limits of tasks that run, and what they begin with.

`timeout` counts from the start of the task's processes, or, if the description has a `startup_timeout`, from the moment
at which the task tells that it runs. Ranks that the agent starts tell by a pipe; those of a launcher, which may be on
other nodes, by a note in the sandbox, at which one has to look now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

from rp_agent.executor.base import Ending
from rp_agent.executor.launching.launch_outcome import has_started
from rp_agent.executor.launching.plan import LaunchPlan
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.loop.event_loop import Loop, Timer
from rp_profiling.write.tracer import Tracer


class Timed(Protocol):
    """A run, as far as its time is limited."""

    task: AgentTask
    plan: LaunchPlan
    start_fd: int
    timer: Timer | None
    ending: Ending | None

    def stop_timer(self) -> None: ...


AnyRun = TypeVar('AnyRun', bound=Timed)

LAUNCH_LIMIT = 600.0
"""Seconds after which a launcher that has started nothing is taken to hang, for tasks without limits of their own."""

_LOOK_AFTER = 1.0


class Deadlines(Generic[AnyRun]):
    """Ends runs by `end(run, ending)` when their time is over."""

    def __init__(self, loop: Loop, tracer: Tracer, end: Callable[[AnyRun, Ending], object]) -> None:
        self._loop = loop
        self._tracer = tracer
        self._end: Callable[[AnyRun, Ending], object] = end

    def begin(self, run: AnyRun) -> None:
        """The processes of a run have been started."""
        self._safely(run, self._begin)

    def runs(self, run: AnyRun) -> None:
        """The task has told that it runs."""
        if run.ending is None:
            run.stop_timer()
            self.limit(run)

    def limit(self, run: AnyRun) -> None:
        """Let the time count that the task may take."""
        self._safely(run, self._limit)

    def _safely(self, run: AnyRun, do: Callable[[AnyRun], object]) -> None:
        """Do something for a run; what that raises ends this run, and nothing else."""
        try:
            do(run)
        except Exception as error:
            run.task.broke(error, 'limiting its time')
            self._end(run, Ending(error, states.FAILED))

    def _begin(self, run: AnyRun) -> None:
        description = run.task.description
        launch = run.plan.launch
        seconds = description['startup_timeout']
        if run.start_fd >= 0:
            self._arm(run, seconds, _not_started(seconds))
        elif launch is not None and seconds > 0:
            self._look(time.monotonic() + seconds, run)
        elif launch is not None and description['timeout'] <= 0:
            run.timer = self._loop.call_later(LAUNCH_LIMIT, self._safely, run, self._look_once)
        else:
            self._limit(run)

    def _limit(self, run: AnyRun) -> None:
        seconds = run.task.description['timeout']
        if seconds > 0:
            self._arm(run, seconds, f'timeout: the task ran longer than {seconds:g} s')

    def _arm(self, run: AnyRun, seconds: float, reason: str) -> None:
        run.timer = self._loop.call_later(seconds, self._timed_out, run, reason)

    def _timed_out(self, run: AnyRun, reason: str) -> None:
        self._tracer.record('task_timeout', run.task.uid)
        self._end(run, Ending(TimeoutError(reason)))

    def _look(self, deadline: float, run: AnyRun) -> None:
        """See whether the ranks of a launcher have told that they run."""
        left = deadline - time.monotonic()
        if has_started(run.task):
            self.runs(run)
        elif left <= 0:
            self._timed_out(run, _not_started(run.task.description['startup_timeout']))
        else:
            run.timer = self._loop.call_later(min(left, _LOOK_AFTER), self._safely, run,
                                              partial(self._look, deadline))

    def _look_once(self, run: AnyRun) -> None:
        run.timer = None
        if not has_started(run.task):
            launch = run.plan.launch
            assert launch is not None
            text = f'{launch.method} has started no rank within {LAUNCH_LIMIT:g} s: {launch.line}'
            self._end(run, Ending(TimeoutError(text), states.FAILED))


def _not_started(seconds: float) -> str:
    return f'startup_timeout: the task did not start to execute within {seconds:g} s'
