"""The owner of the tasks of one manager: submits them, binds them to pilots, and follows their states."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from rp_api import constants, states
from rp_api.batch import ROWS, task_uid, unpacked
from rp_api.constants import TASK_STATE, WAIT_QUEUE_SIZE
from rp_api.coordination.contract import BULK, KnownTask, Update
from rp_api.errors import CoordinationError
from rp_api.loop.offload import Helpers
from rp_api.system import heap
from rp_api.task_modes import SERVICE_MODES
from rp_api.wire import codec
from rp_client.cache.tasks import TaskCache
from rp_client.common_description import CommonDescription, counts
from rp_client.core.pilot import PilotRecord
from rp_client.core.sweep import ChunkRecord, RowRecord, SweepRecord
from rp_client.core.task import TaskRecord
from rp_client.engine.callbacks import Entry, Registry, arguments, told
from rp_client.engine.tracker import Change, Tracker
from rp_client.flow.no_pilot import PilotWatch
from rp_client.flow.task_flow import TaskFlow
from rp_client.flow.task_store import TaskStore
from rp_client.scheduler.base import TaskScheduler
from rp_client.scheduler.component import TaskScheduling, find_scheduler
from rp_client.service.owner import Owner, no_handle, owner_behind
from rp_client.stager.input import TaskStagingInput
from rp_client.stager.output import TaskStagingOutput

_new = tuple.__new__   # makes a named tuple in half the time of a call of its class, which counts for many tasks

NO_PILOT_TIMEOUT = 60.0
"""Seconds without a pilot after which waiting for tasks raises `NoPilot`."""

SWEEP_PERIOD, SWEEP_PAUSE = 4.0, 0.05
"""Seconds between sweeps of the task store, and while they find tasks."""

ACCEPTANCE = 5.0
"""Seconds that a submission waits for a coordinator that makes no progress."""


class TaskOwner:
    """Owns the tasks of one manager, in `tasks`, and knows the pilots that run them, by uid in `pilots`.

    `manager` is the handle of the manager, and `make(owner, record)` makes that of a task. A restored owner has its
    former `uid`.
    """

    def __init__(self, session: Owner, scheduler: str, no_pilot_timeout: float | None, uid: str = '',
                 manager: Any = None, make: Callable[[Any, Any], Any] = no_handle) -> None:
        self.scheduler = scheduler
        self._no_pilot_timeout = no_pilot_timeout
        task_scheduler = find_scheduler(scheduler)()
        self.session = session
        self.engine = session.engine
        self.manager = manager
        self.uid = session.register('tmgr', session.tmgrs, self, uid)
        self.pilots: dict[str, PilotRecord] = {}
        self.make = partial(make, self)
        self.tasks = TaskStore(f'{session.path}/{self.uid}.{os.getpid()}.tasks', self.make,
                               lambda chunk, tasks: self.flow.chunk_opened(chunk, tasks))
        self.callbacks = Registry({TASK_STATE: told('task'), WAIT_QUEUE_SIZE: ('task_manager', 'size')})
        self.tracker = Tracker(states.TASK, TASK_STATE, self.callbacks, self.engine.dispatcher, owner=self.uid,
                               handle=self.tasks.handle)
        session.uids.tasks.append(self.tasks)
        self._sweeping = self._found_dropped = False
        self.tracker.on_final = self._settled
        self.engine.acknowledger.follow(self.tracker)
        self.board = self.tracker.board
        self.closed = False
        self._tracer = session.make_tracer(self.uid)
        self.flow = self._make_flow(task_scheduler)
        self.engine.on_broken.append(self.board.broke)
        self._tracer.record('setup_done', uid=self.uid)
        if not uid:
            self.note()

    def counts(self) -> str:
        """Return how many tasks there are, and in which final states."""
        return counts('task', len(self.tasks), self._finals())

    @property
    def unfinished(self) -> int:
        """The number of tasks that are not final."""
        return len(self.tasks) - sum(self._finals().values())

    @property
    def waiting(self) -> int:
        """The number of tasks that are not final, without services, masters and workers."""
        return self.unfinished - sum(task.common.mode in SERVICE_MODES and task.state not in states.FINAL
                                     for task in self.tasks.in_memory())

    def states(self) -> Counter[str]:
        """Return how many tasks are running, and have ended in each final state, also if they were forgotten."""
        found = self._finals()
        found.update(self.tracker.gone)
        found[states.AGENT_EXECUTING] = [task.state for task in self.tasks.in_memory()].count(states.AGENT_EXECUTING)
        return found

    def _finals(self) -> Counter[str]:
        finals = Counter(self.tracker.finals)
        for sweep in list(self.tasks.sweeps.values()):
            finals.update(sweep.ended)
        return finals

    def note(self) -> None:
        """Store the manager with the coordinator, for an application that attaches to the session."""
        note = None if self.closed else {'scheduler': self.scheduler, 'pilots': list(self.pilots),
                                         'no_pilot_timeout': self._no_pilot_timeout}
        self.engine.call(self.engine.connection.note, self.uid, note)

    def find_master(self, uid: str) -> Any:
        """Return the handle of the RAPTOR master of that uid; None if it is unknown, or another task."""
        task = self.tasks.find(uid)
        master = task is not None and task.common.mode == constants.RAPTOR_MASTER
        return self.tasks.handle(task) if task is not None and master else None

    # called in the loop

    def update(self, updates: Sequence[Update]) -> None:
        """Apply the updates of agents, for tasks of any manager."""
        known = self.tasks.find_each([update[0] for update in updates])
        mine = [_new(Change, (task, state, info)) for task, (_, state, info) in zip(known, updates, strict=True)
                if task is not None]
        before = [task for task, _, _ in mine if task.state in states.FINAL]
        if mine:
            self.flow.update(mine)
        if before:   # the update may have added to their info
            self.tasks.changed(before)

    def _settled(self, tasks: Collection[TaskRecord]) -> None:
        if next(iter(tasks)).state == states.FAILED:   # all have ended alike
            for task in tasks:
                self.session.report.failures.add_task(task, *_counted(task))
        self.tasks.settled(tasks)
        if not self._sweeping:
            self._sweeping = True
            self.engine.loop.call_later(SWEEP_PERIOD, self._sweep)

    def _sweep(self) -> None:
        """Put tasks away that the application has dropped; the heap is trimmed when there are none any more."""
        if self.closed:
            return
        found = self.tasks.sweep()
        if self._found_dropped and not found:
            heap.trim()
        self._found_dropped = found
        self.engine.loop.call_later(SWEEP_PAUSE if found else SWEEP_PERIOD, self._sweep)

    def pilot_ended(self, pilot: PilotRecord, results: Sequence[Update] = ()) -> None:
        """Handle the tasks of a pilot that became final.

        `results` are the updates that its agent could not deliver; those of this manager's tasks go to the coordinator.
        """
        mine = [update for update in results if update.uid in self.tasks
                and self.tasks[update.uid].place == pilot.uid]
        for first in range(0, len(mine), BULK):
            self.engine.connection.update_tasks(mine[first:first + BULK])
        self.update(mine)
        self.flow.pilot_ended(pilot, self.tasks.in_memory(), dead_end=self._dead_end(pilot))

    def places_changed(self, pilot: PilotRecord) -> None:
        """Use the present nodes and partitions of a pilot."""
        if pilot.uid in self.pilots:
            self.flow.places_changed(pilot)

    def restore_pilots(self, pilots: Iterable[PilotRecord]) -> None:
        """Attach the pilots that the manager had."""
        for pilot in pilots:
            pilot.attach(self.uid)
            self.pilots[pilot.uid] = pilot

    def restore(self, known: KnownTask, pilot: PilotRecord | None) -> TaskRecord:
        """Restore a task, or a chunk of a sweep, from the coordinator's record."""
        if ROWS in known.description:
            return self._restore_chunk(known, pilot)
        task = self.tasks.find(known.uid)   # of a sweep, it was made with its chunk
        if task is None:
            task = TaskRecord(known.uid, CommonDescription(known.description, codec.pack(known.description),
                                                           known.submitted))
            self.tasks.add([task.uid], [task])
        task.restore(known, pilot)
        self.flow.restore(task, known)
        self.tracker.restored(task, known.told)
        if task.common.mode in SERVICE_MODES:
            self.session.uids.endless.add(task.uid)
        if task.state in states.FINAL:
            self.tasks.settled([task])
        return task

    def _restore_chunk(self, known: KnownTask, pilot: PilotRecord | None) -> TaskRecord:
        """Restore a chunk, and if it was opened, its tasks, whose records follow."""
        chunk = unpacked(known.description)
        common = {name: value for name, value in known.description.items() if name != ROWS}
        sweep = self.tasks.sweeps.get(chunk.sweep) or SweepRecord(chunk.sweep)
        task = ChunkRecord(CommonDescription({**common, **chunk.own_of(0)}, codec.pack(common), known.submitted), chunk,
                           sweep)
        task.restore(known, pilot)
        task.whole = True
        self.tracker.is_internal = is_chunk
        self.tasks.add_chunk(task)
        if known.state == states.AGENT_STAGING_INPUT:
            self.tasks.open(task)
        else:
            self.flow.restore(task, known)
            if task.state in states.FINAL:
                self.tasks.settled([task])
        return task

    def resume(self) -> None:
        """Resume the work on all restored tasks."""
        self.flow.add_pilots([pilot for pilot in self.pilots.values() if pilot.state not in states.FINAL])
        self.flow.resume()

    def release(self, entry: Entry, task: TaskRecord | None) -> None:
        """Pass the states that no application has seen to a new callback."""
        self.tracker.release(entry, task)
        self.engine.acknowledger.soon()

    def _members(self, chunk: ChunkRecord) -> list[TaskRecord]:
        """Return the tasks that are told that their chunk has ended."""
        return self.tasks.members(chunk, everything=bool(self.callbacks.select(TASK_STATE)))

    def add_to_flow(self, pilots: Sequence[PilotRecord]) -> None:
        self.flow.add_pilots([pilot for pilot in pilots if pilot.state not in states.FINAL])
        for pilot in pilots:
            if pilot.state in states.FINAL:
                self.pilot_ended(pilot)

    def _dead_end(self, pilot: PilotRecord) -> str | None:
        """Return why waiting tasks can never run, if the last pilot failed and `exit_on_error` is set."""
        if pilot.uid not in self.pilots:   # it was removed, so no task waits for it
            return None
        others = any(other.state not in states.FINAL for other in self.pilots.values())
        if others or not pilot.description.exit_on_error or pilot.state != states.FAILED:
            return None
        return f'no pilot is left: {pilot.uid} {pilot.state}: {pilot.exception}'

    def _wait_queue_changed(self, size: int) -> None:
        for callback, data, _ in self.callbacks.select(WAIT_QUEUE_SIZE):
            self.engine.dispatcher.call(callback, *arguments(self.manager, size, data=data))

    def _waits_for_pilot(self, uid: str) -> bool:
        """Return whether a task that is not final is bound to no pilot."""
        task = self.tasks.find(uid)
        return task is not None and is_unbound(task)

    def _make_flow(self, scheduler: TaskScheduler) -> TaskFlow:
        session, index = self.session, self.uid.rpartition('.')[2]
        offload, tracer, advance = self.engine.helpers.run, session.make_tracer, self.tracker.advance
        scheduling = TaskScheduling(index, tracer(f'tmgr_scheduling.{index}'), advance, scheduler, self.tasks,
                                    self._wait_queue_changed)
        cache = TaskCache(session.client_sandbox, session.path, Helpers(self.engine.loop), session.result_store,
                          lambda: list(self.pilots.values()), session.claims,
                          lambda hits, missed: flow.on_looked_up(hits, missed))
        staging_input = TaskStagingInput(index, tracer(f'tmgr_staging_input.{index}'), advance, offload,
                                         lambda ready, failed: flow.on_input(ready, failed))
        staging_output = TaskStagingOutput(index, tracer(f'tmgr_staging_output.{index}'), advance, offload,
                                           lambda finished: flow.on_output(finished), cache.keep)
        pilot_watch = PilotWatch(self.uid, self.engine.loop, self.board, scheduling, self._waits_for_pilot,
                                 self._no_pilot_timeout)
        flow = TaskFlow(self.uid, self.engine, self.tracker, self._tracer, scheduling, staging_input, staging_output,
                        cache, pilot_watch, self.tasks.open, self._members)
        return flow

    # the end

    def close(self) -> None:
        """Cancel all tasks, detach the pilots, and end the manager."""
        if self.closed or not self.engine.process.here:
            return
        self.closed = True
        if not self.engine.broken:
            self.engine.run(self._close)
        for pilot in self.pilots.values():
            pilot.tmgr = None

    def leave(self) -> None:
        """Leave the tasks running, as the session closes."""
        if not self.closed:
            self.closed = True
            if not self.engine.broken:
                with suppress(TimeoutError):   # tasks that the coordinator does not accept now are lost
                    self.engine.ask(self.flow.await_acceptance, ACCEPTANCE, lambda: self.flow.sent)
                self.engine.run(self._end_there)

    def _close(self) -> None:
        if self.session.closed:   # the session ends the pilots and the tasks on them
            self.flow.end_all(self.tasks.in_memory(), 'the session was closed')
        else:
            self.flow.cancel(self.tasks.in_memory())
            self.flow.end_all(self.tasks.in_memory(), f'{self.uid} was closed')
            self.note()
        self.flow.close()
        self._tracer.close()

    def _end_there(self) -> None:
        self.flow.close()
        self._tracer.close()
        self.board.broke(CoordinationError('it was closed, and its pilots keep running'))


def states_of(tmgr: Any) -> Counter[str]:
    """Return how many tasks of a manager, given its handle, are running, and have ended in each final state."""
    return owner_behind(tmgr).states()   # type: ignore[no-any-return]


def _counted(task: TaskRecord) -> tuple[str, int]:
    """Return the uid of a final task, or of the first one of a chunk, and how many tasks it stands for."""
    if isinstance(task, ChunkRecord):
        return task_uid(task.sweep.uid, task.first), 0 if task.opened else task.size
    return task.uid, 0 if isinstance(task, RowRecord) and not task.chunk.opened else 1


def is_unbound(task: TaskRecord) -> bool:
    """Return whether a task that is not final has no pilot."""
    return task.pilot is None and task.state not in states.FINAL


def is_chunk(task: TaskRecord) -> bool:
    """Return whether this is a chunk of a sweep."""
    return type(task) is ChunkRecord
