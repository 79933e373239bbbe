"""The way of a task manager's tasks through the client: to a pilot, to its agent, and back.

Runs in the thread of the engine. Components: scheduling > input staging > (hub, agent, hub) > output staging.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.coordination.contract import BULK, Submission, Update
from rp_client.pilot import Pilot
from rp_client.scheduler.component import TaskScheduling
from rp_client.stager.input import TaskStagingInput
from rp_client.stager.output import Finished, TaskStagingOutput
from rp_client.task import Task
from rp_client.tracker import Change, Tracker

if TYPE_CHECKING:
    from rp_client.engine import Engine
    from rp_profiling.tracer import Tracer

_LEFT_AGENT = states.TASK.value(states.TMGR_STAGING_OUTPUT_PENDING)


class TaskFlow:
    """Wires the components of one task manager, and keeps what is on its way to the hub."""

    def __init__(self, engine: Engine, tracker: Tracker, tracer: Tracer, scheduling: TaskScheduling,
                 staging_input: TaskStagingInput, staging_output: TaskStagingOutput) -> None:
        self._engine = engine
        self._tracker = tracker
        self._tracer = tracer
        self._scheduling = scheduling
        self._input = staging_input
        self._output = staging_output
        self._outbox: dict[Pilot, dict[str, Task]] = {}
        self._dead_end: str | None = None
        self._ended: dict[str, str] = {}
        for component in (scheduling, staging_input, staging_output):
            component.advanced = self._advanced
        scheduling.output = staging_input.put
        staging_input.output = self._post
        staging_input.failed = self._failed
        staging_output.output = self._finished
        engine.on_room.append(self._pump)

    def submit(self, tasks: list[Task]) -> None:
        """Take new tasks."""
        uids = [task.uid for task in tasks]
        self._tracer.record('get', self._tracer.comp, msg=f'bulk size: {len(tasks)}')
        self._tracer.record_bulk('get', uids, states.NEW)
        self._tracer.record_bulk('advance', uids, states.TMGR_SCHEDULING_PENDING)
        self._advanced(tasks, states.TMGR_SCHEDULING_PENDING)
        # small steps: the first tasks are on their way while the last ones are still looked at
        for first in range(0, len(tasks), BULK):
            self._engine.loop.call_soon(self._schedule, tasks[first:first + BULK])

    def _schedule(self, tasks: list[Task]) -> None:
        self._scheduling.put([task for task in tasks if task.state not in states.FINAL])
        if self._ended:
            self._fail_those_for(self._ended, tasks)
        if self._dead_end:
            self._fail_waiting()

    def add_pilots(self, pilots: list[Pilot]) -> None:
        """Bind tasks to these pilots from now on."""
        if pilots:
            self._dead_end = None
            self._scheduling.add_pilots(pilots)

    def remove_pilots(self, uids: Sequence[str]) -> None:
        """Bind no more tasks to these pilots."""
        self._scheduling.remove_pilots(uids)

    def update(self, updates: Iterable[tuple[Task, Update]]) -> None:
        """Take over what agents have reported about tasks."""
        changes = self._tracker.apply([Change(task, state, info) for task, (_, state, info) in updates])
        finished = []
        for task, state, info in changes:
            if state == states.TMGR_STAGING_OUTPUT_PENDING:
                finished.append(Finished(task, (info or {}).get('target_state', states.DONE), info or {}))
        if finished:
            self._output.put(finished)

    def cancel(self, tasks: Iterable[Task]) -> None:
        """Cancel tasks, wherever they are; final ones are left alone."""
        live = {task.uid: task for task in tasks if task.state not in states.FINAL}
        here = [task for task in live.values() if task.state == states.TMGR_SCHEDULING_PENDING]
        here += self._scheduling.forget(live)
        here += [task for box in self._outbox.values() for task in _take(box, live)]
        self._end(here, states.CANCELED, {'exception': 'cancelled before it was sent to a pilot'})
        for task in here:
            del live[task.uid]
        self._input.cancel(live)
        commands: dict[str, list[str]] = {}
        for uid, task in live.items():
            if task.pilot and task.state not in states.FINAL:
                commands.setdefault(task.pilot, []).append(uid)
        for pilot, uids in commands.items():
            self._engine.connection.command(pilot, {'cmd': 'cancel_tasks', 'uids': uids})

    def pilot_ended(self, pilot: Pilot, tasks: Iterable[Task], *, dead_end: str | None) -> None:
        """End the tasks that a final pilot leaves behind; `dead_end`: why no other pilot can take those that wait."""
        self._scheduling.remove_pilots([pilot.uid])
        self._outbox.pop(pilot, None)
        left = [task for task in tasks
                if task.pilot == pilot.uid and states.TASK.value(task.state) < _LEFT_AGENT]
        state = states.CANCELED if pilot.state == states.CANCELED else states.FAILED
        reason = pilot.exception or (pilot.log[-1] if pilot.log else f'{pilot.uid} is {pilot.state}')
        self._end(left, state, {'exception': f'{pilot.uid} ended before the task did: {reason}',
                                'exception_detail': pilot.exception_detail})
        self._ended[pilot.uid] = reason
        self._fail_those_for([pilot.uid], self._scheduling.waiting())
        if dead_end:
            self._dead_end = dead_end
            self._fail_waiting()

    def end_all(self, tasks: Iterable[Task], reason: str) -> None:
        """Cancel, without asking anybody, whatever is not final."""
        self._end([task for task in tasks if task.state not in states.FINAL], states.CANCELED, {'exception': reason})

    def close(self) -> None:
        """End the components."""
        self._engine.on_room.remove(self._pump)
        for component in (self._scheduling, self._input, self._output):
            component.close()

    def _fail_those_for(self, pilots: Collection[str], tasks: Iterable[Task]) -> None:
        """End tasks that wait for pilots which have ended."""
        wanted = {task.uid: task.wanted_pilot for task in tasks}
        for task in self._scheduling.forget([uid for uid, pilot in wanted.items() if pilot in pilots]):
            pilot = wanted[task.uid]
            self._end([task], states.FAILED, {'exception': f'{pilot}, which the task asks for, has ended: '
                                                           f'{self._ended[pilot]}'})

    def _fail_waiting(self) -> None:
        waiting = self._scheduling.forget([task.uid for task in self._scheduling.waiting()])
        self._end(waiting, states.FAILED, {'exception': self._dead_end})

    def _advanced(self, tasks: Sequence[Task], state: str) -> None:
        self._tracker.apply([Change(task, state) for task in tasks])

    def _post(self, tasks: list[Task]) -> None:
        for task in tasks:
            assert task.bound is not None
            if task.bound.state in states.FINAL:
                self._end([task], states.FAILED, {'exception': f'{task.pilot} is {task.bound.state} already'})
            else:
                self._outbox.setdefault(task.bound, {})[task.uid] = task
        self._pump()

    def _pump(self) -> None:
        """Send what the connection has room for, to all pilots in turn."""
        connection = self._engine.connection
        while self._outbox and connection.room:
            pilot, box = next(iter(self._outbox.items()))
            del self._outbox[pilot]
            tasks = [box.pop(uid) for uid in list(islice(box, BULK))]
            if box:
                self._outbox[pilot] = box   # behind the others
            if tasks:
                connection.insert_tasks(pilot.uid, [Submission(task.uid, task.sparse()) for task in tasks])

    def _failed(self, task: Task, state: str, info: dict[str, Any]) -> None:
        self._end([task], state, info)

    def _finished(self, finished: list[Finished]) -> None:
        real = self._tracker.apply([Change(task, state, info) for task, state, info in finished])
        self._trace_final(real)
        if real:   # of failures the hub may not know the reason yet: they may have happened here
            self._engine.connection.update_tasks([Update(task.uid, state, info if state == states.FAILED else None)
                                                  for task, state, info in real])

    def _end(self, tasks: Sequence[Task], state: str, info: dict[str, Any]) -> None:
        real = self._tracker.apply([Change(task, state, info) for task in tasks])
        self._trace_final(real)
        sent = [Update(task.uid, state, info) for task, _, _ in real if task.pilot]
        if sent:
            self._engine.connection.update_tasks(sent)

    def _trace_final(self, changes: Sequence[Change]) -> None:
        for state in states.FINAL:
            uids = [task.uid for task, reached, _ in changes if reached == state]
            if uids:
                self._tracer.record_bulk('advance', uids, state)


def _take(box: dict[str, Task], wanted: dict[str, Task]) -> list[Task]:
    return [box.pop(uid) for uid in wanted if uid in box]
