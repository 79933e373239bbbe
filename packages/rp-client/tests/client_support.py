"""What the tests of the client's parts share: pilots and tasks without a session, and an engine without a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from rp_api.batch import Batch
from rp_api.coordination.contract import UNBOUND, ClientConnection, Mark, Page, Update
from rp_api.description.pilot import PilotDescription
from rp_api.description.task import TaskDescription
from rp_api.loop.offload import Done, Failed, Work
from rp_api.staging import expand
from rp_api.wire import codec
from rp_client.common_description import CommonDescription
from rp_client.core.pilot import PilotRecord
from rp_client.core.task import TaskRecord
from rp_client.handles.partition import make_pilot
from rp_client.handles.raptor import make_task
from rp_client.launcher.sandbox import PilotSandboxes
from rp_client.service.pilots import PilotOwner
from rp_client.service.task_requests import TaskRequests
from rp_profiling.write.host_clock import Moment
from rp_profiling.write.tracer import Tracer


class Manager:
    """Takes the place of owner and handle of a manager: knows what handles ask them for."""

    def __init__(self, base: Path | str = '/client') -> None:
        self.uid = 'manager.0000'
        self.session = self
        self.away = None   # the coordinator answers
        self.tmgrs: dict[str, Any] = {}
        self.pmgrs: dict[str, Any] = {}
        self.manager = self
        self.client_sandbox = str(base)
        self.calls: list[tuple[Any, ...]] = []

    def pilots(self) -> list[Any]:
        return []

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__'):
            raise AttributeError(name)
        return lambda *args: self.calls.append((name, *args))


class Events(Tracer):
    """A trace that is kept: event, uid, state and message of each row."""

    def __init__(self) -> None:
        super().__init__(None, 'test')
        self.rows: list[tuple[str, str, str, str]] = []

    def record(self, event: str, uid: str = '', state: str = '', msg: str = '') -> None:
        self.rows.append((event, uid, state, msg))

    def record_bulk(self, event: str, uids: Iterable[str], state: str = '', msg: str = '') -> None:
        for uid in uids:
            self.record(event, uid, state, msg)

    def about(self, uid: str) -> list[str]:
        """The events of an entity, without its states."""
        return [event for event, who, _, _ in self.rows if who == uid and event != 'advance']


class Later:
    """Takes the place of helper threads: work is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Work, Done, Failed]] = []

    def __call__(self, work: Work, done: Done, failed: Failed) -> None:
        self.waiting.append((work, done, failed))

    run = __call__

    def close(self, timeout: float) -> None:
        """There are no threads."""

    def work(self) -> None:
        """Do all that there is."""
        while self.waiting:
            work, done, failed = self.waiting.pop(0)
            try:
                result = work()
            except BaseException as error:
                failed(error)
            else:
                done(result)


class Connection(ClientConnection):
    """Takes the place of the connection to the hub: keeps what is sent, and has room when the test says so.

    `given` are the tasks that pilots got, by the bulk, whether they were inserted or bound; `kept` those without pilot.
    """

    def __init__(self) -> None:
        super().__init__()
        self.free = True
        self.tasks: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = []
        self.kept: list[str] = []
        self.given: list[tuple[str, list[str]]] = []
        self.away = False
        self._settling: list[Callable[[], object]] = []
        self.updates: list[list[Update]] = []
        self.forgotten: list[str] = []
        self.commands: list[tuple[str, dict[str, Any]]] = []
        self.withdrawn: list[str] = []
        self.reached = Mark()
        self.acknowledged: list[tuple[list[str], Mark]] = []

    @property
    def room(self) -> bool:
        return self.free

    @property
    def settled(self) -> bool:
        return True

    def tell_moment(self, moment: Moment) -> None:
        raise NotImplementedError

    def insert_pilots(self, pilots: Mapping[str, Mapping[str, Any]], owner: str = '') -> None:
        raise NotImplementedError

    @property
    def mark(self) -> Mark:
        return self.reached

    def acknowledge(self, owners: Sequence[str], mark: Mark) -> None:
        self.acknowledged.append((list(owners), mark))

    def update_pilots(self, updates: Sequence[Update]) -> None:
        raise NotImplementedError

    def when_settled(self, callback: Callable[[], object]) -> None:
        if self.away:
            self._settling.append(callback)
        else:
            callback()

    def come_back(self) -> None:
        """Accept what was sent."""
        self.away = False
        for callback in self._settling:
            callback()

    def forget_tasks(self, uids: Sequence[str]) -> None:
        self.forgotten += uids

    def insert_batch(self, pilot: str, batch: Batch, owner: str = '') -> None:
        assert self.room
        assert owner == 'tmgr.0000'
        self.tasks.append((pilot, batch.tasks()))
        uids = [uid for uid, _ in batch.listed()]
        if pilot == UNBOUND:
            self.kept += uids
        else:
            self.given.append((pilot, uids))

    def bind_tasks(self, pilot: str, uids: Sequence[str]) -> None:
        assert self.room
        self.given.append((pilot, list(uids)))

    def note(self, key: str, value: Any) -> None:
        raise NotImplementedError

    def recover(self, on_page: Callable[[Page], None]) -> None:
        raise NotImplementedError

    def detach(self) -> None:
        raise NotImplementedError

    def update_tasks(self, updates: Sequence[Update]) -> None:
        self.updates.append(list(updates))

    def withdraw(self, uids: Sequence[str]) -> None:
        self.withdrawn += uids

    def command(self, pilot: str, command: Mapping[str, Any]) -> None:
        self.commands.append((pilot, dict(command)))

    def close(self) -> None:
        raise NotImplementedError


class Calls:
    """Takes the place of the thread for callbacks: keeps what it would have called."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []

    def call(self, callback: Callable[..., Any], *args: Any) -> None:
        self.made.append((callback, *args))

    def call_each(self, callback: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> None:
        for args in calls:
            self.call(callback, *args)


class TurnTimer:
    """A timer of `Turns`."""

    def __init__(self, delay: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.delay, self.callback, self.args = delay, callback, args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Turns:
    """Takes the place of the event loop: `turn` runs what was asked for, and what that asks for; no time passes."""

    def __init__(self) -> None:
        self.timers: list[TurnTimer] = []
        self._ready: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._ready.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> TurnTimer:
        timer = TurnTimer(delay, callback, args)
        self.timers.append(timer)
        return timer

    def wait(self, seconds: float) -> None:
        """Run what is due after so many seconds from the start of each timer."""
        due = [timer for timer in self.timers if timer.delay <= seconds]
        self.timers = [timer for timer in self.timers if timer.delay > seconds]
        for timer in due:
            if not timer.cancelled:
                timer.callback(*timer.args)

    def turn(self) -> None:
        while self._ready:
            callback, args = self._ready.popleft()
            callback(*args)


class Engine:
    """Takes the place of the engine, without any thread or process."""

    def __init__(self) -> None:
        self.loop = Turns()
        self.connection = Connection()
        self.dispatcher = Calls()
        self.on_room: list[Callable[[], None]] = []
        self.on_broken: list[Callable[[BaseException], None]] = []

    def have_room(self) -> None:
        """Say that more can be sent."""
        self.connection.free = True
        for callback in self.on_room:
            callback()


def a_pilot(uid: str = 'pilot.0000', base: Path | str = '/base', manager: Manager | None = None,
            **description: Any) -> PilotRecord:
    """A new pilot, whose directories are below `base`."""
    description = {'resource': 'local.exact', 'cores': 1, 'uid': uid} | description
    sandboxes = PilotSandboxes(f'{base}/client', f'{base}/resource', f'{base}/resource/session',
                               f'{base}/resource/session/{uid}')
    record = PilotRecord('pmgr.0000', uid, PilotDescription(description), sandboxes)
    make_pilot(cast(PilotOwner, manager or Manager()), record)
    return record


def a_task(uid: str = 'task.000000', manager: Manager | None = None, **description: Any) -> TaskRecord:
    """A new task."""
    for name in ('input_staging', 'output_staging'):
        if name in description:
            description[name] = expand(description[name])
    sparse = TaskDescription({'executable': '/bin/true'} | description).sparse()
    shared = common(sparse)
    record = TaskRecord(uid, shared)
    record.handle = make_task(cast(TaskRequests, manager or Manager()), record)
    return record


def common(sparse: Mapping[str, Any]) -> CommonDescription:
    """What tasks with this description have in common, which is one object."""
    packed = codec.pack(sparse)
    return _commons.setdefault(packed, CommonDescription(sparse, packed))


_commons: dict[bytes, CommonDescription] = {}
