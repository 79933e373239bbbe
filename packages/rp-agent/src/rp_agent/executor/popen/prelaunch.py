"""What is done for tasks before they have their slots, so that a slot that becomes free is used again at once.

The sandbox, the files and the process of a few tasks that are expected to run next are made while others run. Nothing
of that depends on the slot, except for the cores that the process is bound to when it is let go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from rp_agent.executor.popen.plain import PlainTasks
from rp_agent.executor.processes.launchloop import Process
from rp_agent.executor.run import Run
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.loop.event_loop import Loop

MOST = 4
"""Tasks that are prepared at a time: as many as end at about the same time, on the machines where a start is a large
part of what a task costs."""

LOOK = 4 * MOST
"""Tasks that are asked for at a time."""


class Prelaunch:
    """Holds the processes of tasks that are expected; `expected(count)` tells them, at most so many."""

    def __init__(self, loop: Loop, plain: PlainTasks) -> None:
        self._loop = loop
        self._plain = plain
        self.expected: Callable[[int], Sequence[AgentTask]] = lambda count: ()
        self._held: dict[str, tuple[AgentTask, Process]] = {}
        self._next: list[AgentTask] = []
        """Tasks that were expected when that was asked last, the first one last."""
        self._unfit: set[str] = set()
        """Those of them that cannot be prepared."""
        self._most = MOST
        self._due = False

    @property
    def held(self) -> Set[str]:
        """The uids of the tasks that are prepared."""
        return self._held.keys()

    def refill(self) -> None:
        """Prepare a task that is expected, and others soon, one after the other: what is urgent comes in between."""
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
        """Start a task that is prepared, on these CPUs; None if it is not."""
        held = self._held.pop(task.uid, None)
        return None if held is None else self._plain.let_go(held[1], task, cpus)

    def discard(self, uid: str) -> None:
        """Make undone what was done for a task; others are ignored."""
        held = self._held.pop(uid, None)
        if held is not None:
            self._plain.discard(held[1], held[0])

    def clear(self) -> None:
        """Make everything undone, until `refill` is called."""
        for uid in list(self._held):
            self.discard(uid)

    def close(self) -> None:
        """Make everything undone, and prepare no more."""
        self._most = 0
        self.clear()

    def _go_on(self) -> None:
        self._due = False
        self.refill()

    def _choose(self) -> AgentTask | None:
        """The next task to prepare."""
        if not self._next:
            expected = self.expected(LOOK)
            self._unfit.intersection_update([task.uid for task in expected])
            self._next = [task for task in reversed(expected)
                          if task.uid not in self._held and task.uid not in self._unfit]
        while self._next:
            task = self._next.pop()
            if _waits(task) and task.uid not in self._held:
                return task
        return None


def _waits(task: AgentTask) -> bool:
    """Whether a task has neither been placed nor been given up."""
    return task.state == states.AGENT_SCHEDULING and task.target_state is None and not task.cancelled
