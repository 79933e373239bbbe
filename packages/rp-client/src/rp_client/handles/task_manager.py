"""The task manager: accepts tasks, binds them to pilots, follows their states, and collects their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, overload

from rp_api import constants, states, units
from rp_api.constants import TASK_STATE
from rp_api.description.html_table import html_table
from rp_api.description.task import TaskDescription
from rp_client import ids
from rp_client.common_description import listed
from rp_client.core.pilot import PilotRecord
from rp_client.core.sweep import SweepRecord
from rp_client.core.task import TaskRecord
from rp_client.handles.base import ManagerHandle, record_of
from rp_client.handles.pilot import Pilot
from rp_client.handles.raptor import Descriptions, RaptorMaster, RaptorWorker, make_task, of_mode
from rp_client.handles.sweep import Sweep
from rp_client.handles.tabular import Tabular
from rp_client.handles.task import Task
from rp_client.ids import Named, Uids, is_one, uid_of, uids_of
from rp_client.old_names import OldMethods
from rp_client.service.owner import owner_of
from rp_client.service.task_requests import TaskRequests
from rp_client.service.tasks import NO_PILOT_TIMEOUT
from rp_client.settings import checked_scheduler, checked_timeout

if TYPE_CHECKING:
    from rp_client.completion.waits import Completed
    from rp_client.handles.session import Session

_FINAL = states.TASK.value(states.DONE)


class TaskManager(ManagerHandle, Tabular, OldMethods):
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

    _owner: TaskRequests

    def __init__(self, session: Session, cfg: str | Mapping[str, Any] | None = 'default',
                 scheduler: str | None = None, *, no_pilot_timeout: units.Time | None = NO_PILOT_TIMEOUT,
                 _uid: str = '') -> None:
        self.scheduler = checked_scheduler(cfg, scheduler)
        super().__init__(session, TaskRequests(
            owner_of(session), self.scheduler, checked_timeout(no_pilot_timeout), _uid, self, make_task))
        self._sweeps: dict[str, Sweep] = {}

    def _repr_html_(self) -> str:
        """Return a table of the tasks, for notebooks."""
        return html_table(f'TaskManager {self.uid}', {
            'session': self._session.uid, 'scheduler': self.scheduler, 'pilots': ', '.join(self._owner.pilots),
            'tasks': self._owner.counts()})

    def add_pilots(self, pilots: Any) -> None:
        """Run the tasks of this manager on more pilots.

        Args:
            pilots: A `Pilot`, its uid or its `as_dict()`, or a list of these.

        Raises:
            ValueError: The list is empty, or a pilot is unknown, a partition, or was added already.
            RuntimeError: A pilot is attached to another task manager, or was drained by this one, or this manager is
                closed.
        """
        self._owner.check_open()
        wanted = [self._pilot(pilot) for pilot in (pilots if isinstance(pilots, (list, tuple)) else [pilots])]
        if not wanted:
            raise ValueError('add_pilots needs at least one pilot')
        self._owner.add_pilots(wanted)

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
        self._owner.check_process()
        self._owner.remove_pilots(uids_of(pilot_ids), drain=drain)

    def list_pilots(self) -> list[str]:
        """Return the uids of the pilots in use."""
        return list(self._owner.pilots)

    def get_pilots(self) -> list[Pilot]:
        """Return the pilots in use."""
        return [pilot.handle for pilot in self._owner.pilots.values()]

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
        pilot = self._owner.pilots.get(uid_of(pid))
        if pilot is None:
            raise ValueError(f'pilot {uid_of(pid)} was not added to {self.uid}')
        return pilot.handle.rpc(cmd, *args, rpc_addr=rpc_addr, rpc_timeout=rpc_timeout, **kwargs)

    def list_tasks(self) -> list[str]:
        """Return the uids of all tasks."""
        return list(self._owner.tasks)

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
        self._owner.check_open()
        tasks = self._owner.submit(listed(descriptions, 'task'))
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
        return self._handle_of_sweep(self._owner.submit_sweep(description, parameters))

    def get_sweeps(self) -> list[Sweep]:
        """Return the sweeps of this manager, also those that an earlier application has submitted."""
        return [self._handle_of_sweep(sweep) for sweep in list(self._owner.tasks.sweeps.values())]

    def _handle_of_sweep(self, sweep: SweepRecord) -> Sweep:
        return self._sweeps.get(sweep.uid) or self._sweeps.setdefault(sweep.uid, Sweep(self._owner, sweep))

    def submit_raptors(self, descriptions: Descriptions, pilot_id: Named | None = None) -> list[RaptorMaster]:
        """Submit RAPTOR masters. Unset attributes of their descriptions get suitable defaults.

        Args:
            descriptions: One task description of mode RAPTOR_MASTER, or several.
            pilot_id: The pilot that the masters run on, or its uid; default: any.

        Raises:
            ValueError: A description is not valid, or has another mode.
            RuntimeError: The manager is closed.
        """
        self._owner.check_open()
        wanted = of_mode(descriptions, constants.RAPTOR_MASTER, 'submit_raptors')
        pilot = '' if pilot_id is None else uid_of(pilot_id)
        for description in wanted if pilot else ():
            description.pilot = pilot
        return cast('list[RaptorMaster]', self._owner.submit(wanted, ids.MASTER))

    def submit_workers(self, descriptions: Descriptions) -> list[RaptorWorker]:
        """Submit RAPTOR workers. Unset attributes of their descriptions get suitable defaults.

        A worker waits until its master is running.

        Args:
            descriptions: One task description of mode RAPTOR_WORKER, or several; `raptor_id` names the master.

        Raises:
            ValueError: A description is not valid, has another mode, or names no master.
            RuntimeError: The manager is closed.
        """
        self._owner.check_open()
        return self._owner.submit_workers(of_mode(descriptions, constants.RAPTOR_WORKER, 'submit_workers'))

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
        return self._owner.get(uid_of(uids)) if is_one(uids) else list(map(self._owner.get, self._uids(uids)))

    def forget_tasks(self, uids: Named | Iterable[Named]) -> None:
        """Remove final tasks from the client and the coordinator, to free memory; returns at once.

        An application that attaches to the session later does not get them. Their uids stay in use. A `Task` object
        that the application holds can still be read, but takes no callbacks.

        Args:
            uids: A task or uid, or several.

        Raises:
            ValueError: A uid is unknown, or a task is not final; no task is removed then.
        """
        self._owner.check_process()
        self._owner.forget(list(dict.fromkeys(uids_of(uids))))

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
        owner = self._owner
        if uids is None and owner.tasks.sweeps and owner.board.value(state) >= _FINAL:
            owner.wait_for_all(timeout)
            return [task.state for task in owner.look(owner.tasks)]
        found = owner.look(self._uids(uids))
        tasks = [task for task in found if isinstance(task, TaskRecord)]   # others are final
        owner.wait_for(tasks, state, timeout, len(found) - len(tasks))
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

    def cancel_tasks(self, uids: Uids = None) -> None:
        """Request the cancellation of tasks, and return at once. Final tasks are not affected.

        Args:
            uids: A task or uid, several of them, or None for all tasks.

        Raises:
            ValueError: A uid is unknown; no task is cancelled then.
        """
        if isinstance(uids, Sweep):
            uids.cancel()
        elif uids is None:
            self._owner.cancel(self._owner.tasks.in_memory())
        else:   # others are final
            self._owner.cancel([task for task in self._owner.look(self._uids(uids)) if isinstance(task, TaskRecord)])

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
        owner = self._owner
        owner.check_process()
        only = None if uid is None else uid_of(uid)
        task = None if only is None else owner.get(only)   # the callback may need its handle
        for name in _metrics(metric):
            entry = owner.callbacks.add(cb, name, cb_data, only)
            if name == TASK_STATE and not owner.engine.broken:
                owner.engine.call(owner.release, entry, task and record_of(task))

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
        self._owner.check_process()
        self._owner.callbacks.remove(cb, _metrics(metrics), None if uid is None else uid_of(uid))

    def as_dict(self) -> dict[str, Any]:
        """Return the manager and its tasks as plain data; `tasks` maps uids to tasks."""
        return {'type': 'tmgr', 'uid': self.uid, 'cfg': {'scheduler': self.scheduler},
                'tasks': {uid: self._owner.get(uid).as_dict() for uid in self._owner.tasks}}

    def close(self) -> None:
        """Cancel all tasks, detach the pilots, and end the manager. Closing a closed manager has no effect."""
        self._owner.close()

    def _pilot(self, pilot: Any) -> PilotRecord:
        if not isinstance(pilot, Pilot):
            return self._owner.session.find_pilot(pilot['uid'] if isinstance(pilot, Mapping) else pilot)
        record: PilotRecord = record_of(pilot)
        if record.whole is not record:
            raise ValueError(f'{pilot.uid} is a partition: add its pilot, {record.whole.uid}, and have tasks ask '
                             'for the partition')
        return record

    def _uids(self, uids: Uids) -> list[str]:
        return list(self._owner.tasks) if uids is None else uids_of(uids)


def _metrics(metric: str | Sequence[str] | None) -> list[str]:
    if metric is None:
        return [TASK_STATE]
    return [metric] if isinstance(metric, str) else list(metric)
