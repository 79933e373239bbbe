"""The components of a task manager, joined without threads, processes and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from client_support import Engine, Events, Later, Manager, a_pilot, a_task

from rp_api import states
from rp_api.constants import TASK_STATE
from rp_api.coordination.contract import Update
from rp_client.cache.claims import Claims
from rp_client.cache.store import ResultStore
from rp_client.cache.tasks import TaskCache
from rp_client.core.pilot import PilotRecord
from rp_client.core.sweep import ChunkRecord
from rp_client.core.task import TaskRecord
from rp_client.engine.callbacks import Registry, told
from rp_client.engine.tracker import Change, Tracker
from rp_client.flow.no_pilot import PilotWatch
from rp_client.flow.task_flow import TaskFlow
from rp_client.scheduler.base import TaskScheduler
from rp_client.scheduler.component import TaskScheduling
from rp_client.scheduler.round_robin import RoundRobin
from rp_client.stager.input import TaskStagingInput
from rp_client.stager.output import TaskStagingOutput


class Site:
    """The components of a task manager, joined; nothing happens unless the test says so."""

    def __init__(self, base: Path, scheduler: TaskScheduler | None = None) -> None:
        self.base = base
        (base / 'client').mkdir()
        self.engine = Engine()
        self.connection = self.engine.connection
        self.later = Later()
        self.events = Events()
        self.tasks: dict[str, TaskRecord] = {}
        self.waiting: list[int] = []
        self.lookups = Later()
        registry = Registry({TASK_STATE: told('task')})
        registry.add(self._told, TASK_STATE)
        self.states: dict[str, list[str]] = {}
        self.opened = ExitStack()
        self._claims: list[Claims] = []
        tracker = Tracker(states.TASK, TASK_STATE, registry, self)   # type: ignore[arg-type]
        self.board = tracker.board
        self.open_chunk: Callable[[ChunkRecord], list[TaskRecord]] = lambda chunk: []
        scheduling = TaskScheduling('0000', self.events, tracker.advance, scheduler or RoundRobin(), self.tasks,
                                    self.waiting.append)
        cache = TaskCache(str(base), str(base), self.lookups, lambda: ResultStore(base / 'cache'),   # type: ignore
                          tuple, self.claims, lambda hits, missed: self.flow.on_looked_up(hits, missed))
        self.flow = TaskFlow(
            'tmgr.0000', self.engine, tracker, self.events, scheduling,   # type: ignore[arg-type]
            TaskStagingInput('0000', self.events, tracker.advance, self.later,
                             lambda ready, failed: self.flow.on_input(ready, failed)),
            TaskStagingOutput('0000', self.events, tracker.advance, self.later,
                              lambda finished: self.flow.on_output(finished), cache.keep), cache,
            PilotWatch('tmgr.0000', self.engine.loop, self.board, scheduling,   # type: ignore[arg-type]
                       lambda uid: self.tasks[uid].pilot is None, 60.0),
            lambda chunk: self.open_chunk(chunk), lambda chunk: [])

    def claims(self) -> Claims:
        if not self._claims:
            self._claims.append(self.opened.enter_context(closing(Claims(self.base))))
        return self._claims[0]

    def pilot(self, uid: str = 'pilot.0000', state: str = states.PMGR_ACTIVE, *, add: bool = True) -> PilotRecord:
        """A pilot in that state, which tasks can be bound to."""
        pilot = a_pilot(uid, self.base)
        pilot.state = state
        if add:
            self.flow.add_pilots([pilot])
        return pilot

    def sized(self, uid: str, cores: int, state: str = states.PMGR_ACTIVE) -> PilotRecord:
        """A pilot of one node with so many cores."""
        pilot = self.pilot(uid, state, add=False)
        devices = [{'index': index, 'occupation': 0.0} for index in range(cores)]
        pilot.learn({'resource_details': {'node_list': [{'cores': devices, 'gpus': [], 'mem': 0, 'lfs': 0}]}})
        self.flow.add_pilots([pilot])
        return pilot

    def make(self, *uids: str, **description: Any) -> list[TaskRecord]:
        tasks = [a_task(uid, Manager(), **description) for uid in uids]
        self.tasks.update((task.uid, task) for task in tasks)
        return tasks

    def submit(self, *uids: str, **description: Any) -> list[TaskRecord]:
        """Tasks that are as far as they get without their files being moved."""
        tasks = self.make(*uids, **description)
        self.flow.submit(tasks, Future())
        self.engine.loop.turn()
        return tasks

    def submit_many(self, count: int) -> list[TaskRecord]:
        return self.submit(*(f'task.{number:06d}' for number in range(count)))

    def report(self, task: TaskRecord, state: str, **info: Any) -> None:
        """Have the agent say something about a task."""
        self.flow.update([Change(task, state, info or None)])

    def end(self, pilot: PilotRecord, state: str = states.FAILED, reason: str = 'it was hit by a truck',
            dead_end: str | None = None) -> None:
        """End a pilot as its manager does."""
        pilot.state = state
        pilot.learn({'exception': reason, 'exception_detail': 'see there'} if state == states.FAILED
                     else {'reason': reason})
        self.flow.pilot_ended(pilot, list(self.tasks.values()), dead_end=dead_end)

    def check(self) -> None:
        """Turn the loop, and check where all tasks are, unless the flow was closed."""
        self.engine.loop.turn()
        if self.engine.on_room:
            self.flow.check(self.tasks.values())

    def sent(self) -> list[tuple[str, list[str]]]:
        """Pilots and the uids of each bulk that went to them."""
        return self.connection.given

    def forgotten(self) -> list[str]:
        """The tasks that the coordinator is to forget."""
        return self.connection.forgotten

    def updates(self) -> list[Update]:
        return [update for bulk in self.connection.updates for update in bulk]

    def call(self, callback: Callable[..., Any], *args: Any) -> None:
        """Takes the place of the thread for callbacks."""
        callback(*args)

    def call_each(self, callback: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> None:
        for args in calls:
            callback(*args)

    def _told(self, task: TaskRecord, state: str) -> None:
        self.states.setdefault(task.uid, []).append(state)
