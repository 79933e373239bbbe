"""The attributes of tasks that applications read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rp_api import states
from rp_api.coordination.contract import PackedInfo
from rp_api.description.task import FUNCTION, TaskDescription
from rp_api.errors import DeserializationError
from rp_api.failures.losses import LOST, losses
from rp_api.task_info.slots import SLOTS, whole_slots
from rp_api.task_info.usage import TaskTimes, TaskUsage
from rp_api.values import from_plain, is_pickled
from rp_client.core.task import TaskRecord
from rp_client.handles.base import Handle
from rp_client.ids import Form, marked, of_task

if TYPE_CHECKING:
    from rp_api.failures.task_error import TaskError

_OF_ATTEMPT = ('attempt', 'kind', 'reason', 'pilot', 'exit_code', 'signal', 'nodes', 'placed', 'started', 'ended',
               'usage', 'sandbox', LOST)
"""The keys of an attempt in the history."""


class TaskAttributes(Handle):
    """The attributes of a task that come from its record."""

    __slots__ = ()

    _record: TaskRecord

    def _uid_form(self) -> Form:
        """Return the form of generated uids of such tasks."""
        return of_task(self._record.uid)

    @property
    def description(self) -> TaskDescription:
        """A copy of the task's description, with all attributes.

        Submitting it creates a new task, with another uid if this task's uid was generated.
        """
        sparse = self._record.sparse()
        if isinstance(sparse.get(FUNCTION), bytes):
            from rp_api.description.python_task import shown_call  # few tasks are functions

            sparse = shown_call(sparse)
        description = TaskDescription.from_sparse(sparse)
        description.uid = marked(self._record.uid, self._uid_form())
        description.derive()
        return description

    @property
    def name(self) -> str:
        """The name in the description."""
        return str(self._record.sparse().get('name', ''))

    @property
    def mode(self) -> str:
        """The task's mode, such as `task.executable`."""
        return str(self.description.mode)

    @property
    def metadata(self) -> dict[str, Any]:
        """The user data in the description."""
        return dict(self.description.metadata)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the executable, -N if signal N ended it; None before it has ended."""
        return cast('int | None', self._record.get('exit_code'))

    @property
    def stdout(self) -> str:
        """The end of the task's standard output (at most 1024 characters)."""
        return self._record.get('stdout') or ''

    @property
    def stderr(self) -> str:
        """The end of the task's standard error (at most 1024 characters)."""
        return self._record.get('stderr') or ''

    @property
    def exception(self) -> str | None:
        """The reason of a failure, in one sentence; None without a failure."""
        return cast('str | None', self._record.get('exception'))

    @property
    def exception_detail(self) -> str | None:
        """Details of a failure: an exit code, a file, the last lines of an output, or a traceback."""
        return cast('str | None', self._record.get('exception_detail'))

    @property
    def error(self) -> TaskError | None:
        """The failure as an exception that can be raised: its kind, exit code, signal, file and last lines.

        None for a task that is neither FAILED nor CANCELED.
        """
        if self._record.state not in (states.FAILED, states.CANCELED):
            return None
        from rp_api.failures.task_error import task_error

        info = PackedInfo(self._record.known).as_dict() if self._record.known else {}
        return task_error(self._record.uid, self._record.state, info, self._record.outputs())

    @property
    def times(self) -> TaskTimes:
        """When the task was submitted, and its last attempt was placed, started and ended, in seconds since the epoch.

        `times.duration` and `times.waiting` are in seconds. What is not known, or has not happened, is None.
        """
        return self._record.times

    @property
    def usage(self) -> TaskUsage:
        """What the last attempt has used: CPU time, memory, bytes read and written, context switches, and GPUs.

        It is known when the attempt has ended. What is not known is None, such as the memory of short tasks.
        """
        return self._record.usage

    @property
    def return_value(self) -> Any:
        """The value that a function task returned.

        An object that is not plain data is restored at each access, a large one from its file. Only tasks with
        `raptor_id` return such objects.

        Raises:
            DeserializationError: The object cannot be restored, or the task has no `raptor_id`.
        """
        value = self._record.get('return_value')
        if not self._record.common.raptor_id and is_pickled(value):
            raise DeserializationError(f'return_value of {self.uid} is a pickled object, which is not restored: only '
                                       'tasks with raptor_id can return one, and this task has none')
        return from_plain(value)

    @property
    def slots(self) -> list[Any] | None:
        """The cores and GPUs of the task, one `Slot` per rank; None before the task is placed."""
        from rp_api.resources import Slot

        found = whole_slots(self._record.get(SLOTS))
        return None if found is None else [Slot(slot) for slot in found]

    @property
    def output_files(self) -> list[str]:
        """Names of the files in the sandbox, without the task's standard files; empty before the task has ended."""
        return list(self._record.get('output_files') or [])

    @property
    def partition(self) -> int | None:
        """The number of the partition that the task is bound to, or requests while it is not bound."""
        found: int | None = getattr(self._record.pilot, 'number', None)
        return self._record.sparse().get('partition') if found is None else found

    @property
    def info(self) -> Any:
        """The information on a service for its users; None while it is not ready, '' if it has none."""
        return self._record.get('info')

    @property
    def cached(self) -> bool:
        """True if the task did not run, because its result was in the cache."""
        return bool(self._record.get('cached'))

    @property
    def launch_method(self) -> str | None:
        """The launch method that started the ranks, such as `MPIEXEC`; None if the agent started them itself."""
        return cast('str | None', self._record.get('launch_method'))

    @property
    def launch_command(self) -> str | None:
        """The command line that started the ranks; None without a launch method."""
        return cast('str | None', self._record.get('launch_command'))

    @property
    def pilot(self) -> str | None:
        """The uid of the pilot that the task is bound to; None before it is bound."""
        return self._record.pilot.whole.uid if self._record.pilot else None

    @property
    def attempts(self) -> int:
        """The number of attempts to run the task, with those that were lost; 0 before it is sent to a pilot."""
        return len(self._record.failures) + bool(self._record.attempts and self._record.pilot)

    @property
    def losses(self) -> int:
        """The number of attempts that ended with their job, agent or node, which do not count for `retries`."""
        suspected = LOST in (self._record.get('error') or ()) if self._record.state == states.FAILED else False
        return losses(self._record.failures) + suspected

    @property
    def history(self) -> list[dict[str, Any]]:
        """The failed and lost attempts that were followed by another one, in order.

        Each is a dict of `attempt` (its number), `kind` and `reason` of the failure as in `error`, `pilot`,
        `exit_code`, `signal`, `nodes` (names), `placed`, `started` and `ended` (seconds since the epoch), `usage` (a
        dict of what is known), `sandbox`, the directory with the files of the attempt, and `lost`: 'end' if its job has
        ended, 'death' if its node or agent has died. What is not known is None, such as the nodes if the pilot was
        lost.
        """
        return [{**dict.fromkeys(_OF_ATTEMPT), **entry} for entry in self._record.failures]

    @property
    def sandbox(self) -> str | None:
        """The working directory of the task on the platform; None before the task is bound to a pilot."""
        return self._record.sandbox

    task_sandbox = sandbox

    @property
    def pilot_sandbox(self) -> str | None:
        """The directory of the task's pilot; None before the task is bound to a pilot."""
        return self._record.pilot.directories.pilot if self._record.pilot else None

    @property
    def session_sandbox(self) -> str | None:
        """The directory of the session on the platform; None before the task is bound to a pilot."""
        return self._record.pilot.directories.session if self._record.pilot else None

    @property
    def resource_sandbox(self) -> str | None:
        """The directory of all sessions on the platform; None before the task is bound to a pilot."""
        return self._record.pilot.directories.resource if self._record.pilot else None

    @property
    def endpoint_fs(self) -> str | None:
        """The root of the platform's file system; None before the task is bound to a pilot."""
        return '/' if self._record.pilot else None
