"""What executors have in common: how tasks come in and leave, and how all of them are ended.

Rules of this file:

- All methods are called in the thread of the loop.
- A task leaves by `output`, in the bulk of all tasks that ended in one turn of the loop, and keeps its slots until
  then. Nothing is kept of it afterwards.
- A failure of a task is data on the task and touches nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rp_agent.executor.launching.outcome import exit_code_of_task, fail, named
from rp_agent.lookup import LaunchRefused
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.component import Component
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer


class Ending:
    """Why a task is ended before its time, and as what; without an error, because the application has asked for it."""

    __slots__ = ('detail', 'exception', 'state')

    def __init__(self, error: Exception | None = None, state: str = states.CANCELED) -> None:
        self.state = state
        self.exception = None if error is None else repr(error)
        self.detail = None if error is None else str(error)

    def apply(self, task: AgentTask) -> None:
        """Make the task one that was ended, for this reason."""
        task.target_state = self.state
        task.exception = self.exception
        task.exception_detail = self.detail


class BaseExecutor(Component, ABC):
    """Takes tasks in AGENT_EXECUTING_PENDING and gives them in AGENT_STAGING_OUTPUT_PENDING; the rest is abstract."""

    def __init__(self, uid: str, tracer: Tracer, loop: Loop) -> None:
        super().__init__(uid, tracer)
        self._loop = loop
        self._done: list[AgentTask] = []
        self._to_sweep: set[str] = set()
        self._flushing = False
        self._stopping: Ending | None = None
        self._on_empty: Callable[[], Any] | None = None

    def expect(self, expected: Callable[[int], Sequence[AgentTask]]) -> None:
        """`expected(count)` tells at most so many tasks that will probably be put next; nothing has to come of it."""

    def put(self, tasks: list[AgentTask]) -> None:
        """Take tasks that have their slots, in state AGENT_EXECUTING_PENDING, and run them."""
        ready = []
        for task in tasks:
            if task.cancelled or self._stopping is not None:
                self._end_unstarted(task)
            else:
                ready.append(task)
        self.advance(ready, states.AGENT_EXECUTING)
        self._begin(ready)

    def cancel(self, uids: Iterable[str]) -> None:
        """End these tasks as CANCELED; those that are not here are ignored."""
        self._end([uid for uid in dict.fromkeys(uids) if uid in self], Ending())

    def stop(self, on_empty: Callable[[], Any], reason: str) -> None:
        """End all tasks as CANCELED for this reason, take no more; `on_empty` is called when the last one is out."""
        self._stopping = Ending(RuntimeError(reason))
        self._on_empty = on_empty
        self._end(self._uids(), self._stopping)
        self._flush_soon()

    def sweep(self, uids: Iterable[str]) -> None:
        """Kill what tasks of this pilot, which have ended, have left on this node; others may have started them."""

    def check(self) -> None:
        """Verify all invariants; raises AssertionError."""
        done = [task.uid for task in self._done]
        places = [*self._uids(), *done]
        assert len(places) == len(set(places)), f'tasks in several places: {sorted(places)}'
        assert self._to_sweep <= set(done), f'to be swept, but not done: {self._to_sweep - set(done)}'
        assert not done or self._flushing, f'nobody will hand on {done}'

    @abstractmethod
    def __contains__(self, uid: object) -> bool:
        """Whether the task of that uid is here and has not ended."""

    @abstractmethod
    def _uids(self) -> list[str]:
        """All tasks that are here and have not ended."""

    @abstractmethod
    def _begin(self, tasks: list[AgentTask]) -> None:
        """Run these tasks, now or when there is room."""

    @abstractmethod
    def _end(self, uids: list[str], ending: Ending) -> None:
        """End these tasks, which are here, for this reason; those that are being ended keep the reason they have."""

    def _leave(self, task: AgentTask, codes: Mapping[int, int], ending: Ending | None,
               explain: Callable[[Mapping[int, int]], str]) -> None:
        """The task has ended: its ranks with these exit codes, or because it was told to. Note how, and let it go."""
        self._record(task.uid, 'task_run_stop')
        task.exit_code = exit_code_of_task(codes) if codes else None
        if ending is not None:
            self._record(task.uid, 'task_run_cancel_stop')
            ending.apply(task)
        elif task.exit_code == 0:
            task.target_state = states.DONE
        else:
            self._conclude(task, lambda: fail(task, explain(codes)))
        self._hand_on(task)

    @staticmethod
    def _conclude(task: AgentTask, judge: Callable[[], object]) -> None:
        """Have `judge()` say how a task has ended; what that raises fails this task, and nothing else."""
        try:
            judge()
        except Exception as error:
            task.broke(error, 'concluding')

    def _refuse(self, task: AgentTask, error: Exception) -> None:
        """The task cannot be run."""
        if not isinstance(error, LaunchRefused):
            task.broke(error, 'starting')
        task.fail(named(error.__cause__ or error), str(error))
        self._record(task.uid, 'task_run_stop')
        self._hand_on(task)

    def _cannot_place_again(self, task: AgentTask, reason: str) -> None:
        self._refuse(task, LaunchRefused(reason))

    def _end_unstarted(self, task: AgentTask) -> None:
        (self._stopping or Ending()).apply(task)
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
            self.sweep(uids)
        if tasks:
            self.advance(tasks, states.AGENT_STAGING_OUTPUT_PENDING)
            self.output(tasks)
        if self._on_empty is not None and not self._uids() and not self._done:
            on_empty, self._on_empty = self._on_empty, None
            on_empty()

    def _record(self, uid: str, *events: str) -> None:
        for event in events:
            self.tracer.record(event, uid)
