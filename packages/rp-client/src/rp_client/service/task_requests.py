"""Requests of an application to the owner of its tasks: submission, pilots to run them on, waits and futures."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from rp_api import states, units
from rp_api.description.task import TaskDescription
from rp_api.system import heap
from rp_client import ids
from rp_client.common_description import CommonDescription, listed
from rp_client.completion.task_future import TaskFuture
from rp_client.core.pilot import PilotRecord
from rp_client.core.sweep import ChunkRecord, SweepRecord
from rp_client.core.task import TaskRecord
from rp_client.engine.waiting import REFRESH, WAIT_MAX_S
from rp_client.flow.dependencies import Dependencies
from rp_client.flow.parameters import Parameters
from rp_client.flow.submission import Packing, pack_plain, pack_sweep, plain, verified
from rp_client.flow.task_store import HasState
from rp_client.service.tasks import ACCEPTANCE, TaskOwner, is_chunk, is_unbound

_log = logging.getLogger('radical.pilot.task_manager')

_WITHOUT_PILOT = states.TASK.value(states.TMGR_SCHEDULING)
"""Value of the last state that tasks reach without a pilot."""


class TaskRequests(TaskOwner):
    """Owns the tasks of a manager that an application uses; every method raises its errors in the caller's thread."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._drained: set[str] = set()
        self._futures: WeakValueDictionary[str, TaskFuture] = WeakValueDictionary()

    def check_process(self) -> None:
        """Raise `CoordinationError` in a fork of the application."""
        self.engine.process.check()

    def check_open(self) -> None:
        """Raise `RuntimeError` if the manager was closed."""
        self.check_process()
        if self.closed:
            raise RuntimeError(f'{self.uid} is closed')

    def add_pilots(self, wanted: Sequence[PilotRecord]) -> None:
        """Run the tasks on more pilots; see `TaskManager.add_pilots`."""
        known = dict(self.pilots)
        for pilot in wanted:
            if pilot.uid in known:
                raise ValueError(f'{pilot.uid} was added to {self.uid} already')
            if pilot.uid in self._drained:
                raise RuntimeError(f'{pilot.uid} was drained, and takes no more tasks of {self.uid}')
            known[pilot.uid] = pilot
        self._attach(wanted)
        self.pilots = known
        self.note()
        self.board.stalled(None)   # what is waited for from now on may get one
        self.engine.call(self.add_to_flow, wanted)

    def remove_pilots(self, uids: Sequence[str], *, drain: bool) -> None:
        """Bind no more tasks to pilots; see `TaskManager.remove_pilots`."""
        for uid in uids:
            if uid not in self.pilots:
                raise ValueError(f'pilot {uid} was not added to {self.uid}')
        pilots = [self.pilots.pop(uid) for uid in dict.fromkeys(uids)]
        for pilot in pilots:
            pilot.tmgr = None
        self.note()
        if drain:
            self._drained.update(uids)
            # a wait without an end would delay the handling of signals
            self.engine.ask(lambda drained: self.flow.drain_pilots(pilots, self.tasks.in_memory(), drained),
                            WAIT_MAX_S, time.monotonic)
        else:
            self.engine.call(self.flow.remove_pilots, pilots, self.tasks.in_memory)

    def _attach(self, pilots: Sequence[PilotRecord]) -> None:
        """Attach pilots to this manager, all or none."""
        for position, pilot in enumerate(pilots):
            try:
                pilot.attach(self.uid)
            except RuntimeError:
                for attached in pilots[:position]:
                    attached.tmgr = None
                raise

    # submission in the application's thread, which refuses all that can be refused

    def submit(self, descriptions: list[TaskDescription], form: ids.Form = ids.TASK, master: str = '') -> list[Any]:
        """Submit tasks, to a RAPTOR master if given; `form` is that of the uids of tasks without a uid."""
        self.check_open()
        uids = self.session.uids
        wanted = uids.of_tasks([
            ids.chosen(dict.get(description, 'uid') if isinstance(description, dict) else description.get('uid'))
            for description in descriptions], form)
        packing = Packing(master)
        dependencies = Dependencies(uids, wanted, descriptions)
        tasks = []
        with heap.uncollected():
            for position, (uid, given) in enumerate(zip(wanted, descriptions, strict=True)):
                description = dependencies.with_sources(
                    uid, given if isinstance(given, dict) else TaskDescription(given))
                common, own = packing.pack(description, uid)
                dependencies.add(position, description)
                tasks.append(TaskRecord(uid, common, own))
            handles = self._add(tasks, dependencies)
        self._start(tasks, dependencies)
        return handles

    def submit_workers(self, descriptions: Sequence[TaskDescription]) -> list[Any]:
        """Submit RAPTOR workers; see `TaskManager.submit_workers`."""
        tasks: list[TaskRecord] = []
        uids = self.session.uids
        copies = [verified(description, description.get('uid') or 'a worker') for description in descriptions]
        wanted = [uids.of_tasks([ids.chosen(copy.uid)], ids.of_worker(copy.raptor_id))[0] for copy in copies]
        dependencies = Dependencies(uids, wanted, copies)
        for position, (uid, copy) in enumerate(zip(wanted, copies, strict=True)):
            sparse = plain(dependencies.with_sources(uid, copy))
            tasks.append(TaskRecord(uid, CommonDescription(sparse, pack_plain(sparse, uid), time.time())))
            dependencies.add(position, sparse)
        handles = self._add(tasks, dependencies)
        self._start(tasks, dependencies)
        return handles

    def submit_sweep(self, description: TaskDescription, parameters: Any) -> SweepRecord:
        """Submit a sweep; see `TaskManager.submit_sweep`."""
        self.check_open()
        uid = self.session.uids.new_sweep()
        sweep = SweepRecord(uid)
        description, = listed([description], 'task')
        dependencies = Dependencies(self.session.uids, [uid], [description])
        description = dependencies.with_sources(uid, description)
        common, chunks = pack_sweep(description, Parameters(parameters), uid)
        dependencies.add(0, description)
        dependencies.check()
        tasks = [ChunkRecord(common, chunk, sweep) for chunk in chunks]
        self.tracker.is_internal = is_chunk
        for task in tasks:
            self.tasks.add_chunk(task)
        self._send(sweep.size, tasks, self.flow.submit_chunks)
        return sweep

    def _add(self, tasks: list[TaskRecord], dependencies: Dependencies) -> list[Any]:
        """Add new tasks, and return their handles."""
        dependencies.check()
        uids = [task.uid for task in tasks]
        self.session.uids.claim_tasks(uids, lambda: self.tasks.add(uids, tasks))
        dependencies.accepted()
        handles = list(map(self.make, tasks))   # held: some may be final before the call returns
        for task, handle in zip(tasks, handles, strict=True):
            task.handle = handle
        return handles

    def _start(self, tasks: list[TaskRecord], dependencies: Dependencies) -> None:
        if tasks:
            leads = self._leads(dependencies) if len(self.pilots) > 1 else {}
            if leads:
                self.engine.call(self.flow.lead, leads)
            self._send(len(tasks), tasks, self.flow.submit)

    def _leads(self, dependencies: Dependencies) -> dict[str, str]:
        """Return the tasks to whose pilots tasks may be bound; those in files are final."""
        return {uid: other for uid, other in dependencies.leads().items()
                if other in self.tasks and isinstance(self.tasks.look(other), TaskRecord)}

    def _send(self, count: int, tasks: list[Any], submit: Callable[..., object]) -> None:
        """Submit so many tasks, and log a warning if the coordinator does not accept them in time."""
        try:
            self.engine.submit(self.tracker, tasks, lambda accepted: submit(tasks, accepted), ACCEPTANCE,
                               lambda: self.flow.sent)
        except TimeoutError:
            self.session.note_away('the coordinator of the session is away or busy, and has not taken the task yet')
            _log.warning('%d tasks of %s are kept here until the coordinator, which is away or busy, takes them',
                         count, self.uid)

    # tasks

    def look(self, uids: Iterable[str]) -> list[HasState]:
        """Return objects with the states of tasks, without reading tasks from files."""
        try:
            return list(map(self.tasks.look, uids))
        except KeyError as error:
            raise self._unknown(error.args[0]) from None

    def get(self, uid: str) -> Any:
        """Return the handle of a task."""
        try:
            return self.tasks.handle_of(uid)
        except KeyError:
            raise self._unknown(uid) from None

    def _unknown(self, uid: str) -> ValueError:
        return ValueError(f'task {uid} is not known to {self.uid}')

    def cancel(self, tasks: Iterable[TaskRecord]) -> None:
        """Request the cancellation of tasks."""
        self.engine.call(self.flow.cancel, tasks)

    def cancel_sweep(self, sweep: SweepRecord) -> None:
        """Request the cancellation of the tasks of a sweep; see `Sweep.cancel`."""
        self.check_process()
        self.engine.call(lambda: self.flow.cancel(self.parts(sweep)))

    def parts(self, sweep: SweepRecord) -> list[TaskRecord]:
        """Return the tasks of a sweep that are in memory and not final, and its chunks that are passed on."""
        return [*self.tasks.live_in(sweep), *self.tasks.chunks_of(sweep)]

    def forget(self, uids: Sequence[str]) -> None:
        """Remove final tasks; see `TaskManager.forget_tasks`."""
        found = self.look(uids)
        for uid, task in zip(uids, found, strict=True):
            if task.state not in states.FINAL:
                raise ValueError(f'task {uid} is {task.state}: only tasks that are final ({", ".join(states.FINAL)}) '
                                 'can be forgotten')
        self.session.uids.removed_tasks(uids)
        self.tracker.forgotten([task.state for uid, task in zip(uids, found, strict=True)
                                if uid.rpartition('.')[0] not in self.tasks.sweeps])
        self.tasks.remove(uids)
        self.callbacks.forget(uids)
        if not self.closed and not self.engine.broken:
            self.engine.call(self.flow.forget, uids)

    # waits in the application's threads

    def wait_for(self, tasks: Sequence[TaskRecord], state: str | Iterable[str] | None, timeout: units.Time | None,
                 ended: int = 0) -> None:
        """Wait until each of these tasks has reached a state, for at most `timeout` seconds.

        `ended` is the number of further tasks to count in the report, which are final.
        """
        if not self.pilots and self.board.value(state) > _WITHOUT_PILOT and any(
                task.pilot is None and task.state not in states.FINAL for task in tasks):
            _log.warning('tasks are waited for, but %s has no pilot to run them on: see add_pilots', self.uid)
        with self.session.report.waiting('tasks', ended) as show:
            self.board.wait(tasks, state, timeout, show)

    def wait_for_all(self, timeout: units.Time | None) -> None:
        """Wait until all tasks are final, without objects for those of sweeps."""
        timeout = units.limit(timeout)
        end = math.inf if timeout is None else time.monotonic() + timeout
        found = self.look(self.tasks.singles())
        live = [task for task in found if isinstance(task, TaskRecord)]
        self.wait_for(live, None, timeout, len(found) - len(live))
        for sweep in list(self.tasks.sweeps.values()):
            self.wait_for_sweep(sweep, None if timeout is None else max(0.0, end - time.monotonic()))

    def wait_for_sweep(self, sweep: SweepRecord, timeout: units.Time | None) -> None:
        """Wait until all tasks of a sweep are final; see `Sweep.wait`."""
        if not self.pilots and sweep.unfinished:
            _log.warning('%s is waited for, but %s has no pilot to run its tasks on: see add_pilots', sweep.uid,
                         self.uid)
        timeout = units.limit(timeout)
        end = math.inf if timeout is None else time.monotonic() + timeout
        with self.session.report.waiting('tasks') as show:
            while not self.board.wait_until(lambda: not sweep.unfinished, _part(end, REFRESH if show else math.inf),
                                            lambda: any(map(is_unbound, self.parts(sweep)))):
                if time.monotonic() >= end:
                    return
                if show:
                    show(sweep.size - sweep.unfinished, sweep.size)

    def future_of(self, task: Any) -> TaskFuture:
        """Return the future of a task, given its handle; see `Task.future`."""
        self.check_process()
        with self.board.lock:
            future = self._futures.get(task.uid)
            if future is None:
                future = self._futures[task.uid] = TaskFuture(task, self.engine.tell)
                self.board.listen(task, future)
            return future


def _part(end: float, longest: float) -> float | None:
    """Return the seconds until a time, but at most `longest`; None for no limit."""
    left = min(longest, max(0.0, end - time.monotonic()))
    return None if left == math.inf else left
