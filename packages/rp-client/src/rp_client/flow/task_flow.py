"""The flow of a task manager's tasks through the client: to a pilot, to its agent, and back.

Runs in the thread of the engine. Components: scheduling > input staging > (hub, agent, hub) > output staging.

Each task is sent to the coordinator as soon as possible, so that an application that attaches finds it. A task that is
bound at once is sent with its pilot; one that waits for a pilot or for input staging is sent unbound, and bound later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.constants import RAPTOR_MASTER
from rp_api.coordination.contract import BULK, UNBOUND, KnownTask, Update
from rp_api.failures.kinds import CANCELED, DEPENDENCY, PILOT
from rp_api.failures.losses import DEATH, END, LOST, suspicion
from rp_api.reasons.wait import WAITS_FOR, no_master, read_wait
from rp_api.task_modes import RAPTOR_MODES
from rp_client.cache.tasks import Hit, TaskCache
from rp_client.core.outbox import Outbox, batches, uids_of
from rp_client.core.pilot import PilotRecord
from rp_client.core.sweep import ChunkRecord, RowRecord
from rp_client.core.task import HISTORY, RETURNED, TaskRecord
from rp_client.engine.tracker import Change, Tracker
from rp_client.flow.chunk_flow import ChunkFlow
from rp_client.flow.fates import BACK, Draining, Fate, fate, is_ended_by_user, is_returned, is_unstarted, may_move
from rp_client.flow.no_pilot import PilotWatch
from rp_client.scheduler.component import RELEASED, TaskScheduling, active_places
from rp_client.stager.input import TaskStagingInput
from rp_client.stager.output import TaskStagingOutput

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rp_client.engine.engine import Engine
    from rp_profiling.write.tracer import Tracer

REPORT_DELAY = 4.0
"""Seconds after which a task is reported whose RAPTOR master was not submitted."""

_log = logging.getLogger('radical.pilot.task_manager')
_raptor_log = logging.getLogger('radical.pilot.raptor')

_OF_PILOT = {'error': {'kind': PILOT}}
"""The information that a task has failed because its pilot has ended."""

_ACTIVE = states.PILOT.value(states.PMGR_ACTIVE)
_LEFT_AGENT = states.TASK.value(states.TMGR_STAGING_OUTPUT_PENDING)


class TaskFlow:
    """Connects the components of one task manager, and buffers tasks for the coordinator.

    `sent` counts the tasks that were sent. `members(chunk)` returns the tasks that are told that their chunk has ended.
    """

    def __init__(self, owner: str, engine: Engine, tracker: Tracker, tracer: Tracer, scheduling: TaskScheduling,
                 staging_input: TaskStagingInput, staging_output: TaskStagingOutput, cache: TaskCache,
                 pilot_watch: PilotWatch, open_chunk: Callable[[ChunkRecord], list[TaskRecord]],
                 members: Callable[[ChunkRecord], list[TaskRecord]]) -> None:
        self._owner = owner
        self._engine = engine
        self._tracker = tracker
        self._tracer = tracer
        self._scheduling = scheduling
        self._input = staging_input
        self._output = staging_output
        self._cache = cache
        self._caches = False   # whether there is a task with `cache`, or a RAPTOR master or worker
        self._waits: dict[str, str] = {}   # the last waits of these masters and workers
        self._pilot_watch = pilot_watch
        self._outbox = Outbox()
        self.sent = 0
        self._unaccepted: list[Future[None]] = []
        self._restored: list[TaskRecord] = []
        self._finished_before: list[Change] = []
        self._dead_end: str | None = None
        self._ended: dict[str, str] = {}
        self._missing_masters: set[str] = set()   # RAPTOR masters that were reported as not submitted
        self._cancelled: set[str] = set()   # tasks that agents were commanded to cancel
        self._draining = Draining()
        self._members = members
        self.chunks = ChunkFlow(engine, open_chunk, lambda: cache.size + scheduling.size + staging_input.size,
                                self._look_up)
        self._bound_before: dict[str, str] = {}   # places of restored tasks, and their pilots
        self.lead = scheduling.lead
        engine.on_room.append(self._pump)

    def submit(self, tasks: list[TaskRecord], accepted: Future[None]) -> None:
        """Accept new tasks; `accepted` gets a result when the coordinator has them."""
        uids = [task.uid for task in tasks]
        self._tracer.record('get', self._tracer.comp, msg=f'bulk size: {len(tasks)}')
        self._tracer.record_bulk('get', uids, states.NEW)
        self._tracer.record_bulk('advance', uids, states.TMGR_SCHEDULING_PENDING)
        self._tracker.advance(tasks, states.TMGR_SCHEDULING_PENDING)
        self._look_up(tasks)
        self._engine.loop.call_soon(self.await_acceptance, accepted)

    def _look_up(self, tasks: list[TaskRecord]) -> None:
        """Schedule new tasks, except for those with a cached result."""
        self._caches = self._caches or any(
            common.cache or common.mode in RAPTOR_MODES for common in {task.common for task in tasks})
        ready = self._cache.look_up(tasks) if self._caches else tasks
        self._schedule_soon(ready)
        if len(ready) < len(tasks):
            self._keep([task for task in tasks if task.common.cache])

    def submit_chunks(self, chunks: list[ChunkRecord], accepted: Future[None]) -> None:
        """Accept the chunks of a sweep, as `submit` does."""
        self._tracer.record('get', self._tracer.comp, msg=f'bulk size: {sum(chunk.size for chunk in chunks)}')
        self._tracker.advance(chunks, states.TMGR_SCHEDULING_PENDING)
        self._start_chunks(chunks, one_by_one=len(chunks) < self._scheduling.pilot_count)   # none stays idle
        self._engine.loop.call_soon(self.await_acceptance, accepted)

    def _start_chunks(self, chunks: list[ChunkRecord], *, one_by_one: bool = False) -> None:
        common = chunks[0].common
        if one_by_one or self._scheduling.binds_late or common.stages_input or common.cache:
            self._keep(list(chunks))
            self.chunks.add(chunks)
        else:
            self._schedule_soon(list(chunks))

    def await_acceptance(self, accepted: Future[None]) -> None:
        """Give `accepted` a result when the coordinator has all tasks submitted until now."""
        if self._outbox:
            self._unaccepted.append(accepted)
        else:
            self._engine.connection.when_settled(lambda: accepted.set_result(None))

    def _schedule_soon(self, tasks: list[TaskRecord]) -> None:
        # in small steps: the first tasks are sent while the last ones are still to be scheduled
        for first in range(0, len(tasks), BULK):
            self._engine.loop.call_soon(self._schedule, tasks[first:first + BULK])

    def _schedule(self, tasks: list[TaskRecord]) -> None:
        live = [task for task in tasks if task.state not in states.FINAL]
        if len(live) < len(tasks):
            self._scheduling.dropped(task for task in tasks if task.state in states.FINAL)
        self._pilot_watch.look()
        self._forward(self._scheduling.put(live))
        self._pilot_watch.look()
        self._keep([task for task in live if task.pilot is None])
        if self._ended:
            self._fail_those_for(self._ended, tasks)
            self._fail_hopeless()
        self._fail_orphans()
        if self._dead_end:
            self._fail_waiting()
        waiting = self._scheduling.without_master(live)
        if waiting:
            self._engine.loop.call_later(REPORT_DELAY, self._report_without_master, waiting)

    def _report_without_master(self, tasks: Sequence[TaskRecord]) -> None:
        """Log once for each RAPTOR master that was not submitted that a task waits for it."""
        for task in self._scheduling.without_master(tasks):
            raptor_id = task.common.raptor_id
            if raptor_id not in self._missing_masters:
                self._missing_masters.add(raptor_id)
                _log.warning('%s waits for %s', task.uid, no_master(raptor_id))

    @property
    def last_end(self) -> str:
        """How the task manager has lost its last pilot, in words; empty if it had none, or has one."""
        return self._pilot_watch.last

    def add_pilots(self, pilots: list[PilotRecord]) -> None:
        """Bind tasks to these pilots, too."""
        if pilots:
            self._dead_end = None
            self._cache.resume(active=True)
            for pilot in pilots:
                self._ask_for_return(pilot)
            self._draining.end(pilots)
            self._forward(self._scheduling.add_pilots(pilots))
            self._pilot_watch.look()

    def places_changed(self, pilot: PilotRecord) -> None:
        """Bind tasks to the present nodes or partitions of a pilot only."""
        self._ask_for_return(pilot)
        self._forward(self._scheduling.places_changed(pilot))

    def _ask_for_return(self, pilot: PilotRecord) -> None:
        """Command active agents to return tasks that they have not started when they end; see `Pilot.kept`."""
        for place in active_places(pilot) if self._scheduling.binds_late else ():
            self._engine.connection.command(place.uid, {'cmd': 'return_unstarted'})

    def remove_pilots(self, pilots: Sequence[PilotRecord], tasks: Callable[[], Iterable[TaskRecord]]) -> None:
        """Bind no more tasks to these pilots; those of pilots that have not been active run on others."""
        self._leave(pilots)
        waiting = [pilot for pilot in pilots if states.PILOT.value(pilot.state) < _ACTIVE]
        if waiting:
            places = self._draining.begin(waiting)
            self._take_back(self.chunks.recall([task for task in tasks() if task.place in places]), places)

    def _leave(self, pilots: Sequence[PilotRecord]) -> None:
        self._scheduling.remove_pilots([pilot.uid for pilot in pilots])
        self._pilot_watch.last = f'{pilots[-1].uid} was removed'
        self._pilot_watch.look()

    def drain_pilots(self, pilots: Sequence[PilotRecord], tasks: Iterable[TaskRecord], drained: Future[None]) -> None:
        """Remove pilots, and run their tasks on others that have not started and may move.

        `drained` gets a result when the others are final, except those that run until they are stopped.
        """
        places = self._draining.begin(pilots)
        self._forward(self._scheduling.bind_those_for(places))
        self._leave(pilots)
        there = [task for task in tasks if task.place in places and task.state not in states.FINAL]
        self._draining.wait(there, drained)
        self._request_return(self._take_back(self.chunks.recall(there), places))

    def _take_back(self, there: Iterable[TaskRecord], places: Collection[str]) -> dict[str, TaskRecord]:
        """Take tasks back from places, and return those that may move, but that agents may have."""
        moving = {task.uid: task for task in there if may_move(task) and states.TASK.value(task.state) < _LEFT_AGENT
                  and task.uid not in self._cancelled and not self._input.has(task.uid)}
        unsent = [task for pilot in self._outbox.bound() if pilot.uid in places
                  for task in self._outbox.take(pilot, moving)]
        for task in unsent:
            del moving[task.uid]
        self._again(unsent)
        uids = list(moving)
        for first in range(0, len(uids), BULK):
            self._engine.connection.withdraw(uids[first:first + BULK])
        return moving

    def _request_return(self, moving: Mapping[str, TaskRecord]) -> None:
        """Command agents to return tasks that they have not started."""
        by_place: dict[str, list[str]] = {}
        for uid, task in moving.items():
            by_place.setdefault(str(task.place), []).append(uid)
        for place, uids in by_place.items():
            for first in range(0, len(uids), BULK):
                self._engine.connection.command(place, {'cmd': 'return_tasks', 'uids': uids[first:first + BULK]})

    def update(self, updates: Sequence[Change]) -> None:
        """Apply the updates of agents."""
        for chunk in self.chunks.answers(updates) if self.chunks.used else ():
            self._chunk_is_back(chunk)
        if self._caches:
            self._cache.ending(updates)
        changes = self._tracker.apply(updates)
        if self._caches:
            for task in {task for task, _, info in updates if info and task.common.mode in RAPTOR_MODES}:
                log_wait(task, self._waits)
        self._returned([task for task, state, info in updates
                        if info and state in BACK and is_returned(task, state, info)])
        by_state = _by_state(changes)
        if self._caches and states.AGENT_EXECUTING in by_state:
            self._cache.started(by_state[states.AGENT_EXECUTING])
        if self._scheduling.counting:
            self._forward(self._scheduling.left([task.uid for state, tasks in by_state.items()
                                                 if states.TASK.value(state) >= RELEASED for task in tasks]))
        if states.TMGR_STAGING_OUTPUT_PENDING in by_state:
            self._stage_output([_left_agent(task, info) for task, state, info in changes
                                if state == states.TMGR_STAGING_OUTPUT_PENDING])
        if states.DONE in by_state:   # the agent reports DONE for tasks without output staging by the client
            uids = [task.uid for task in by_state[states.DONE]]
            self._output.tracer.record_bulk('advance', uids, states.TMGR_STAGING_OUTPUT)
        self._trace_final(by_state)
        if self.chunks.used:
            self.chunks.feed()

    def _chunk_is_back(self, chunk: ChunkRecord) -> None:
        """Handle a chunk that no agent has taken: its tasks were cancelled, or their pilot has ended or is drained."""
        pilot = chunk.pilot
        assert pilot is not None
        if chunk.uid in self._cancelled:
            self._end([chunk], states.CANCELED, {'exception': 'cancelled before its pilot started it'})
        elif pilot.state in states.FINAL:
            self._left_by(pilot, [chunk], [chunk.uid])
        else:
            self._again([chunk])

    def chunk_opened(self, chunk: ChunkRecord, tasks: list[TaskRecord]) -> None:
        """Handle the tasks of a chunk that were handled like one until now."""
        self._scheduling.forget([chunk.uid])
        self._outbox.forget([chunk.uid])
        self._draining.opened(chunk.uid, tasks)
        if self.chunks.was_asked(chunk):   # soon: a report on one of them is being applied
            self._engine.loop.call_soon(self._handle_opened, chunk, tasks)

    def _handle_opened(self, chunk: ChunkRecord, tasks: list[TaskRecord]) -> None:
        pilot = chunk.pilot
        assert pilot is not None
        live = [task for task in tasks if states.TASK.value(task.state) < _LEFT_AGENT]
        if chunk.uid in self._cancelled:
            self._cancelled.discard(chunk.uid)
            self.cancel(live)
        elif pilot.state in states.FINAL:
            self._left_by(pilot, live, ())
        else:
            self._request_return({task.uid: task for task in live if may_move(task)})

    def _returned(self, tasks: list[TaskRecord]) -> None:
        """Run tasks on other pilots that an agent has returned; those of RAPTOR when the fate of masters is known."""
        tasks = [task for task in tasks if not task.common.raptor_id]
        if not tasks:
            return
        cancelled = [task for task in tasks if task.uid in self._cancelled]
        self._end(cancelled, states.CANCELED, {'exception': 'cancelled before its pilot started it'})
        for place in {task.pilot for task in tasks if task.pilot and task.place not in self._draining.places}:
            self._scheduling.leave(place)
        self._again([task for task in tasks if task.state not in states.FINAL])

    def end_of_pilot(self, uid: str) -> str:
        """Return why a pilot, or partition, runs a task no more that it had."""
        return self._ended.get(uid) or f'{uid} has given it back'

    def restore(self, task: TaskRecord, known: KnownTask) -> None:
        """Restore a task from the coordinator's record; `resume` continues it."""
        if is_returned(task, known.state, known.info):
            task.pilot = None
        if task.pilot is not None:
            self._bound_before[task.pilot.uid] = task.pilot.whole.uid
        self._scheduling.know(task)
        self._caches = True
        self._cache.restore(task, known.told)
        if task.common.mode in RAPTOR_MODES:
            log_wait(task, self._waits)
        if task.state in states.FINAL:
            self._tracer.record('advance', task.uid, task.state)   # it may have ended without an application
            return
        if states.TASK.value(task.state) >= _LEFT_AGENT:
            self._finished_before.append(_left_agent(task, known.info))
        elif task.pilot is None:
            self._restored.append(task)

    def resume(self) -> None:
        """Resume restored tasks: stage the output of those that have run, and bind those that are unbound."""
        finished, self._finished_before = self._finished_before, []
        for first in range(0, len(finished), BULK):
            self._engine.loop.call_soon(self._stage_output, finished[first:first + BULK])
        restored, self._restored = self._restored, []
        self._cache.resume(active=self._scheduling.pilot_count > 0)
        self._draining.places.update(place for place, pilot in self._bound_before.items()
                                     if not self._scheduling.uses(pilot))
        self._look_up([task for task in restored if not isinstance(task, ChunkRecord)])
        for chunk in restored:
            if isinstance(chunk, ChunkRecord):
                self._start_chunks([chunk])

    def cancel(self, tasks: Iterable[TaskRecord]) -> None:
        """Cancel tasks that are not final, wherever they are."""
        live = {task.uid: task for task in tasks if task.state not in states.FINAL}
        self._open_for(live.values())
        at_pilots = [task for task in live.values() if isinstance(task, ChunkRecord) and task.pilot and task.stored]
        self._cancelled.update([task.uid for task in at_pilots])
        live = {task.uid: task for task in self.chunks.recall(live.values())}
        here = {task.uid: task for task in live.values() if task.pilot is None}
        self._scheduling.forget(here)
        for pilot in self._outbox.bound():   # unbound tasks are sent in any case, with their final state
            here |= {task.uid: task for task in self._outbox.take(pilot, live)}
        self._end(list(here.values()), states.CANCELED, {'exception': 'cancelled before it was sent to a pilot'})
        self._keep(list(here.values()))   # agents may follow them
        for uid in here:
            del live[uid]
        self._end(self._input.cancel(live), states.CANCELED, {'exception': 'cancelled while its input was staged'})
        commands: dict[str, list[str]] = {}
        for uid, task in live.items():
            if task.place and task.state not in states.FINAL:
                commands.setdefault(task.place, []).append(uid)
        for place, uids in commands.items():
            self._cancelled.update(uids)
            self._engine.connection.command(place, {'cmd': 'cancel_tasks', 'uids': uids})
        self._pump()

    def _open_for(self, tasks: Iterable[TaskRecord]) -> None:
        """Open the chunks that are not bound and have one of these tasks, which is handled apart from the others."""
        parts = [task for task in tasks if isinstance(task, RowRecord) and task.chunk.passed_on]
        for task in parts:
            task.follow()
        chunks = {task.chunk.uid: task.chunk for task in parts if task.chunk.pilot is None}
        for chunk in chunks.values():
            self._look_up(self.chunks.open_chunk(chunk))

    def forget(self, uids: Sequence[str]) -> None:
        """Remove final tasks from the coordinator."""
        self._outbox.forget(uids)
        self._tracker.forget(frozenset(uids))
        for first in range(0, len(uids), BULK):
            self._engine.connection.forget_tasks(uids[first:first + BULK])
        self._pump()

    def store_results(self) -> None:
        """Store the results of cached tasks that have ended; called in any thread."""
        self._cache.flush()

    def pilot_ended(self, pilot: PilotRecord, tasks: Iterable[TaskRecord], *, dead_end: str | None) -> None:
        """Handle the tasks of a pilot that became final; `dead_end`: why no other pilot will run waiting tasks."""
        unsent = {task.uid for task in self._outbox.take(pilot)}
        self._ended[pilot.uid] = _reason(pilot)
        there = [task for task in tasks if task.place == pilot.uid and states.TASK.value(task.state) < _LEFT_AGENT]
        self._left_by(pilot, self.chunks.recall(there), unsent)
        self._forward(self._scheduling.places_changed(pilot))
        self._pilot_watch.last = f'{pilot.uid} is {pilot.state}: {_reason(pilot)}'
        self._pilot_watch.look()
        self._fail_those_for([pilot.uid], self._scheduling.waiting())
        self._fail_hopeless()
        if dead_end:
            self._dead_end = dead_end
            self._fail_waiting()
        self._pump()

    def check(self, tasks: Iterable[TaskRecord]) -> None:
        """Raise AssertionError if a task is at no place, or at two, while the event loop has nothing to do."""
        bound, waiting = self._outbox.check(), {task.uid for task in self._scheduling.waiting()}
        live = [task for task in tasks if task.state not in states.FINAL]
        assert self._cancelled | bound | waiting <= {task.uid for task in live}
        looked_up = 0
        for task in live:
            there = task.pilot is not None and task.stored and task.uid not in bound and not self._input.has(task.uid)
            places = (task.uid in waiting) + (task.uid in bound) + self._input.has(task.uid) + there
            assert places <= 1, task
            looked_up += not places and states.TASK.value(task.state) < _LEFT_AGENT
            assert (task.uid in waiting) <= (task.pilot is None), task
        assert looked_up <= self._cache.size   # some may have been cancelled meanwhile
        assert self._scheduling.size == len(waiting)

    def _left_by(self, pilot: PilotRecord, tasks: list[TaskRecord], unsent: Collection[str]) -> None:
        """Schedule tasks of a pilot again that it has not started, or that may be restarted, and end the others."""
        self._scheduling.remove_pilots([pilot.uid])   # the pilot's end may not have been processed yet
        cancelled = [task for task in tasks if task.uid in self._cancelled]
        self._end(cancelled, states.CANCELED, {'exception': f'cancelled, and {pilot.uid} has ended'})
        self._keep(cancelled)   # agents may follow them
        tasks = [task for task in tasks if task.state not in states.FINAL]
        theirs = [task for task in tasks if task.common.raptor_id]
        self._part_with(pilot, [task for task in tasks if not task.common.raptor_id] if theirs else tasks, unsent)
        self._part_with(pilot, theirs, unsent)   # now the fate of their masters is known

    def _part_with(self, pilot: PilotRecord, tasks: list[TaskRecord], unsent: Collection[str]) -> None:
        fates: dict[Fate, list[TaskRecord]] = {each: [] for each in Fate}
        for task in tasks:
            fates[self._fate(task, pilot, unsent)].append(task)
        reason = _reason(pilot)
        lost, again, suspects, ended = (fates[each] for each in (Fate.LOST, Fate.AGAIN, Fate.SUSPECT, Fate.ENDED))
        for task in lost:
            task.lose(pilot.uid, reason, END if pilot.announced else DEATH)
        self._report([Update(task.uid, states.AGENT_EXECUTING, {
            HISTORY: task.failures, RETURNED: pilot.uid}) for task in lost if task.stored])
        for task in again:
            if not isinstance(task, ChunkRecord):
                task.learn({RETURNED: pilot.uid})
        # tasks in input staging come here again when it is complete
        self._again([task for task in (*lost, *again) if not self._input.has(task.uid)])
        for task in suspects:
            sentence = suspicion(task.uid, task.failures, reason)
            self._end([task], states.FAILED, {'exception': sentence, 'exception_detail': pilot.exception_detail,
                                              'error': {'kind': PILOT, 'sentence': sentence, LOST: DEATH}})
        state = states.CANCELED if is_ended_by_user(pilot) else states.FAILED
        self._end(ended, state, {'exception': f'{pilot.uid} ended before the task did: {reason}',
                                 'exception_detail': pilot.exception_detail,
                                 'error': {'kind': CANCELED if state == states.CANCELED else PILOT}})
        self._keep([*suspects, *ended])   # agents may follow them

    def _fate(self, task: TaskRecord, pilot: PilotRecord, unsent: Collection[str]) -> Fate:
        common = task.common
        moves = not common.pilot and (not common.raptor_id or self._scheduling.has_master(task))
        if is_ended_by_user(pilot) and not self._scheduling.binds_late and pilot.uid not in self._draining.places:
            return Fate.ENDED
        return fate(task, pilot, moves=moves, unstarted=is_unstarted(
            task, pilot, unsent=task.uid in unsent or self._input.has(task.uid)))

    def _report(self, updates: Sequence[Update]) -> None:
        """Send updates of tasks to the coordinator."""
        for first in range(0, len(updates), BULK):
            self._engine.connection.update_tasks(updates[first:first + BULK])

    def _again(self, tasks: list[TaskRecord]) -> None:
        self._scheduling.returned([task.uid for task in tasks])
        for task in tasks:
            task.pilot = None
        self._draining.left(tasks)
        self._schedule_soon(tasks)

    def end_all(self, tasks: Iterable[TaskRecord], reason: str) -> None:
        """Set all tasks that are not final to CANCELED, without commands to agents."""
        live = [task for task in tasks if task.state not in states.FINAL]
        self._scheduling.forget([task.uid for task in live if task.pilot is None])
        self._end(live, states.CANCELED, {'exception': reason})

    def close(self) -> None:
        """Close the components, without ending tasks."""
        self._engine.on_room.remove(self._pump)
        self._draining.close()
        self._pilot_watch.close()
        for component in (self._scheduling, self._input, self._output, self._cache):
            component.close()

    def _fail_those_for(self, pilots: Collection[str], tasks: Iterable[TaskRecord]) -> None:
        """Fail tasks that wait for pilots that have ended."""
        wanted = {task.uid: self._scheduling.wanted_pilot(task.uid) for task in tasks}
        for task in self._scheduling.forget([uid for uid, pilot in wanted.items() if pilot in pilots]):
            pilot = wanted[task.uid]
            self._end([task], states.FAILED, {'exception': f'{pilot}, which the task requests, has ended: '
                                                           f'{self._ended[pilot]}', **_OF_PILOT})

    def _fail_hopeless(self) -> None:
        """Fail tasks that wait for partitions that have ended."""
        for task, partition in self._scheduling.hopeless():
            self._end([task], states.FAILED, {'exception': f'{partition}, which the task requests, has ended',
                                              **_OF_PILOT})

    def _fail_orphans(self) -> None:
        """Fail tasks that wait for a RAPTOR master that ended without a pilot."""
        for task, sentence in self._scheduling.orphans():
            self._end([task], states.FAILED, {'exception': sentence, 'error': {'kind': DEPENDENCY}})

    def _fail_waiting(self) -> None:
        waiting = self._scheduling.forget([task.uid for task in self._scheduling.waiting()])
        self._end(waiting, states.FAILED, {'exception': self._dead_end, **_OF_PILOT})

    def _keep(self, tasks: list[TaskRecord]) -> None:
        """Send tasks that are not bound yet to the coordinator."""
        if self._outbox.keep(tasks):
            self._pump()

    def _forward(self, bound: list[TaskRecord]) -> None:
        """Send bound tasks to their pilots, those with input staging when it is complete."""
        if bound:
            ready, delayed = self._input.put(bound)
            self._keep(delayed)
            self._post(ready)

    def on_input(self, ready: list[TaskRecord], failed: list[Change]) -> None:
        """Send tasks whose input staging is complete, and end others."""
        for task, state, info in failed:
            self._end([task], state, info or {})
        self._post(ready)

    def _post(self, tasks: list[TaskRecord]) -> None:
        for pilot, row in groupby(tasks, attrgetter('pilot')):
            mine = list(row)
            if pilot.state in states.FINAL:
                self._left_by(pilot, mine, [task.uid for task in mine])
                continue
            if pilot.uid in self._draining.places:
                self._again([task for task in mine if may_move(task)])
                mine = [task for task in mine if not may_move(task)]
            self._outbox.add(pilot, mine)
        self._pump()

    def _pump(self) -> None:
        """Send as many tasks as the connection accepts, to all pilots in turn."""
        while self._outbox and self._engine.connection.room:
            pilot, tasks = self._outbox.next()
            if tasks:
                self._send(pilot, tasks)
        if self._unaccepted and not self._outbox:
            unaccepted, self._unaccepted = self._unaccepted, []
            for accepted in unaccepted:
                self.await_acceptance(accepted)

    def _send(self, pilot: PilotRecord | None, tasks: list[TaskRecord]) -> None:
        """Send tasks, bound to a pilot or unbound; for those that the coordinator has, only the binding."""
        connection = self._engine.connection
        if isinstance(tasks[0], ChunkRecord) and not tasks[0].stored:
            tasks[0].whole = connection.keeps_chunks
        for batch in batches([task for task in tasks if not task.stored]):
            connection.insert_batch(pilot.uid if pilot else UNBOUND, batch, self._owner)
        kept = [uid for task in tasks if task.stored for uid in uids_of(task)]
        if kept and pilot:
            histories = {task.uid: history for task in tasks if task.stored and (history := task.failures)}
            if histories:   # before the tasks, whose attempts the agent counts
                connection.command(pilot.uid, {'cmd': 'history', 'tasks': histories})
            connection.bind_tasks(pilot.uid, kept)
        for task in tasks:
            task.stored = True
            task.attempts += pilot is not None
        if pilot is None and self.chunks.used:
            self.chunks.feed()
        self.sent += len(tasks)
        self._tracer.record('put', self._tracer.comp, msg=f'bulk size: {len(tasks)}')
        ended = [Update(uid, task.state, task.info)   # all of it: those with a cached result have one
                 for task in tasks if task.state in states.FINAL for uid in uids_of(task)] if pilot is None else []
        if ended:   # they ended before they were sent
            connection.update_tasks(ended)

    def _stage_output(self, finished: list[Change]) -> None:
        if ready := self._output.put(finished):
            self.on_output(ready)

    def on_output(self, finished: list[Change]) -> None:
        """End tasks whose output staging has ended."""
        real = self._tracker.apply(finished)
        self._trace_final(_by_state(real))
        if real:   # for failures with their info, which may have its origin in the client
            self._engine.connection.update_tasks(
                [Update(task.uid, state, None if state == states.DONE else task.info) for task, state, _ in real])

    def _end(self, tasks: Sequence[TaskRecord], state: str, info: Mapping[str, Any]) -> None:
        chunks = [task for task in tasks if isinstance(task, ChunkRecord)]
        if chunks and len(tasks) > 1:   # one after the other: they may have very many tasks
            for chunk in chunks:
                self._end([chunk], state, info)
            tasks = [task for task in tasks if not isinstance(task, ChunkRecord)]
            chunks = []
        members = [member for chunk in chunks for member in self._members(chunk)]
        changes = self._tracker.apply([Change(task, state, info) for task in (*members, *tasks)])
        self._trace_final(_by_state(changes))
        real = changes if not members else [change for change in changes if not _is_part(change.entity)]
        if self._scheduling.counting:
            self._forward(self._scheduling.left([task.uid for task, _, _ in real]))
        sent = [Update(uid, state, {**info, 'reached': task.reached}) for task, _, _ in real if task.stored
                for uid in uids_of(task)]
        self._report(sent)
        if any(task.common.mode == RAPTOR_MASTER for task, _, _ in real):
            self._fail_orphans()
        if self.chunks.used:
            self.chunks.feed()

    def on_looked_up(self, hits: list[Hit], missed: list[TaskRecord]) -> None:
        """End tasks that have cached results, and schedule the others."""
        self._tracer.record_bulk('cache_hit', [task.uid for task, _ in hits])
        real = self._tracker.apply([Change(task, states.DONE, info) for task, info in hits])
        self._trace_final(_by_state(real))
        sent = [Update(task.uid, state, info) for task, state, info in real if task.stored]
        if sent:   # the others are sent with their results
            self._engine.connection.update_tasks(sent)
        if self.chunks.used:
            self.chunks.feed()
        self._schedule_soon(missed)

    def _trace_final(self, reached: Mapping[str, list[TaskRecord]]) -> None:
        for state in states.FINAL:
            if state in reached:
                uids = [task.uid for task in reached[state]]
                self._tracer.record_bulk('advance', [task.uid for task in reached[state] if task.traced], state)
                if self._output.traces_steps:
                    self._output.tracer.record_bulk('drop', uids, state)
                if self._caches:
                    self._cache.ended(reached[state], state)
                if self._draining.awaited:
                    self._draining.left(reached[state])
                if self._cancelled:
                    self._cancelled.difference_update(uids)


def _left_agent(task: TaskRecord, info: Mapping[str, Any] | None) -> Change:
    """Return a task that has left its agent, with the final state that the agent reported."""
    target = (info or {}).get('target_state', states.DONE)
    if target in states.FINAL:
        return Change(task, target)
    return Change(task, states.FAILED, {'exception': f'its agent reported {target!r:.80} as its final state'})


def log_wait(task: TaskRecord, logged: dict[str, str]) -> None:
    """Log that a master or worker waits for something that may never come, unless that was the last reason logged."""
    wait = None if task.state in states.FINAL else read_wait(task.get(WAITS_FOR))
    text = '' if wait is None else wait.text
    if text and text != logged.get(task.uid):
        _raptor_log.warning('%s waits for %s', task.uid, text)
    logged[task.uid] = text


def _by_state(changes: Sequence[Change]) -> dict[str, list[TaskRecord]]:
    """Return the tasks by the states that they have reached."""
    found: dict[str, list[TaskRecord]] = {}
    for state, row in groupby(changes, itemgetter(1)):
        found.setdefault(state, []).extend([task for task, _, _ in row])
    return found


def _reason(pilot: PilotRecord) -> str:
    """Return why a pilot has ended."""
    return pilot.exception or (pilot.log[-1] if pilot.log else f'{pilot.uid} is {pilot.state}')


def _is_part(task: TaskRecord) -> bool:
    """Return whether the end of a task is that of its chunk."""
    return isinstance(task, RowRecord) and not task.chunk.opened
