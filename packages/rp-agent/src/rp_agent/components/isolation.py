"""Isolation of tasks: an unexpected error in a step of the agent fails the task that causes it, and no other.

A step takes a bulk of tasks. After an error, those that have entered no later step enter the step again one by one; the
task with which it raises an error again is the one that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rp_agent.logs import LOG
from rp_agent.task import AgentTask
from rp_api.logger import logger

Put = Callable[[list[AgentTask]], None]


class Isolation:
    """The error handling of steps.

    `take_back(task)` takes a task out of components before it enters its step again, and returns False if it cannot;
    `give_up(task)` ends a task that has failed.
    """

    def __init__(self, take_back: Callable[[AgentTask], bool], give_up: Callable[[AgentTask], object]) -> None:
        self._take_back = take_back
        self._give_up = give_up

    def run(self, doing: str, put: Put, tasks: list[AgentTask]) -> None:
        """Pass tasks to a step, whose name explains failures, such as `scheduling`."""
        for task in tasks:
            task.step = doing
        try:
            put(tasks)
        except Exception as error:
            self.sort_out(doing, put, tasks, error)

    def sort_out(self, doing: str, put: Put, tasks: list[AgentTask], error: Exception) -> None:
        """Handle the error of a step: fail the task that causes it, and pass the others to the step again."""
        left = [task for task in tasks if task.step == doing]
        if len(tasks) == 1 and left:
            tasks[0].broke(error, doing)
            self._give_up(tasks[0])
            return
        logger(LOG).error('%s of %d tasks has failed unexpectedly', doing, len(tasks), exc_info=error)
        for task in left:
            if self._take_back(task):
                self.run(doing, put, [task])


def unless(tasks: Iterable[AgentTask], kept: Callable[[AgentTask], object], doing: str) -> list[AgentTask]:
    """Return the tasks for which `kept(task)` is false; a task for which it raises an error fails, and is returned."""
    left = []
    for task in tasks:
        try:
            if kept(task):
                continue
        except Exception as error:
            task.broke(error, doing)
        left.append(task)
    return left
