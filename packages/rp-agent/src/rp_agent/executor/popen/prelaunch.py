"""Prelaunch: creates sandbox, files and process of tasks before they have slots, so that a free slot is used at once.

It prepares a few tasks that are expected to run next. Only the cores to which a process is bound depend on the slot;
they are set when the process is released.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from rp_agent.executor.popen.plain import PlainTasks
from rp_agent.executor.processes.launchloop import Process
from rp_agent.executor.run import Run
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.loop.event_loop import Loop

PREPARED_MAX = 4
"""Maximum number of prepared tasks: about as many as end at the same time on machines where starts are expensive."""

FORECAST_TASKS = 4 * PREPARED_MAX
"""Number of tasks that one forecast covers."""


class Prelaunch:
    """Holds the processes of expected tasks; `expected(count)` returns at most `count` of them."""

    def __init__(self, loop: Loop, plain: PlainTasks) -> None:
        self._loop = loop
        self._plain = plain
        self.expected: Callable[[int], Sequence[AgentTask]] = lambda count: ()
        self._held: dict[str, tuple[AgentTask, Process]] = {}
        self._next: list[AgentTask] = []
        """Tasks of the last forecast, in reverse order."""
        self._unfit: set[str] = set()
        """Uids of tasks that cannot be prepared."""
        self._most = PREPARED_MAX
        self._due = False

    @property
    def held(self) -> Set[str]:
        """Uids of the prepared tasks."""
        return self._held.keys()

    def refill(self) -> None:
        """Prepare an expected task now, and others in later turns of the loop, so that other events are not delayed."""
        if self._due:
            return
        task = self._choose() if len(self._held) < self._most else None
        if task is None:
            return
        process = self._plain.hold(task)
        if process is None:
            self._unfit.add(task.uid)
        else:
            self._held[task.uid] = task, process
        if len(self._held) < self._most:
            self._due = True
            self._loop.call_soon(self._go_on)

    def start(self, task: AgentTask, cpus: bytes | None) -> Run | None:
        """Start a prepared task on these CPUs; return None if the task is not prepared."""
        held = self._held.pop(task.uid, None)
        return None if held is None else self._plain.let_go(held[1], task, cpus)

    def discard(self, uid: str) -> None:
        """Undo the preparation of a task; ignore other tasks."""
        held = self._held.pop(uid, None)
        if held is not None:
            self._plain.discard(held[1], held[0])

    def clear(self) -> None:
        """Undo all preparations; `refill` starts new ones."""
        for uid in list(self._held):
            self.discard(uid)

    def close(self) -> None:
        """Undo all preparations, and prepare no more tasks."""
        self._most = 0
        self.clear()

    def _go_on(self) -> None:
        self._due = False
        self.refill()

    def _choose(self) -> AgentTask | None:
        """Return the next task to prepare."""
        if not self._next:
            expected = self.expected(FORECAST_TASKS)
            self._unfit.intersection_update([task.uid for task in expected])
            self._next = [task for task in reversed(expected)
                          if task.uid not in self._held and task.uid not in self._unfit]
        while self._next:
            task = self._next.pop()
            if _waits(task) and task.uid not in self._held:
                return task
        return None


def _waits(task: AgentTask) -> bool:
    """Return whether a task still waits for its slots."""
    return task.state == states.AGENT_SCHEDULING and task.target_state is None and not task.cancelled
