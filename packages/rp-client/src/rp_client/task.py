"""The application's handle of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.constants import TASK_STATE
from rp_api.coordination.contract import PackedInfo, packed_info
from rp_api.description.task import TaskDescription
from rp_api.errors import DeserializationError
from rp_api.values import from_plain, is_pickled
from rp_api.wire import codec
from rp_client.common_description import NOTHING, CommonDescription

if TYPE_CHECKING:
    from rp_api.coordination.contract import KnownTask
    from rp_client.pilot import Pilot
    from rp_client.session import Session
    from rp_client.task_manager import TaskManager

class Task:
    """A submitted task; made by `TaskManager.submit_tasks`, never by the application.

    A session may hold hundreds of thousands of these, and of most of them only the state is ever looked at: what is
    known beside it is kept as it came.
    """

    __slots__ = ('__weakref__', '_attempts', '_known', '_pilot', '_state', '_stored', '_tmgr', '_uid', 'common', 'own')

    def __init__(self, tmgr: TaskManager, uid: str, common: CommonDescription, own: bytes = NOTHING) -> None:
        self._tmgr = tmgr
        self._uid = uid
        self.common = common   # what the description has in common with others
        self.own = own         # and what it has not, packed
        self._state = states.NEW
        self._pilot: Pilot | None = None
        self._attempts = 0
        self._stored = False
        self._known: bytes | None = None
        self._start()

    def _start(self) -> None:
        """What a sub-class has to set at first."""

    def __repr__(self) -> str:
        return f'<Task {self._uid} {self._state}>'

    def __str__(self) -> str:
        return str([self._uid, self.pilot, self._state])

    @property
    def uid(self) -> str:
        """The task's unique id."""
        return self._uid

    @property
    def state(self) -> str:
        """The state that the task is known to be in, see `radical.pilot.states`."""
        return self._state

    @property
    def tmgr(self) -> TaskManager:
        """The task manager that the task was submitted to."""
        return self._tmgr

    @property
    def session(self) -> Session:
        """The session that the task belongs to."""
        return self._tmgr.session

    @property
    def origin(self) -> str:
        """Where the task was submitted: `client`."""
        return 'client'

    @property
    def description(self) -> TaskDescription:
        """A copy of the task's description, with all attributes."""
        description = TaskDescription.from_sparse(self.sparse())
        description.uid = self._uid
        return description

    @property
    def name(self) -> str:
        """The name that the description gives, unchanged."""
        return str(self.sparse().get('name', ''))

    @property
    def mode(self) -> str:
        """The task's mode, such as `task.executable`."""
        return str(self.description.mode)

    @property
    def metadata(self) -> dict[str, Any]:
        """The user data of the description."""
        return dict(self.description.metadata)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the executable, -N if signal N ended it; None as long as there is none."""
        code: int | None = self._get('exit_code')
        return code

    @property
    def stdout(self) -> str:
        """The end of what the task wrote to standard output (1024 characters at most)."""
        return self._get('stdout') or ''

    @property
    def stderr(self) -> str:
        """The end of what the task wrote to standard error (1024 characters at most)."""
        return self._get('stderr') or ''

    @property
    def exception(self) -> str | None:
        """What went wrong, in one sentence; None if nothing did."""
        sentence: str | None = self._get('exception')
        return sentence

    @property
    def exception_detail(self) -> str | None:
        """More about what went wrong: an exit code, a file, the last lines of an output, a trace."""
        text: str | None = self._get('exception_detail')
        return text

    @property
    def return_value(self) -> Any:
        """What a function task returned; DeserializationError if it cannot be restored here.

        An object that is no plain data is another one each time, and a large one is read from its file. Such an object
        is restored only for a task that was submitted with `raptor_id`: no other one can have returned it.
        """
        value = self._get('return_value')
        if not self.common.raptor_id and is_pickled(value):
            raise DeserializationError(f'return_value of {self._uid} is a pickled object, which is not restored: only '
                                       'tasks with raptor_id can return one, and this task has none')
        return from_plain(value)

    @property
    def slots(self) -> list[Any] | None:
        """The cores and GPUs that the task was given, one `Slot` per rank; None before it was placed."""
        from rp_api.resources import Slot

        found = self._get('slots')
        return None if found is None else [Slot(slot) for slot in found]

    @property
    def output_files(self) -> list[str]:
        """Names of the files that the task left in its sandbox, besides its standard files; empty before it ends."""
        return list(self._get('output_files') or [])

    @property
    def partition(self) -> int | None:
        """The number of the partition that the task is bound to, or, as long as it is bound to none, asks for."""
        found: int | None = getattr(self._pilot, 'number', None)
        return self.sparse().get('partition') if found is None else found

    @property
    def info(self) -> Any:
        """What a service has told about itself, found by its `info_pattern`; None as long as it has not."""
        return self._get('info')

    @property
    def launch_method(self) -> str | None:
        """The launch method that has started the ranks, such as `MPIEXEC`; None if the agent has done so itself."""
        name: str | None = self._get('launch_method')
        return name

    @property
    def launch_command(self) -> str | None:
        """The command line with which the launch method has started the ranks; None without one."""
        line: str | None = self._get('launch_command')
        return line

    @property
    def pilot(self) -> str | None:
        """The uid of the pilot that the task is bound to; None before it is bound."""
        return self._pilot.whole.uid if self._pilot else None

    @property
    def place(self) -> str | None:
        """What the coordinator knows its pilot by: the uid of the pilot, or that of a partition, if it has some."""
        return self._pilot.uid if self._pilot else None

    @property
    def attempts(self) -> int:
        """How many pilots the task was given to: more than one if it is `restartable` and pilots have failed."""
        return self._attempts

    @property
    def sandbox(self) -> str | None:
        """The directory that the task runs in, on the platform; None before the task is bound to a pilot."""
        if self._pilot is None:
            return None
        return self._pilot.sandboxes.task(self._uid, self.sparse().get('sandbox', ''))

    task_sandbox = sandbox

    @property
    def pilot_sandbox(self) -> str | None:
        """The directory of the task's pilot; None before the task is bound to one."""
        return self._pilot.pilot_sandbox if self._pilot else None

    @property
    def session_sandbox(self) -> str | None:
        """The directory of the session on the platform; None before the task is bound to a pilot."""
        return self._pilot.session_sandbox if self._pilot else None

    @property
    def resource_sandbox(self) -> str | None:
        """The directory of all sessions on the platform; None before the task is bound to a pilot."""
        return self._pilot.resource_sandbox if self._pilot else None

    @property
    def endpoint_fs(self) -> str | None:
        """The root of the platform's file system; None before the task is bound to a pilot."""
        return self._pilot.endpoint_fs if self._pilot else None

    @property
    def client_sandbox(self) -> str:
        """The directory that relative paths on the client refer to."""
        return self._tmgr.session.client_sandbox

    def as_dict(self) -> dict[str, Any]:
        """The task as plain data: what its attributes say, with its whole description and its task manager's uid."""
        names = ('uid', 'name', 'state', 'origin', 'exit_code', 'stdout', 'stderr', 'return_value', 'exception',
                 'exception_detail', 'pilot', 'attempts', 'endpoint_fs', 'resource_sandbox', 'session_sandbox',
                 'pilot_sandbox', 'task_sandbox', 'client_sandbox', 'info', 'partition', 'output_files',
                 'launch_method', 'launch_command')
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        slots = self._get('slots')
        return found | {'type': 'task', 'tmgr': self._tmgr.uid, 'slots': slots,
                        'description': self.description.as_dict()}

    def wait(self, state: str | Iterable[str] | None = None, timeout: float | None = None) -> str:
        """The task's state, once it has reached a state (default: any final one), or `timeout` seconds are over.

        Of several states, the earliest counts; one that was passed counts as reached; a final state ends the wait.
        Raises `StateError` (a `ValueError`) for an unknown state, and `RuntimeError` if the session cannot go on.
        """
        self._tmgr.wait_for([self], state, timeout)
        return self._state

    def cancel(self) -> None:
        """Ask for the task to be cancelled; returns at once. Nothing happens to one that is final."""
        self._tmgr.check_process()
        if self._state not in states.FINAL:
            self._tmgr.cancel_tasks(self._uid)

    def register_callback(self, cb: Callable[..., Any], cb_data: Any = None, metric: str | None = None) -> None:
        """Have `cb(task, state)` called for each state of this task; with `cb_data` as third argument if given.

        It is called in a thread of the session, once for each state from now on, in order. Raises `ValueError` for what
        cannot be called like that, and for an unknown metric.
        """
        self._tmgr.register_callback(cb, cb_data, metric or TASK_STATE, self._uid)

    def sparse(self) -> dict[str, Any]:
        """What the description sets beyond the defaults, as plain data."""
        found: dict[str, Any] = codec.unpack(self.common.packed)
        return found if self.own == NOTHING else {**found, **codec.unpack(self.own)}

    @property
    def bound(self) -> Pilot | None:
        """The pilot, or the partition of one, that the task is bound to."""
        return self._pilot

    def bind(self, pilot: Pilot | None) -> None:
        """Tie the task to the pilot that it will run on (None: to none any more)."""
        self._pilot = pilot

    @property
    def stored(self) -> bool:
        """Whether the task was sent to the coordinator, which keeps it from then on."""
        return self._stored

    def sent(self, *, bound: bool) -> None:
        """Note that the task was sent to the coordinator: for its pilot, or to be kept until there is one."""
        self._stored = True
        self._attempts += bound

    def restore(self, known: KnownTask, pilot: Pilot | None) -> None:
        """Take over what the coordinator knows about the task."""
        self._pilot = pilot
        self._attempts = known.attempts
        self._stored = True
        kept = not known.pilot and known.state not in states.FINAL
        state = states.TMGR_SCHEDULING_PENDING if kept else known.state
        # one that was bound anew stands still where it was until the new attempt has passed that
        self._state = max(state, known.told, key=states.TASK.value)
        self._learn(known.info or {})

    def renew(self, state: str, known: bytes | None, pilot: Pilot | None, attempts: int) -> None:
        """Be as a task was that had come to this state, with all that was known about it."""
        self._state = state
        self._pilot = pilot
        self._attempts = attempts
        self._stored = True
        if known:
            self._learn(PackedInfo(known))

    @property
    def reached(self) -> str | None:
        """The last state before a bad end, if that is known."""
        state: str | None = self._get('reached')
        return state

    @property
    def known(self) -> PackedInfo | None:
        """All that became known about the task with its states."""
        return PackedInfo(self._known) if self._known else None

    def _get(self, name: str) -> Any:
        return PackedInfo(self._known).as_dict().get(name) if self._known else None

    def _learn(self, info: Mapping[str, Any]) -> None:
        """Take over what became known about the task."""
        if self._known:
            info = {**PackedInfo(self._known), **info}
        self._known = packed_info(info)
