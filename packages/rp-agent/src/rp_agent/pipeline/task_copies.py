"""Task clones for profiling: tasks are multiplied before a component, to put load on it, and removed behind it.

    blowup_factor   {stage: N}    N-1 clones are made of each task that enters the stage; default 1
    drop_clones     {stage: 0}    1 (default): clones are removed at the stage, before new ones are made; 0: they stay

Stages are the queues and components of the agent's first versions (`STAGES`), in the order in which tasks pass through
them. `watch_queue` and `Watcher` are parts of the executor today. A clone has the uid of its task with `.clone.0001`
and so on appended, has its own sandbox, and never leaves the agent. A clone that is made after placement shares the
slots of its task. RAPTOR's tasks are not cloned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

from rp_agent.components.names import EXECUTING, SCHEDULING, STAGING_INPUT, STAGING_OUTPUT
from rp_agent.components.stage import Stage
from rp_agent.task import AgentTask, concerns_raptor
from rp_api.platforms.agent_config import CLONING, clone_numbers
from rp_profiling.write.tracer import Tracer

_ENTRANCES = dict(zip((STAGING_INPUT, SCHEDULING, EXECUTING, STAGING_OUTPUT), CLONING, strict=True))

_log = logging.getLogger('radical.pilot.agent')

Put = Callable[[list[AgentTask]], None]

Plan = dict[str, list[tuple[int, int]]]
"""For each component the drop value and the factor of each stage at its entrance."""


def plan(settings: Mapping[str, Any]) -> Plan:
    """Return the plan that an agent's configuration asks for; raise DescriptionError if it is invalid."""
    factors, drops = clone_numbers(settings)
    if prod(factors.values()) == 1:
        return {}
    return {component: [(drops.get(stage, 1), factors.get(stage, 1)) for stage in stages]
            for component, stages in _ENTRANCES.items()}


class TaskCopy(AgentTask):
    """A clone of a task. `owns` is true if the clone has, or gets, slots that are to be freed."""

    __slots__ = ('owns',)

    def __init__(self, of: AgentTask, uid: str) -> None:
        super().__init__(uid, _renamed(of.description, of.uid, uid), of.pilot, of.sandbox.replace(of.uid, uid))
        self.state = of.state
        self.placement = of.placement
        self.request = of.request
        self.owns = of.placement is None


class TaskCopies(Stage):
    """The clones that the agent's configuration asks for: makes and removes them.

    Without profiling there are no clones. `release(tasks)` frees the slots of removed clones.
    """

    def __init__(self, settings: Mapping[str, Any], tracer: Tracer, release: Put) -> None:
        wanted = plan(settings)
        self._plan = wanted if tracer.enabled else {}
        self.active = bool(self._plan)
        self._record = tracer.record_bulk
        self._release = release
        if wanted and not self._plan:
            _log.warning('profiles are switched off: blowup_factor has no effect')

    def entrance(self, component: str, put: Put) -> Put:
        """Return the function that takes tasks for a component instead of `put`."""
        if not any(factor > 1 or drop for drop, factor in self._plan.get(component, ())):
            return put

        def enter(tasks: list[AgentTask]) -> None:
            tasks = self._enter(component, tasks)
            if tasks:
                put(tasks)
        return enter

    def drop(self, tasks: list[AgentTask]) -> list[AgentTask]:
        """Return the tasks without clones, which end here."""
        dropped = self._among(tasks)
        if not dropped:
            return tasks
        self._record('drop clone', [clone.uid for clone in dropped])
        placed: list[AgentTask] = [clone for clone in dropped if clone.owns and clone.placement is not None]
        if placed:
            self._release(placed)
        return [task for task in tasks if not isinstance(task, TaskCopy)]

    def visible(self, tasks: Sequence[AgentTask], state: str) -> Sequence[AgentTask]:
        """Return the tasks without clones."""
        return [task for task in tasks if not isinstance(task, TaskCopy)]

    def with_slots(self, tasks: list[AgentTask]) -> list[AgentTask]:
        """Return the tasks whose slots are to be freed now."""
        clones = self._among(tasks)
        if not clones:
            return tasks
        found = [task for task in tasks if not isinstance(task, TaskCopy) or task.owns]
        for clone in clones:
            clone.owns = False
        return found

    def _among(self, tasks: Iterable[AgentTask]) -> list[TaskCopy]:
        return [task for task in tasks if isinstance(task, TaskCopy)] if self.active else []

    def _enter(self, component: str, tasks: list[AgentTask]) -> list[AgentTask]:
        """Return the tasks with their clones, which precede them."""
        for drop, factor in self._plan[component]:
            if drop:
                tasks = self.drop(tasks)
            if factor > 1:
                tasks = self._blow_up(tasks, factor)
        return tasks

    def _blow_up(self, tasks: Iterable[AgentTask], factor: int) -> list[AgentTask]:
        found: list[AgentTask] = []
        for task in tasks:
            clones = [] if task.cancelled or concerns_raptor(task) else [
                TaskCopy(task, f'{task.uid}.clone.{number:04d}') for number in range(1, factor)]
            self._record('add clone', [clone.uid for clone in clones])
            found += [*clones, task]
        return found


def _renamed(value: Any, old: str, new: str) -> Any:
    """Return a copy of plain data in which a uid is replaced in all texts."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, Mapping):
        return {_renamed(key, old, new): _renamed(each, old, new) for key, each in value.items()}
    return [_renamed(each, old, new) for each in value] if isinstance(value, list | tuple) else value
