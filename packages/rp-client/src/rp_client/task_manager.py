"""The task manager: accepts tasks, binds them to pilots, follows their states, and collects their results."""

from __future__ import annotations

import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, cast, overload
from weakref import WeakValueDictionary

from rp_api import constants, states, units
from rp_api.batch import ROWS, unpacked
from rp_api.constants import TASK_STATE, WAIT_QUEUE_SIZE
from rp_api.coordination.contract import BULK, KnownTask, Update
from rp_api.description.html_table import html_table
from rp_api.description.task import TaskDescription
from rp_api.errors import CoordinationError
from rp_api.loop.offload import Helpers
from rp_api.task_modes import SERVICE_MODES
from rp_api.wire import codec
from rp_client import ids
from rp_client.cache.tasks import TaskCache
from rp_client.common_description import CommonDescription, counts, listed
from rp_client.completion.task_future import TaskFuture
from rp_client.core.pilot import PilotRecord
from rp_client.core.sweep import ChunkRecord, SweepRecord
from rp_client.core.task import TaskRecord
from rp_client.engine.callbacks import Entry, Registry, arguments, told
from rp_client.engine.engine import engine_of
from rp_client.engine.tracker import Change, Tracker
from rp_client.engine.waiting import REFRESH, WAIT_MAX_S
from rp_client.flow.dependencies import Dependencies, wait_text
from rp_client.flow.no_pilot import PilotWatch
from rp_client.flow.parameters import Parameters
from rp_client.flow.submission import Packing, pack_plain, pack_sweep, plain, verified
from rp_client.flow.task_flow import TaskFlow
from rp_client.flow.task_store import HasState, TaskStore
from rp_client.ids import Named, Uids, is_one, uid_of, uids_of
from rp_client.old_names import OldMethods
from rp_client.pilot import Pilot
from rp_client.raptor import KINDS, Descriptions, RaptorMaster, RaptorWorker, of_mode
from rp_client.scheduler.base import TaskScheduler
from rp_client.scheduler.component import TaskScheduling, find_scheduler
from rp_client.stager.input import TaskStagingInput
from rp_client.stager.output import TaskStagingOutput, open_output
from rp_client.sweep import Sweep
from rp_client.task import Task

if TYPE_CHECKING:
    from rp_client.completion.waits import Completed
    from rp_client.session import Session

_log = logging.getLogger('radical.pilot.task_manager')

_new = tuple.__new__   # makes a named tuple in half the time of a call of its class, which counts for many tasks

_WITHOUT_PILOT = states.TASK.value(states.TMGR_SCHEDULING)
"""Value of the last state that tasks reach without a pilot."""

_FINAL = states.TASK.value(states.DONE)

NO_PILOT_TIMEOUT = 60.0
"""Seconds without a pilot after which waiting for tasks raises `NoPilot`."""

ACCEPTANCE = 5.0
"""Seconds that a submission waits for a coordinator that makes no progress."""


class TaskManager(OldMethods):
    """Runs tasks on pilots.

    Args:
        session: The session that the manager belongs to, and that closes it.
        cfg: A dict whose key `scheduler` names the task scheduler if the argument does not. Other keys, and names of
            configurations, are accepted for compatibility, without effect.
        scheduler: Name of the task scheduler that chooses pilots for tasks: `round_robin` (default), `backfilling`, or
            an installed extension.
        no_pilot_timeout: Seconds after which waiting for tasks raises `NoPilot` if they are bound to no pilot, and all
            pilots of the manager have ended (those in the queue of a batch system have not); None to wait forever.

    Raises:
        TypeError: `cfg` is neither a dict nor a name, the scheduler no string, or `no_pilot_timeout` no number.
        ValueError: The scheduler is unknown, `no_pilot_timeout` is negative, or an environment variable that configures
            the scheduler is not valid.
        RuntimeError: The session is closed.
    """

    def __init__(self, session: Session, cfg: str | Mapping[str, Any] | None = 'default',
                 scheduler: str | None = None, *, no_pilot_timeout: units.Time | None = NO_PILOT_TIMEOUT,
                 _uid: str = '') -> None:
        self.scheduler = _scheduler_name(cfg, scheduler)
        self._no_pilot_timeout = _checked_timeout(no_pilot_timeout)
        task_scheduler = find_scheduler(self.scheduler)()
        self._session = session
        self._engine = engine_of(session)
        self.uid = session._register_tmgr(self, _uid)
        self._pilots: dict[str, PilotRecord] = {}
        self._drained: set[str] = set()
        self._tasks = TaskStore(f'{session.path}/{self.uid}.{os.getpid()}.tasks', self._make_handle,
                                lambda chunk, tasks: self._flow.chunk_opened(chunk, tasks))
        self._sweeps: dict[str, Sweep] = {}
        self._callbacks = Registry({TASK_STATE: told('task'), WAIT_QUEUE_SIZE: ('task_manager', 'size')})
        self._tracker = Tracker(states.TASK, TASK_STATE, self._callbacks, self._engine.dispatcher, owner=self.uid,
                                handle=self._tasks.handle)
        session._uids.tasks.append(self._tasks)
        self._tracker.on_final = self._tasks.settled
        self._engine.acknowledger.follow(self._tracker)
        self._board = self._tracker.board
        self._futures: WeakValueDictionary[str, TaskFuture] = WeakValueDictionary()
        self._closed = False
        self._tracer = session._make_tracer(self.uid)
        self._flow = self._make_flow(task_scheduler)
        self._engine.on_broken.append(self._board.broke)
        self._tracer.record('setup_done', uid=self.uid)
        if not _uid:
            self._note()

    def __repr__(self) -> str:
        return f'<TaskManager {self.uid}: {self._counts()}>'

    def _repr_html_(self) -> str:
        """Return a table of the tasks, for notebooks."""
        return html_table(f'TaskManager {self.uid}', {
            'session': self._session.uid, 'scheduler': self.scheduler, 'pilots': ', '.join(self._pilots),
            'tasks': self._counts()})

    def _counts(self) -> str:
        finals = Counter(self._tracker.finals)
        for sweep in list(self._tasks.sweeps.values()):
            finals.update(sweep.ended)
        return counts('task', len(self._tasks), finals)

    @property
    def session(self) -> Session:
        """The session that the manager belongs to."""
        return self._session

    def add_pilots(self, pilots: Any) -> None:
        """Run the tasks of this manager on more pilots.

        Args:
            pilots: A `Pilot`, its uid or its `as_dict()`, or a list of these.

        Raises:
            ValueError: The list is empty, or a pilot is unknown, a partition, or was added already.
            RuntimeError: A pilot is attached to another task manager, or was drained by this one, or this manager is
                closed.
        """
        self._check_open()
        wanted = [self._pilot(pilot) for pilot in (pilots if isinstance(pilots, (list, tuple)) else [pilots])]
        if not wanted:
            raise ValueError('add_pilots needs at least one pilot')
        known = dict(self._pilots)
        for pilot in wanted:
            if pilot.uid in known:
                raise ValueError(f'{pilot.uid} was added to {self.uid} already')
            if pilot.uid in self._drained:
                raise RuntimeError(f'{pilot.uid} was drained, and takes no more tasks of {self.uid}')
            known[pilot.uid] = pilot
        self._attach(wanted)
        self._pilots = known
        self._note()
        self._board.stalled(None)   # what is waited for from now on may get one
        self._engine.call(self._add_pilots, wanted)

    def remove_pilots(self, pilot_ids: Named | Iterable[Named], drain: bool = False) -> None:
        """Bind no more tasks to these pilots.

        Tasks that are bound to pilots stay with them, unless the pilots are drained, or have not been active yet: then
        the tasks run on other pilots.

        Args:
            pilot_ids: A pilot or uid, or several.
            drain: Run the tasks on other pilots that these pilots have not started, and wait until the others are
                final or the pilots have ended. Tasks that request one of these pilots, tasks for RAPTOR masters, and
                tasks that name services run there. Masters, workers and services go on and are not waited for. A
                pilot that was drained cannot be added to this manager again.

        Raises:
            ValueError: A pilot was not added to this manager.
            RuntimeError: The session was closed or has failed.
        """
        self._check_process()
        uids = uids_of(pilot_ids)
        for uid in uids:
            if uid not in self._pilots:
                raise ValueError(f'pilot {uid} was not added to {self.uid}')
        pilots = [self._pilots.pop(uid) for uid in dict.fromkeys(uids)]
        for pilot in pilots:
            pilot.handle._detach_tmgr()
        self._note()
        if drain:
            self._drained.update(uids)
            # a wait without an end would delay the handling of signals
            self._engine.ask(lambda drained: self._flow.drain_pilots(pilots, self._tasks.in_memory(), drained),
                             WAIT_MAX_S, time.monotonic)
        else:
            self._engine.call(self._flow.remove_pilots, pilots, self._tasks.in_memory)

    def list_pilots(self) -> list[str]:
        """Return the uids of the pilots in use."""
        return list(self._pilots)

    def get_pilots(self) -> list[Pilot]:
        """Return the pilots in use."""
        return [pilot.handle for pilot in self._pilots.values()]

    def pilot_rpc(self, pid: Named, cmd: str, *args: Any, rpc_addr: Named | None = None,
                  rpc_timeout: units.Time | None = None, **kwargs: Any) -> Any:
        """Call a handler of a pilot of this manager, and wait for its result; see `Pilot.rpc`.

        Args:
            pid: The pilot, or its uid.
            cmd: Name of the handler.
            *args: Positional arguments, plain data.
            rpc_addr: The RAPTOR master or task whose handler is called, or its uid; default: any.
            rpc_timeout: Seconds to wait at most; default: no limit.
            **kwargs: Keyword arguments, plain data.

        Returns:
            The result, plain data.

        Raises:
            ValueError: The pilot was not added to this manager, or an argument is not valid.
            RuntimeError: The call failed, or the pilot has ended.
            TimeoutError: The pilot has not answered in time.
        """
        pilot = self._pilots.get(uid_of(pid))
        if pilot is None:
            raise ValueError(f'pilot {uid_of(pid)} was not added to {self.uid}')
        return pilot.handle.rpc(cmd, *args, rpc_addr=rpc_addr, rpc_timeout=rpc_timeout, **kwargs)

    def list_tasks(self) -> list[str]:
        """Return the uids of all tasks."""
        return list(self._tasks)

    @overload
    def submit_tasks(self, descriptions: TaskDescription) -> Task: ...

    @overload
    def submit_tasks(self, descriptions: Sequence[TaskDescription]) -> list[Task]: ...

    def submit_tasks(self, descriptions: TaskDescription | Sequence[TaskDescription]) -> Task | list[Task]:
        """Submit tasks.

        Returns when the coordinator has accepted the tasks, which then survive the application, or after five seconds
        without an answer. Tasks wait until a pilot is added. If a description is refused, no task is submitted.

        The description of another task (`Task.description`) gives a new task. A uid that the user chose can be used
        only once: unset it before.

        Args:
            descriptions: One task description, or several.

        Returns:
            A `Task` for one description, otherwise a list.

        Raises:
            ValueError: A description is not valid, or its uid is in use.
            RuntimeError: The manager is closed.
        """
        self._check_open()
        tasks = self._take(listed(descriptions, 'task'))
        return tasks[0] if isinstance(descriptions, Mapping) else tasks

    def submit_sweep(self, description: TaskDescription, parameters: Any) -> Sweep:
        """Submit very many tasks that differ only in parameters.

        The rows of parameters fill placeholders in `name`, `executable`, `arguments`, `sandbox`, `environment`,
        `stdout`, `stderr`, the staging directives and a key in `cache`: `{seed}` for the column `seed`, `{1}` for the
        first column of rows without names, `{}` for the only one, `{i}` for the number of the row, from 0. They may
        have a format, as in `{seed:04d}`; `{{` and `}}` are braces. The uids of the tasks are `sweep.0000.000000` and
        so on.

        Rows are sent and stored in chunks, and become tasks when an agent takes them: until then a task costs some
        tens of bytes. Returns when the coordinator has accepted all, as `submit_tasks` does.

        Args:
            description: The description of all tasks, of mode TASK_EXECUTABLE and without `uid` and `raptor_id`.
            parameters: Rows (dicts, tuples, or single values) in a list or from an iterator; or a dict of columns,
                which are lists or arrays of equal length. Values are texts, numbers or paths.

        Raises:
            ValueError: The description is not valid, has a placeholder that the parameters do not have, or a row is not
                like the first one. No task is submitted then.
            RuntimeError: The manager is closed.
        """
        self._check_open()
        uid = self._session._uids.new_sweep()
        sweep = SweepRecord(uid)
        description, = listed([description], 'task')
        dependencies = Dependencies(self._session._uids, [uid], [description])
        description = dependencies.with_sources(uid, description)
        common, chunks = pack_sweep(description, Parameters(parameters), uid)
        dependencies.add(0, description)
        dependencies.check()
        tasks = [ChunkRecord(common, chunk, sweep) for chunk in chunks]
        self._tracker.is_internal = _is_chunk
        for task in tasks:
            self._tasks.add_chunk(task)
        self._accept_within(sweep.size, lambda: self._engine.submit(
            self._tracker, tasks, lambda accepted: self._flow.submit_chunks(tasks, accepted), ACCEPTANCE,
            lambda: self._flow.sent))
        return self._handle_of_sweep(sweep)

    def get_sweeps(self) -> list[Sweep]:
        """Return the sweeps of this manager, also those that an earlier application has submitted."""
        return [self._handle_of_sweep(sweep) for sweep in list(self._tasks.sweeps.values())]

    def _handle_of_sweep(self, sweep: SweepRecord) -> Sweep:
        return self._sweeps.get(sweep.uid) or self._sweeps.setdefault(sweep.uid, Sweep(self, sweep))

    def _submit_for(self, master: str, descriptions: list[TaskDescription]) -> list[Task]:
        """Submit tasks to the RAPTOR master of that uid, whatever `raptor_id` their descriptions have."""
        self._check_open()
        return self._take(descriptions, master=master)

    def submit_raptors(self, descriptions: Descriptions, pilot_id: Named | None = None) -> list[RaptorMaster]:
        """Submit RAPTOR masters. Unset attributes of their descriptions get suitable defaults.

        Args:
            descriptions: One task description of mode RAPTOR_MASTER, or several.
            pilot_id: The pilot that the masters run on, or its uid; default: any.

        Raises:
            ValueError: A description is not valid, or has another mode.
            RuntimeError: The manager is closed.
        """
        self._check_open()
        wanted = of_mode(descriptions, constants.RAPTOR_MASTER, 'submit_raptors')
        pilot = '' if pilot_id is None else uid_of(pilot_id)
        for description in wanted if pilot else ():
            description.pilot = pilot
        return cast('list[RaptorMaster]', self._take(wanted, ids.MASTER))

    def submit_workers(self, descriptions: Descriptions) -> list[RaptorWorker]:
        """Submit RAPTOR workers. Unset attributes of their descriptions get suitable defaults.

        A worker waits until its master is running.

        Args:
            descriptions: One task description of mode RAPTOR_WORKER, or several; `raptor_id` names the master.

        Raises:
            ValueError: A description is not valid, has another mode, or names no master.
            RuntimeError: The manager is closed.
        """
        self._check_open()
        tasks: list[TaskRecord] = []
        copies = [verified(description, description.get('uid') or 'a worker')
                  for description in of_mode(descriptions, constants.RAPTOR_WORKER, 'submit_workers')]
        wanted = [self._session._uids.of_tasks([ids.chosen(copy.uid)], ids.of_worker(copy.raptor_id))[0]
                  for copy in copies]
        dependencies = Dependencies(self._session._uids, wanted, copies)
        for position, (uid, copy) in enumerate(zip(wanted, copies, strict=True)):
            sparse = plain(dependencies.with_sources(uid, copy))
            tasks.append(TaskRecord(uid, CommonDescription(sparse, pack_plain(sparse, uid))))
            dependencies.add(position, sparse)
        return cast('list[RaptorWorker]', self._accept(tasks, dependencies))

    def get_tasks(self, uids: Uids = None) -> Any:
        """Return tasks.

        A final task that the application does not hold is read from a file: do not request very many at once.

        Args:
            uids: A task or uid, several of them, or None for all tasks.

        Returns:
            A `Task` for one task or uid, otherwise a list.

        Raises:
            ValueError: A uid is unknown.
        """
        if is_one(uids):
            return self._get(uid_of(uids))
        return [self._get(uid) for uid in self._uids(uids)]

    def forget_tasks(self, uids: Named | Iterable[Named]) -> None:
        """Remove final tasks from the client and the coordinator, to free memory; returns at once.

        An application that attaches to the session later does not get them. Their uids stay in use. A `Task` object
        that the application holds can still be read, but takes no callbacks.

        Args:
            uids: A task or uid, or several.

        Raises:
            ValueError: A uid is unknown, or a task is not final; no task is removed then.
        """
        self._check_process()
        wanted = list(dict.fromkeys(uids_of(uids)))
        for uid, task in zip(wanted, self._look(wanted), strict=True):
            if task.state not in states.FINAL:
                raise ValueError(f'task {uid} is {task.state}: only tasks that are final ({", ".join(states.FINAL)}) '
                                 'can be forgotten')
        self._session._uids.removed_tasks(wanted)
        self._tracker.forgotten([task.state for uid, task in zip(wanted, self._look(wanted), strict=True)
                                 if uid.rpartition('.')[0] not in self._tasks.sweeps])
        self._tasks.remove(wanted)
        self._callbacks.forget(wanted)
        if not self._closed and not self._engine.broken:
            self._engine.call(self._flow.forget, wanted)

    def wait_tasks(self, uids: Uids = None, state: str | Iterable[str] | None = None,
                   timeout: units.Time | None = None) -> Any:
        """Wait until tasks have reached a state, and return their states.

        A state that a task has passed counts as reached, and a final state ends the wait for a task.

        Args:
            uids: A task or uid, several of them, or None for all tasks.
            state: A state, or several, of which the earliest counts; default: any final state.
            timeout: Seconds to wait at most; default: no limit.

        Returns:
            A state for one task or uid, otherwise a list of states.

        Raises:
            ValueError: A uid or a state is unknown.
            NoPilot: Tasks wait for a pilot, and there has been none for `no_pilot_timeout` seconds.
            RuntimeError: The session was closed or has failed.
        """
        if uids is None and self._tasks.sweeps and self._board.value(state) >= _FINAL:
            return self._wait_for_all(timeout)
        found = self._look(self._uids(uids))
        tasks = [task for task in found if isinstance(task, TaskRecord)]   # others are final
        self._wait_for(tasks, state, timeout, len(found) - len(tasks))
        return found[0].state if is_one(uids) else [task.state for task in found]

    def as_completed(self, uids: Uids = None, timeout: units.Time | None = None) -> Completed[Task]:
        """Return an iterator over tasks in the order in which they end, for `for` and `async for`.

        Args:
            uids: A task or uid, several of them, or None for all tasks.
            timeout: Seconds from now until all have to be final; default: no limit.

        Raises:
            ValueError: A uid is unknown.
            TimeoutError: By the iterator, if the timeout has passed.
            RuntimeError: By the iterator, if the session was closed or has failed.
        """
        from rp_client.completion.waits import as_completed  # most applications wait for all tasks

        found = self.get_tasks(uids)
        return as_completed(found if isinstance(found, list) else [found], timeout)

    def _wait_for_all(self, timeout: units.Time | None) -> list[str]:
        """Wait for all tasks, without objects for those of sweeps."""
        timeout = units.limit(timeout)
        end = math.inf if timeout is None else time.monotonic() + timeout
        self.wait_tasks(self._tasks.singles(), timeout=timeout)
        for sweep in list(self._tasks.sweeps.values()):
            self._wait_for_sweep(sweep, None if timeout is None else max(0.0, end - time.monotonic()))
        return [task.state for task in self._look(self._tasks)]

    def _wait_for_sweep(self, sweep: SweepRecord, timeout: units.Time | None) -> None:
        """Wait until all tasks of a sweep are final; see `Sweep.wait`."""
        if not self._pilots and sweep.unfinished:
            _log.warning('%s is waited for, but %s has no pilot to run its tasks on: see add_pilots', sweep.uid,
                         self.uid)
        timeout = units.limit(timeout)
        end = math.inf if timeout is None else time.monotonic() + timeout
        with self._session._report.waiting('tasks') as show:
            while not self._board.wait_until(lambda: not sweep.unfinished, _part(end, REFRESH if show else math.inf),
                                             lambda: self._is_stranded(sweep)):
                if time.monotonic() >= end:
                    return
                if show:
                    show(sweep.size - sweep.unfinished, sweep.size)

    def _is_stranded(self, sweep: SweepRecord) -> bool:
        """Return whether tasks of a sweep that are not final are bound to no pilot."""
        parts = (*self._tasks.live_in(sweep), *self._tasks.chunks_of(sweep))
        return any(task.pilot is None and task.state not in states.FINAL for task in parts)

    def _is_unbound(self, uid: str) -> bool:
        """Return whether a task that is not final is bound to no pilot."""
        task = self._tasks.find(uid)
        return task is not None and task.pilot is None and task.state not in states.FINAL

    def _unchanged(self) -> AbstractContextManager[object]:
        """Return a context in which no state of a task changes."""
        return self._board.lock

    def _live_in(self, sweep: SweepRecord) -> list[TaskRecord]:
        """Return the tasks of a sweep that are in memory and not final."""
        return self._tasks.live_in(sweep)

    def _cancel_sweep(self, sweep: SweepRecord) -> None:
        """Cancel the tasks of a sweep; see `Sweep.cancel`."""
        self._check_process()
        self._engine.call(lambda: self._flow.cancel([*self._tasks.live_in(sweep), *self._tasks.chunks_of(sweep)]))

    def _wait_for(self, tasks: Sequence[TaskRecord], state: str | Iterable[str] | None, timeout: units.Time | None,
                 ended: int = 0) -> None:
        """Wait until each of these tasks has reached a state, for at most `timeout` seconds; see `wait_tasks`.

        `ended` is the number of further tasks to count in the report, which are final.
        """
        if not self._pilots and self._board.value(state) > _WITHOUT_PILOT:
            self._warn_of_no_pilot(tasks)
        with self._session._report.waiting('tasks', ended) as show:
            self._board.wait(tasks, state, timeout, show)

    def _wait_until(self, condition: Callable[[], bool], timeout: units.Time | None) -> bool:
        """Wait until a condition on tasks is true; return False after `timeout` seconds."""
        return self._board.wait_until(condition, timeout)

    def _future_of(self, task: Task) -> TaskFuture:
        """Return the future of a task; see `Task.future`."""
        self._check_process()
        with self._board.lock:
            future = self._futures.get(task.uid)
            if future is None:
                future = self._futures[task.uid] = TaskFuture(task, self._engine.tell)
                self._board.listen(task, future)
            return future

    def _open_output(self, task: TaskRecord, path: str) -> BinaryIO:
        """Open a file that a task has written; see `Task.open_stdout`."""
        self._check_process()
        return open_output(task, path)

    def _wait_of(self, task: TaskRecord) -> str:
        """Return what keeps a task with `raptor_id` from being run by its master; see `Task.waits_for`."""
        return self._flow.wait_of(task, lambda master: str(self._tasks.handle(master).waits_for))

    def _pilot_wait_of(self, task: TaskRecord) -> str:
        """Return why a task has no pilot; empty if it has one, or gets one; see `Task.waits_for`."""
        return self._flow.wait_for_pilot if task.pilot is None else ''

    def _dependencies_of(self, task: TaskRecord) -> str:
        """Return the tasks that a task waits for, as one text; empty if there are none."""
        return wait_text(task.sparse().get('after') or [], self._session._uids.state_of)

    def _end_of_pilot(self, uid: str) -> str:
        """Return why a pilot, or partition, runs a task no more that it had."""
        return self._flow.end_of_pilot(uid)

    def _warn_of_no_pilot(self, tasks: Iterable[TaskRecord]) -> None:
        if any(task.pilot is None and task.state not in states.FINAL for task in tasks):
            _log.warning('tasks are waited for, but %s has no pilot to run them on: see add_pilots', self.uid)

    def cancel_tasks(self, uids: Uids = None) -> None:
        """Request the cancellation of tasks, and return at once. Final tasks are not affected.

        Args:
            uids: A task or uid, several of them, or None for all tasks.

        Raises:
            ValueError: A uid is unknown; no task is cancelled then.
        """
        if isinstance(uids, Sweep):
            uids.cancel()
            return
        if uids is None:
            tasks = self._tasks.in_memory()
        else:   # others are final
            tasks = [task for task in self._look(self._uids(uids)) if isinstance(task, TaskRecord)]
        self._engine.call(self._flow.cancel, tasks)

    def register_callback(self, cb: Callable[..., Any], cb_data: Any = None,
                          metric: str | Sequence[str] | None = None, uid: Named | None = None) -> None:
        """Register a callback for the states of tasks.

        It is called as `cb(task, state)` in a thread of the session, for each state in order. For the metric
        `WAIT_QUEUE_SIZE` it is called as `cb(task_manager, size)` whenever the number of tasks that wait for a pilot
        changes.

        Args:
            cb: The callable.
            cb_data: A third argument for `cb`; default: none is passed.
            metric: `TASK_STATE` (default), `WAIT_QUEUE_SIZE`, or both.
            uid: A task or its uid, to get only its states.

        Raises:
            ValueError: `cb` does not take these arguments, or the uid or a metric is unknown.
        """
        self._check_process()
        task = None if uid is None else self._get(uid_of(uid))
        for name in _metrics(metric):
            entry = self._callbacks.add(cb, name, cb_data, None if uid is None else uid_of(uid))
            if name == TASK_STATE and not self._engine.broken:
                self._engine.call(self._release, entry, task and task._record)

    def unregister_callback(self, cb: Callable[..., Any] | None = None,
                            metrics: str | Sequence[str] | None = None, uid: Named | None = None) -> None:
        """Remove a callback.

        Args:
            cb: The callable; default: all callbacks of the manager.
            metrics: `TASK_STATE` (default), `WAIT_QUEUE_SIZE`, or both.
            uid: The task that the callback was registered for, or its uid, if any.

        Raises:
            ValueError: `cb` is not registered, or a metric is unknown.
        """
        self._check_process()
        self._callbacks.remove(cb, _metrics(metrics), None if uid is None else uid_of(uid))

    def as_dict(self) -> dict[str, Any]:
        """Return the manager and its tasks as plain data; `tasks` maps uids to tasks."""
        return {'type': 'tmgr', 'uid': self.uid, 'cfg': {'scheduler': self.scheduler},
                'tasks': {uid: self._get(uid).as_dict() for uid in self._tasks}}

    def dump(self, name: str | None = None) -> None:
        """Write `as_dict()` to `<uid>[.<name>].json` in the session directory.

        Args:
            name: Part of the file name that distinguishes several dumps.
        """
        self._session._write_json(f'{self.uid}.{name}.json' if name else f'{self.uid}.json', self.as_dict())

    def close(self) -> None:
        """Cancel all tasks, detach the pilots, and end the manager. Closing a closed manager has no effect."""
        if self._closed or not self._engine.process.here:
            return
        self._closed = True
        if not self._engine.broken:
            self._engine.run(self._close)
        for pilot in self._pilots.values():
            pilot.handle._detach_tmgr()

    def _leave(self) -> None:
        """End the manager and leave its tasks running; called when the session closes with `terminate=False`."""
        if not self._closed:
            self._closed = True
            if not self._engine.broken:
                with suppress(TimeoutError):   # tasks that the coordinator does not accept now are lost
                    self._engine.ask(self._flow.await_acceptance, ACCEPTANCE, lambda: self._flow.sent)
                self._engine.run(self._end_there)

    def _update(self, updates: Sequence[Update]) -> None:
        """Apply the updates of agents; called in the loop, for tasks of any manager."""
        known = self._tasks.find_each([update[0] for update in updates])
        mine = [_new(Change, (task, state, info)) for task, (_, state, info) in zip(known, updates, strict=True)
                if task is not None]
        before = [task for task, _, _ in mine if task.state in states.FINAL]
        if mine:
            self._flow.update(mine)
        if before:   # the update may have added to their info
            self._tasks.changed(before)

    def _pilot_ended(self, pilot: PilotRecord, results: Sequence[Update] = ()) -> None:
        """Handle the tasks of a pilot that became final; called in the loop.

        `results` are the updates that its agent could not deliver; those of this manager's tasks go to the coordinator.
        """
        mine = [update for update in results if update.uid in self._tasks
                and self._tasks[update.uid].place == pilot.uid]
        for first in range(0, len(mine), BULK):
            self._engine.connection.update_tasks(mine[first:first + BULK])
        self._update(mine)
        self._flow.pilot_ended(pilot, self._tasks.in_memory(), dead_end=self._dead_end(pilot))

    def _places_changed(self, pilot: PilotRecord) -> None:
        """Use the present nodes and partitions of a pilot; called in the loop."""
        if pilot.uid in self._pilots:
            self._flow.places_changed(pilot)

    def _store_results(self) -> None:
        """Store the results of cached tasks that have ended."""
        self._flow.store_results()

    def _find_master(self, uid: str) -> RaptorMaster | None:
        """Return the RAPTOR master of that uid; None if it is unknown, or another task."""
        task = self._tasks.find(uid)
        master = task is not None and task.common.mode == constants.RAPTOR_MASTER
        return self._tasks.handle(task) if task is not None and master else None

    # attaching to a session: called in the loop

    def _restore_pilots(self, pilots: Iterable[PilotRecord]) -> None:
        """Attach the pilots that the manager had."""
        for pilot in pilots:
            pilot.handle.attach_tmgr(self)
            self._pilots[pilot.uid] = pilot

    def _restore(self, known: KnownTask, pilot: PilotRecord | None) -> TaskRecord:
        """Restore a task, or a chunk of a sweep, from the coordinator's record."""
        if ROWS in known.description:
            return self._restore_chunk(known, pilot)
        task = self._tasks.find(known.uid)   # of a sweep, it was made with its chunk
        if task is None:
            task = TaskRecord(known.uid, CommonDescription(known.description, codec.pack(known.description)))
            self._tasks.add([task.uid], [task])
        task.restore(known, pilot)
        self._flow.restore(task, known)
        self._tracker.restored(task, known.told)
        if task.common.mode in SERVICE_MODES:
            self._session._uids.endless.add(task.uid)
        if task.state in states.FINAL:
            self._tasks.settled([task])
        return task

    def _restore_chunk(self, known: KnownTask, pilot: PilotRecord | None) -> TaskRecord:
        """Restore a chunk, and if it was opened, its tasks, whose records follow."""
        chunk = unpacked(known.description)
        common = {name: value for name, value in known.description.items() if name != ROWS}
        sweep = self._tasks.sweeps.get(chunk.sweep) or SweepRecord(chunk.sweep)
        task = ChunkRecord(CommonDescription({**common, **chunk.own_of(0)}, codec.pack(common)), chunk, sweep)
        task.restore(known, pilot)
        task.whole = True
        self._tracker.is_internal = _is_chunk
        self._tasks.add_chunk(task)
        if known.state == states.AGENT_STAGING_INPUT:
            self._tasks.open(task)
        else:
            self._flow.restore(task, known)
            if task.state in states.FINAL:
                self._tasks.settled([task])
        return task

    def _restore_forgotten(self, uid: str, state: str) -> None:
        """Count a task that was forgotten in that state, if it is one of a restored sweep."""
        self._tasks.drop(uid, state)

    def _resume(self) -> None:
        """Resume the work on all restored tasks."""
        self._flow.add_pilots([pilot for pilot in self._pilots.values() if pilot.state not in states.FINAL])
        self._flow.resume()

    # submission in the application's thread, which refuses all that can be refused

    def _check_process(self) -> None:
        """Raise `CoordinationError` in a fork of the application."""
        self._engine.process.check()

    def _check_open(self) -> None:
        self._check_process()
        if self._closed:
            raise RuntimeError(f'{self.uid} is closed')

    def _take(self, descriptions: list[TaskDescription], form: ids.Form = ids.TASK, master: str = '') -> list[Task]:
        """Submit tasks, to a RAPTOR master if given; `form` is that of the uids of tasks without a uid."""
        wanted = self._session._uids.of_tasks([
            ids.chosen(dict.get(description, 'uid') if isinstance(description, dict) else description.get('uid'))
            for description in descriptions], form)
        packing = Packing(master)
        dependencies = Dependencies(self._session._uids, wanted, descriptions)
        tasks = []
        for position, (uid, given) in enumerate(zip(wanted, descriptions, strict=True)):
            description = dependencies.with_sources(uid, given if isinstance(given, dict) else TaskDescription(given))
            common, own = packing.pack(description, uid)
            dependencies.add(position, description)
            tasks.append(TaskRecord(uid, common, own))
        return self._accept(tasks, dependencies)

    def _make_handle(self, task: TaskRecord) -> Task:
        return KINDS.get(task.common.mode, Task)(self, task)

    def _accept(self, tasks: list[TaskRecord], dependencies: Dependencies) -> list[Task]:
        dependencies.check()
        uids = [task.uid for task in tasks]
        self._session._uids.claim_tasks(uids, lambda: self._tasks.add(uids, tasks))
        dependencies.accepted()
        handles = list(map(self._make_handle, tasks))   # held: some may be final before the call returns
        for task, handle in zip(tasks, handles, strict=True):
            task.handle = handle
        if tasks:
            self._submit(tasks, self._leads(dependencies) if len(self._pilots) > 1 else {})
        return handles

    def _leads(self, dependencies: Dependencies) -> dict[str, str]:
        """Return the tasks to whose pilots tasks may be bound; those in files are final."""
        return {uid: other for uid, other in dependencies.leads().items()
                if other in self._tasks and isinstance(self._tasks.look(other), TaskRecord)}

    def _submit(self, tasks: list[TaskRecord], leads: dict[str, str]) -> None:
        if leads:
            self._engine.call(self._flow.lead, leads)
        self._accept_within(len(tasks), lambda: self._engine.submit(
            self._tracker, tasks, lambda accepted: self._flow.submit(tasks, accepted), ACCEPTANCE,
            lambda: self._flow.sent))

    def _accept_within(self, count: int, submit: Callable[[], object]) -> None:
        """Submit so many tasks, and log a warning if the coordinator does not accept them in time."""
        try:
            submit()
        except TimeoutError:
            _log.warning('%d tasks of %s are kept here until the coordinator, which is away or busy, takes them',
                         count, self.uid)

    def _note(self) -> None:
        """Store the manager with the coordinator, for an application that attaches to the session."""
        note = None if self._closed else {'scheduler': self.scheduler, 'pilots': list(self._pilots),
                                          'no_pilot_timeout': self._no_pilot_timeout}
        self._engine.call(self._engine.connection.note, self.uid, note)

    def _attach(self, pilots: Sequence[PilotRecord]) -> None:
        """Attach pilots to this manager, all or none."""
        for position, pilot in enumerate(pilots):
            try:
                pilot.handle.attach_tmgr(self)
            except RuntimeError:
                for attached in pilots[:position]:
                    attached.handle._detach_tmgr()
                raise

    def _pilot(self, pilot: Any) -> PilotRecord:
        if isinstance(pilot, Pilot):
            record = pilot._record
            if record.whole is not record:
                raise ValueError(f'{pilot.uid} is a partition: add its pilot, {record.whole.uid}, and have tasks ask '
                                 'for the partition')
            return record
        uid = pilot['uid'] if isinstance(pilot, Mapping) else pilot
        return self._session._find_pilot(uid)._record

    def _uids(self, uids: Uids) -> list[str]:
        return list(self._tasks) if uids is None else uids_of(uids)

    def _has(self, uid: str) -> bool:
        return uid in self._tasks

    def _get(self, uid: str) -> Task:
        try:
            return self._tasks.handle_of(uid)   # type: ignore[no-any-return]
        except KeyError:
            raise self._unknown(uid) from None

    def _look(self, uids: Iterable[str]) -> list[HasState]:
        """Return objects with the states of tasks, without reading tasks from files."""
        try:
            return list(map(self._tasks.look, uids))
        except KeyError as error:
            raise self._unknown(error.args[0]) from None

    def _unknown(self, uid: str) -> ValueError:
        return ValueError(f'task {uid} is not known to {self.uid}')

    # called in the loop

    def _members(self, chunk: ChunkRecord) -> list[TaskRecord]:
        """Return the tasks that are told that their chunk has ended."""
        return self._tasks.members(chunk, everything=bool(self._callbacks.select(TASK_STATE)))

    def _release(self, entry: Entry, task: TaskRecord | None) -> None:
        """Pass the states that no application has seen to a new callback."""
        self._tracker.release(entry, task)
        self._engine.acknowledger.soon()

    def _make_flow(self, scheduler: TaskScheduler) -> TaskFlow:
        session, index = self._session, self.uid.rpartition('.')[2]
        offload, tracer, advance = self._engine.helpers.run, session._make_tracer, self._tracker.advance
        scheduling = TaskScheduling(index, tracer(f'tmgr_scheduling.{index}'), advance, scheduler, self._tasks,
                                    self._wait_queue_changed)
        cache = TaskCache(session.client_sandbox, session.path, Helpers(self._engine.loop), session._result_store,
                          lambda: list(self._pilots.values()), session._claims,
                          lambda hits, missed: flow.on_looked_up(hits, missed))
        staging_input = TaskStagingInput(index, tracer(f'tmgr_staging_input.{index}'), advance, offload,
                                         lambda ready, failed: flow.on_input(ready, failed))
        staging_output = TaskStagingOutput(index, tracer(f'tmgr_staging_output.{index}'), advance, offload,
                                           lambda finished: flow.on_output(finished), cache.keep)
        pilot_watch = PilotWatch(self.uid, self._engine.loop, self._board, scheduling, self._is_unbound,
                                 self._no_pilot_timeout)
        flow = TaskFlow(self.uid, self._engine, self._tracker, self._tracer, scheduling, staging_input, staging_output,
                        cache, pilot_watch, self._tasks.open, self._members)
        return flow

    def _add_pilots(self, pilots: list[PilotRecord]) -> None:
        self._flow.add_pilots([pilot for pilot in pilots if pilot.state not in states.FINAL])
        for pilot in pilots:
            if pilot.state in states.FINAL:
                self._pilot_ended(pilot)

    def _dead_end(self, pilot: PilotRecord) -> str | None:
        """Return why waiting tasks can never run, if the last pilot failed and `exit_on_error` is set."""
        if pilot.uid not in self._pilots:   # it was removed, so no task waits for it
            return None
        others = any(other.state not in states.FINAL for other in self._pilots.values())
        if others or not pilot.description.exit_on_error or pilot.state != states.FAILED:
            return None
        return f'no pilot is left: {pilot.uid} {pilot.state}: {pilot.exception}'

    def _wait_queue_changed(self, size: int) -> None:
        for callback, data, _ in self._callbacks.select(WAIT_QUEUE_SIZE):
            self._engine.dispatcher.call(callback, *arguments(self, size, data=data))

    def _close(self) -> None:
        if self._session.closed:   # the session ends the pilots and the tasks on them
            self._flow.end_all(self._tasks.in_memory(), 'the session was closed')
        else:
            self._flow.cancel(self._tasks.in_memory())
            self._flow.end_all(self._tasks.in_memory(), f'{self.uid} was closed')
            self._note()
        self._flow.close()
        self._tracer.close()

    def _end_there(self) -> None:
        self._flow.close()
        self._tracer.close()
        self._board.broke(CoordinationError('it was closed, and its pilots keep running'))


def _part(end: float, longest: float) -> float | None:
    """Return the seconds until a time, but at most `longest`; None for no limit."""
    left = min(longest, max(0.0, end - time.monotonic()))
    return None if left == math.inf else left


def _is_chunk(task: TaskRecord) -> bool:
    return type(task) is ChunkRecord


def _scheduler_name(cfg: str | Mapping[str, Any] | None, scheduler: str | None) -> str:
    if cfg is not None and not isinstance(cfg, str | Mapping):
        raise TypeError(f'cfg of a task manager is {cfg!r}, it must be a dict or a name')
    name = scheduler or (cfg.get('scheduler') if isinstance(cfg, Mapping) else None) or constants.SCHEDULER_DEFAULT
    if not isinstance(name, str):
        raise TypeError(f'the scheduler of a task manager is {name!r}, it must be the name of one')
    return name


def _checked_timeout(timeout: units.Time | None) -> float | None:
    seconds = units.limit(timeout, 'no_pilot_timeout')
    if seconds is not None and seconds < 0:
        raise ValueError(f'no_pilot_timeout is {timeout!r}, it must not be negative')
    return seconds


def _metrics(metric: str | Sequence[str] | None) -> list[str]:
    if metric is None:
        return [TASK_STATE]
    return [metric] if isinstance(metric, str) else list(metric)
