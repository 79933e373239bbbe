"""Deadlines of running tasks: `timeout` and `startup_timeout`.

`timeout` counts from the start of the task's processes or, if the description has a `startup_timeout`, from the task's
start signal. Ranks that the agent starts signal by a pipe. Those of a launcher, which may run on other nodes, signal by
a note in the sandbox, which the agent polls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from rp_agent.executor.base import Ending
from rp_agent.executor.launching.launch_outcome import has_started
from rp_agent.executor.run import Run
from rp_api import states
from rp_api.failures.kinds import LAUNCH, TIMEOUT
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer

LAUNCH_LIMIT = 600.0
"""Seconds after which a launcher that has started no rank is regarded as hanging, for tasks without time limits."""

_LOOK_AFTER = 1.0
"""Seconds between two looks at the notes of a launcher's ranks."""


class Deadlines:
    """Timers that end runs by `end(run, ending)` at their deadlines."""

    def __init__(self, loop: Loop, tracer: Tracer, end: Callable[[Run, Ending], object]) -> None:
        self._loop = loop
        self._tracer = tracer
        self._end = end

    def begin(self, run: Run) -> None:
        """Start the first timer of a run whose processes have been started."""
        self._safely(run, self._begin)

    def runs(self, run: Run) -> None:
        """Replace the startup timer of a run whose task has signalled its start."""
        if run.ending is None:
            run.stop_timer()
            self.limit(run)

    def limit(self, run: Run) -> None:
        """Start the timer of `timeout`."""
        self._safely(run, self._limit)

    def _safely(self, run: Run, do: Callable[[Run], object]) -> None:
        """Call `do(run)`; an exception in it ends only this run."""
        try:
            do(run)
        except Exception as error:
            run.task.broke(error, 'limiting its time')
            self._end(run, Ending(error, states.FAILED))

    def _begin(self, run: Run) -> None:
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

    def _limit(self, run: Run) -> None:
        seconds = run.task.description['timeout']
        if seconds > 0:
            self._arm(run, seconds, f'timeout: the task ran longer than {seconds:g} s')

    def _arm(self, run: Run, seconds: float, reason: str) -> None:
        run.timer = self._loop.call_later(seconds, self._timed_out, run, reason)

    def _timed_out(self, run: Run, reason: str) -> None:
        self._tracer.record('task_timeout', run.task.uid)
        self._end(run, Ending(TimeoutError(reason), kind=TIMEOUT))

    def _look(self, deadline: float, run: Run) -> None:
        """Check whether the ranks of a launcher have signalled their start."""
        left = deadline - time.monotonic()
        if has_started(run.task):
            self.runs(run)
        elif left <= 0:
            self._timed_out(run, _not_started(run.task.description['startup_timeout']))
        else:
            run.timer = self._loop.call_later(min(left, _LOOK_AFTER), self._safely, run,
                                              partial(self._look, deadline))

    def _look_once(self, run: Run) -> None:
        run.timer = None
        if not has_started(run.task):
            launch = run.plan.launch
            assert launch is not None
            text = f'{launch.method} has started no rank within {LAUNCH_LIMIT:g} s: {launch.line}'
            self._end(run, Ending(TimeoutError(text), states.FAILED, LAUNCH))


def _not_started(seconds: float) -> str:
    return f'startup_timeout: the task did not start to execute within {seconds:g} s'
