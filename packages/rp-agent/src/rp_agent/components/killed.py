"""Holding back the ends of tasks until it is known that the agent outlives them.

A batch system ends a job, or the processes on a node that it takes down, by signals to all processes in any order. The
end of a task may be the first sign of this: then the pilot or the node is lost, and the outcome says nothing. The
task keeps its cores meanwhile, so that no other task starts in a job that is ending.
"""

from __future__ import annotations

from collections.abc import Callable

from rp_agent.executor.launching.outcome import was_killed
from rp_agent.task import KILLED, AgentTask
from rp_api import states
from rp_api.loop.event_loop import Loop

KILLED_HOLD_S = 2.0
"""Seconds by which this process has to outlive a killed task in a job."""

FAILURE_HOLD_S = 1.0
"""Seconds by which other failures are held back that may be a sign of the end of the job."""

END_HOLD_S = 0.03
"""Seconds by which other ends are held back that would be lost at the end of the job.

The signal to this process may follow: programs answer theirs with any exit code, shells even with 0.
"""

PassOn = Callable[[list[AgentTask]], None]


class HeldBack:
    """The tasks that have ended a moment ago, and may be signs of the end of their job.

    `in_job` means that killed tasks are held back, and all that have failed or that `restarts(task)` is true of, for a
    moment. `is_doubtful(task)` returns whether another failed one is held back for longer.
    """

    def __init__(self, loop: Loop, *, in_job: bool = True, restarts: Callable[[AgentTask], bool] = lambda task: False,
                 is_doubtful: Callable[[AgentTask], bool] = lambda task: False) -> None:
        self._loop = loop
        self._in_job = in_job
        self._restarts = restarts
        self._is_doubtful = is_doubtful
        self._held: list[tuple[list[AgentTask], PassOn]] = []
        self._released = False
        self._holds_all = False

    def hold_all(self) -> None:
        """Hold back all tasks that end in the next seconds, as this process was told to end, and perhaps its node."""
        self._holds_all = True
        self._loop.call_later(KILLED_HOLD_S, self._go_on)

    def _go_on(self) -> None:
        self._holds_all = False

    def hold(self, tasks: list[AgentTask], pass_on: PassOn) -> list[AgentTask]:
        """Hold back doubtful tasks, which `pass_on` receives later, and return the others."""
        if self._released:
            return tasks
        if self._holds_all:
            self._hold(tasks, KILLED_HOLD_S, pass_on)
            return []
        by_delay: dict[float, list[AgentTask]] = {}
        for task in tasks:
            by_delay.setdefault(self._delay(task), []).append(task)
        at_once = by_delay.pop(0.0, [])
        for seconds, held in by_delay.items():
            self._hold(held, seconds, pass_on)
        return at_once

    def _delay(self, task: AgentTask) -> float:
        """Return the seconds by which a task is held back."""
        if task.target_state == states.FAILED:
            if self._in_job and is_killed(task):
                return KILLED_HOLD_S
            if self._is_doubtful(task):
                return FAILURE_HOLD_S
            return END_HOLD_S if self._in_job else 0.0
        return END_HOLD_S if self._in_job and task.target_state == states.DONE and self._restarts(task) else 0.0

    def _hold(self, tasks: list[AgentTask], seconds: float, pass_on: PassOn) -> None:
        self._held.append((tasks, pass_on))
        self._loop.call_later(seconds, self._pass_on_one, self._held[-1])

    def release(self) -> None:
        """Pass on all tasks now, and hold back none from now on."""
        self._released = True
        while self._held:
            self._pass_on_one(self._held[0])

    def _pass_on_one(self, held: tuple[list[AgentTask], PassOn]) -> None:
        if held in self._held:   # else `release` has passed them on
            self._held.remove(held)
            tasks, pass_on = held
            pass_on(tasks)


def is_killed(task: AgentTask) -> bool:
    """Return whether a task has failed because a process of it was killed."""
    return task.target_state == states.FAILED and (was_killed(task.exit_code or 0) or KILLED in task.extra)
