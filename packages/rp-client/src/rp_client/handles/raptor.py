"""RAPTOR masters and workers, as applications see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rp_api import constants as c
from rp_api import states, units
from rp_api.description.task import TaskDescription
from rp_api.distributions import require
from rp_api.raptor_link import RPC
from rp_client.common_description import listed
from rp_client.core.task import TaskRecord
from rp_client.handles.task import Task
from rp_client.ids import MASTER, TASK, Form, of_worker

if TYPE_CHECKING:
    from rp_client.service.task_requests import TaskRequests

Descriptions = TaskDescription | Sequence[TaskDescription]


_FOR_RAPTOR = ('access', 'check_process', 'directory')
"""Attributes of a master for streams and executors of rp-raptor."""


class RaptorMaster(Task):
    """A task that distributes other tasks among its workers, made by `submit_raptors`.

    It becomes AGENT_EXECUTING when it accepts tasks. Tasks that are submitted earlier wait.
    """

    __slots__ = ('_objects',)

    def __init__(self, owner: TaskRequests, record: TaskRecord) -> None:
        super().__init__(owner, record)
        self._objects: Any = None

    def submit_workers(self, tds: Descriptions) -> list[RaptorWorker]:
        """Submit workers of this master.

        Args:
            tds: One task description of mode RAPTOR_WORKER, or several.

        Raises:
            ValueError: A description is not valid, or has another mode.
            RuntimeError: The task manager is closed.
        """
        copies = [TaskDescription(description) for description in listed(tds, 'task')]
        for copy in copies:
            copy['raptor_id'] = self._record.uid
        return self.tmgr.submit_workers(copies)

    def submit_tasks(self, tds: Descriptions) -> list[Task]:
        """Submit tasks to this master, which its workers execute.

        Args:
            tds: One task description, or several.

        Raises:
            ValueError: A description is not valid.
            RuntimeError: The task manager is closed.
        """
        return self._owner.submit(listed(tds, 'task'), TASK, self._record.uid)

    def put_object(self, obj: Any) -> Any:
        """Store an object that many calls use, so that each node gets it once; wait until the master has it.

        Calls, at any depth of their arguments, and `PythonTask` accept the reference in place of the object: streams
        and executors also at other masters, tasks at this one. The function gets the object itself; NumPy arrays are
        read-only views of memory that all ranks of a node share. The object is dropped when no reference to it is left
        (`release()`, the end of a `with` statement, or garbage collection) and no call of a stream or executor uses it
        any more. For tasks, keep the reference until they are done.

        Args:
            obj: An object that can be serialized.

        Returns:
            An `rp.raptor.ObjectRef`.

        Raises:
            SerializationError: The object cannot be serialized or stored.
            RuntimeError: The master has ended.
            PilotError: rp-raptor is not installed here.
        """
        self.check_process()
        if self._objects is None:
            require('rp-raptor')
            self._objects = import_module('rp_raptor.client.objects').ClientObjects(self)
        return self._objects.put(obj)

    def rpc(self, cmd: str, *args: Any, rpc_timeout: units.Time | None = None, **kwargs: Any) -> Any:
        """Call a handler of the master, and wait for its result; may be called in several threads at a time.

        Args:
            cmd: Name of the handler, such as `stop`; the master registers others with `register_rpc_cb`.
            *args: Positional arguments, plain data.
            rpc_timeout: Seconds to wait at most; default: no limit.
            **kwargs: Keyword arguments, plain data.

        Returns:
            The result, plain data.

        Raises:
            ValueError: An argument is not plain data, or `rpc_timeout` is not valid.
            RuntimeError: The master has no pilot yet, the call failed, or the master has ended.
            TimeoutError: The master has not answered in time.
        """
        self.check_process()
        if self._record.pilot is None:
            raise RuntimeError(f'{self.uid} is not bound to a pilot yet: wait until it is {states.AGENT_EXECUTING}')
        if self._record.state in states.FINAL:
            raise RuntimeError(f'{self.uid} is {self.state} and answers no requests')
        return self._owner.session.calls.call([self._record.pilot], self.uid, {
            'mode': RPC, 'raptor_id': self.uid, 'method': cmd, 'args': list(args), 'kwargs': kwargs}, rpc_timeout)

    def check_process(self) -> None:
        """Raise `CoordinationError` in a fork of the application."""
        self._owner.check_process()

    @property
    def access(self) -> Mapping[str, Any] | None:
        """The master's address and secret key (`rp_api.raptor_link.Access`); None before it is running."""
        found: Mapping[str, Any] | None = self._record.get('raptor')
        return found

    @property
    def directory(self) -> str:
        """The directory of the session, for large arguments of calls for which shared memory has no room."""
        return str(self.session.path)

    def _uid_form(self) -> Form:
        return MASTER

    def __dir__(self) -> list[str]:
        """Return the names of attributes, without those for other parts of the system."""
        return [name for name in super().__dir__() if name not in _FOR_RAPTOR]


class RaptorWorker(Task):
    """A task that executes function calls for a master, made by `submit_workers`."""

    __slots__ = ()

    def _uid_form(self) -> Form:
        return of_worker(self._record.common.raptor_id)


KINDS: dict[Any, type[Task]] = {c.RAPTOR_MASTER: RaptorMaster, c.RAPTOR_WORKER: RaptorWorker}
"""The classes of tasks of these modes; the others are of `Task`."""


def make_task(owner: TaskRequests, record: TaskRecord) -> Task:
    """Make the handle of a task."""
    return KINDS.get(record.common.mode, Task)(owner, record)


def of_mode(tds: Descriptions, mode: str, method: str) -> list[TaskDescription]:
    """Return copies of the descriptions; raise ValueError if one has another mode."""
    copies = [TaskDescription(description) for description in listed(tds, 'task')]
    for copy in copies:
        if copy.mode != mode:
            raise ValueError(f'{method} takes tasks of mode {mode!r}, not {copy.mode!r}')
    return copies
