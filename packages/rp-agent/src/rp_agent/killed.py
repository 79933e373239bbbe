"""Tasks that were killed are held back until this process has outlived them.

A batch system ends a job, or all that runs on a node that it takes down, by signals to all processes in any order. A
task that was killed may be the beginning of that: then the pilot or the node is lost, and not the task has failed. It
keeps its cores meanwhile, so that no other task starts in a job that is ending.
"""

from __future__ import annotations

from collections.abc import Callable

from rp_agent.executor.outcome import was_killed
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.mesh.loop import Loop

OUTLIVE = 2.0
"""Seconds that this process has to live longer than a task that was killed."""

PassOn = Callable[[list[AgentTask]], None]


class HeldBack:
    """The tasks that were killed within the last seconds."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._held: list[tuple[list[AgentTask], PassOn]] = []
        self._released = False

    def hold(self, tasks: list[AgentTask], pass_on: PassOn) -> list[AgentTask]:
        """Hold back those that were killed, which `pass_on` gets later; gives the others."""
        killed = [task for task in tasks if is_killed(task)]
        if not killed or self._released:
            return tasks
        self._held.append((killed, pass_on))
        self._loop.call_later(OUTLIVE, self._pass_on_first)
        return [task for task in tasks if task not in killed]

    def release(self) -> None:
        """Pass all on now, and hold back none from now on: everything is to end."""
        self._released = True
        while self._held:
            self._pass_on_first()

    def _pass_on_first(self) -> None:
        if self._held:   # else it was released
            tasks, pass_on = self._held.pop(0)
            pass_on(tasks)


def is_killed(task: AgentTask) -> bool:
    """Whether a task has failed because its process was killed."""
    return task.target_state == states.FAILED and was_killed(task.exit_code or 0)
