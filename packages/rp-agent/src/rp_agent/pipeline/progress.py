"""Progress of a pilot: whether its tasks can go on without the application.

Tasks cannot if all of them wait, and neither another task, nor a service or environment that is on its way will change
that. The coordinator does not keep a pilot for such tasks when the application is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from rp_agent.pipeline.waiting import WaitingReport
from rp_agent.task import AgentTask, is_call
from rp_api import states
from rp_api.constants import RAPTOR_WORKER
from rp_api.loop.event_loop import Loop, Timer
from rp_api.task_modes import SERVICE_MODES

_log = logging.getLogger('radical.pilot.agent')

DELAY = 1.0
"""Seconds after a change, in which others follow, until the tasks are looked at."""

_NAMED = 3


class Shortages(Protocol):
    """The pipeline, as `Progress` uses it."""

    @property
    def expects(self) -> bool: ...   # something is on its way for which tasks wait

    def shortages(self, tasks: Mapping[str, AgentTask]) -> list[dict[str, Any]]: ...   # why tasks are not placed


class Progress:
    """Looks at `tasks` after changes; `changed()` is called when `stuck` or the entries of `waiting` have changed.

    `nodes` is the number of nodes of the pilot.
    """

    def __init__(self, loop: Loop, tasks: Mapping[str, AgentTask], pipeline: Shortages, nodes: int,
                 changed: Callable[[], object]) -> None:
        self._loop = loop
        self._tasks = tasks
        self._pipeline = pipeline
        self._changed = changed
        self.waiting = WaitingReport(loop, lambda: pipeline.shortages(tasks), changed, nodes)
        self._timer: Timer | None = None
        self.stuck = ''
        """The tasks that cannot go on, in a sentence; empty if one of them can, or there are none."""

    def note(self) -> None:
        """Note a change of tasks."""
        self.waiting.note()
        if self._timer is None:
            self._timer = self._loop.call_later(DELAY, self._look)

    def _look(self) -> None:
        self._timer = None
        waiting = waiting_alone(self._tasks.values())
        found = _sentence(waiting) if waiting and not self._pipeline.expects else ''
        if found != self.stuck:
            self.stuck = found
            if found:
                _log.warning('%s', found)
            self._changed()


def waiting_alone(tasks: Iterable[AgentTask]) -> list[str]:
    """Return the tasks that end by themselves if all of them wait for something that no other task can bring."""
    waiting: list[str] = []
    calls = workers = False
    for task in tasks:
        serves = task.description['mode'] in SERVICE_MODES
        if task.state == states.AGENT_SCHEDULING:
            if not serves:
                waiting.append(task.uid)
                calls = calls or is_call(task.description)
        elif not serves or task.state != states.AGENT_EXECUTING:   # a service that starts may be what others wait for
            return []
        else:
            workers = workers or task.description['mode'] == RAPTOR_WORKER
    return [] if calls and workers else waiting


def _sentence(waiting: list[str]) -> str:
    more = f' and {len(waiting) - _NAMED} more' if len(waiting) > _NAMED else ''
    return (f'{", ".join(waiting[:_NAMED])}{more} cannot go on without the application: what they wait for is not on '
            'its way, and no other task ends by itself')
