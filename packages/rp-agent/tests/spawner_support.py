"""What the tests of executors other than the default one share: any executor on a loop, and what came out of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from executor_support import a_context, a_task

from rp_agent.executor.launching.environment import PilotContext
from rp_agent.executor.registry import AnyExecutor
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer

Make = Callable[[str, Tracer, Loop, PilotContext], AnyExecutor]


class SpawnerHarness:
    """An executor, its loop, and what came out of it; a deadline makes a test fail that would wait for ever."""

    def __init__(self, path: Path, make: Make, *, profile: Path | None = None, **context: Any) -> None:
        self.path = path
        self.loop = Loop()
        self.profile = profile
        self.tracer = Tracer(profile, 'agent_executing.0000')
        self.context = a_context(path, **context)
        Path(self.context.pilot_sandbox).mkdir(parents=True, exist_ok=True)
        self.executor = make('agent_executing.0000', self.tracer, self.loop, self.context)
        self.executor.output = self._take
        self.executor.advanced = lambda tasks, state: self.states.append((state, [task.uid for task in tasks]))
        self.bulks: list[list[AgentTask]] = []
        self.states: list[tuple[str, list[str]]] = []
        self.wanted = 0
        self.patience = 30.0
        self.on_output: Callable[[list[AgentTask]], object] = lambda tasks: None

    def task(self, uid: str = 'task.000000', **description: Any) -> AgentTask:
        return a_task(self.path / uid, uid, **description)

    def run(self, *tasks: AgentTask) -> None:
        """Put the tasks and wait until they are out."""
        self.wanted = len(self.out) + len(tasks)
        self.executor.put(list(tasks))
        self.wait()

    def run_one(self, **description: Any) -> AgentTask:
        task = self.task(**description)
        self.run(task)
        return task

    def wait(self) -> None:
        self.executor.check()
        timer = self.loop.call_later(self.patience, self._too_late)
        self.loop.run()
        timer.cancel()
        self.executor.check()

    @property
    def out(self) -> list[AgentTask]:
        return [task for bulk in self.bulks for task in bulk]

    def when(self, condition: Callable[[], object], action: Callable[[], object]) -> None:
        """Call `action` in the loop once the condition is true."""
        if condition():
            action()
        else:
            self.loop.call_later(0.005, self.when, condition, action)

    def events(self) -> list[str]:
        """The events of tasks that the executor has recorded, in order."""
        self.tracer.flush()
        assert self.profile is not None
        rows = [line.split(',') for line in self.profile.read_text().splitlines() if ',task.' in line]
        return [row[1] for row in rows if row[1] != 'advance']

    def close(self) -> None:
        self.executor.check()
        self.executor.close()
        self.loop.close()

    def _take(self, tasks: list[AgentTask]) -> None:
        self.executor.check()
        self.bulks.append(tasks)
        self.on_output(tasks)
        if len(self.out) >= self.wanted:
            self.loop.stop()

    def _too_late(self) -> None:
        raise AssertionError(f'only {len(self.out)} of {self.wanted} tasks came out within {self.patience:g} s')


def text(task: AgentTask, name: str) -> str:
    return (Path(task.sandbox) / name).read_text()


def said(path: Path) -> bool:
    """Whether a program has written a line there."""
    return path.exists() and path.read_text().endswith('\n')
