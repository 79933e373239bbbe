"""The coordination contract: what the client and the agents can rely on, whichever backend carries it.

- Tasks go in by the bulk and each is handed to exactly one agent of the pilot that it is bound to.
- Delivery is at least once, effects are exactly once: what is sent again is recognised by its uid (tasks, pilots,
  commands) or changes nothing (states only move forward).
- An update of a task counts only if it comes from the pilot that the task is bound to: a pilot that was given up, and
  comes back when its tasks run elsewhere, changes nothing.
- A pilot that is active may report the same state again, with all that is known of it now (a node was lost, for one).
- What was accepted is kept until the session ends. A backend that was restarted serves it again, and so does a client
  that takes over the session of another one (`recover`).
- A client takes in the changes that are delivered to it, and acknowledges separately how far its application was told
  of them: for all entities of an owner, up to a mark (`acknowledge`). The next client tells its application the rest.
- An agent whose process has died, or that is silent for longer than its lease, is declared lost: its pilot becomes
  FAILED, with the reason.
- Nothing here blocks. All methods are called in the thread of the connection's event loop; all callbacks come there.
- `room` is False while too much is on its way; `on_room` is called when more can be sent. An agent that has enough
  tasks asks for no more (`hold`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from reprlib import repr as short  # also for what is long or nested deeply
from typing import Any, NamedTuple

from rp_api.errors import CoordinationError
from rp_api.wire import codec
from rp_profiling.write.host_clock import Moment, Reading

PROTOCOL = 3
"""Version of the messages between client, hub and agents; peers of another version are refused."""

BULK = 1024
"""Most entities in one message."""

UNBOUND = ''
"""Stands for the pilot of a task that is not bound to one yet."""

LEASE = 60.0
"""Seconds after which a silent agent counts as lost, unless the session says otherwise."""


class Update(NamedTuple):
    """A state that a pilot or task has reached, and what became known with it (plain data, see also `PackedInfo`)."""

    uid: str
    state: str
    info: Mapping[str, Any] | None = None


class PackedInfo(Mapping[str, Any]):
    """What became known with a state, as it travels: most of it nobody ever looks at, so it is unpacked anew each time.

    It is `packed` by `rp_api.wire.codec`. What cannot be read says only that it cannot be.
    """

    __slots__ = ('packed',)

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    def as_dict(self) -> dict[str, Any]:
        """All of it."""
        try:
            info = codec.unpack(self.packed)
        except CoordinationError as error:
            info = error
        return info if isinstance(info, dict) else {
            'exception': f'the agent has sent what cannot be read: {short(info)}'}

    def __getitem__(self, name: str) -> Any:
        return self.as_dict()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.as_dict())

    def __len__(self) -> int:
        return len(self.as_dict())

    def __bool__(self) -> bool:
        return True   # what says nothing is not packed

    def __repr__(self) -> str:
        return repr(self.as_dict())


def packed_info(info: Mapping[str, Any] | None) -> bytes | None:
    """What is known as it travels, None if that is nothing."""
    if type(info) is PackedInfo:   # as most are
        return info.packed
    return codec.pack(info) if info else None


class Submission(NamedTuple):
    """A task on its way to a pilot: its uid and its description, both as plain data."""

    uid: str
    description: Mapping[str, Any]


class Mark(NamedTuple):
    """How far a client is: the changes of agents that it was given (`reported`), and its own ones (`own`)."""

    reported: int = 0
    own: int = 0


class KnownPilot(NamedTuple):
    """A pilot as the session has it: what it was inserted with, and the last update.

    `told` is the last state that an application was told (NEW: none). `info` of one that is FAILED or CANCELED has
    `reached`, the state before that.
    """

    uid: str
    record: dict[str, Any]
    state: str
    info: dict[str, Any] | None
    told: str


class KnownTask(NamedTuple):
    """A task as the session has it: whose it is, where it is bound to, and the last update.

    `attempts` counts how often it was bound to a pilot. `told` is the last state that an application was told (NEW:
    none); a task that was bound anew may be in an earlier one.
    """

    uid: str
    owner: str
    pilot: str
    attempts: int
    description: dict[str, Any]
    state: str
    info: dict[str, Any] | None
    told: str


class Page(NamedTuple):
    """A part of what a session holds: notes and pilots come with the first one, tasks in the order of submission."""

    notes: dict[str, Any]
    pilots: list[KnownPilot]
    tasks: list[KnownTask]
    last: bool


def _nobody(*_: Any) -> None:
    """Default of the callbacks: nobody wants to know."""


class Connection(ABC):
    """What both sides of the coordination have in common."""

    def __init__(self) -> None:
        self.on_lost: Callable[[str], None] = _nobody
        self.on_found: Callable[[], None] = _nobody
        self.on_refused: Callable[[str], None] = _nobody
        self.on_room: Callable[[], None] = _nobody
        self.on_clock: Callable[[Reading], None] = _nobody
        """Is told how far the clock here is ahead of the coordinator's, when that is known, and perhaps again."""

    @property
    @abstractmethod
    def room(self) -> bool:
        """Whether more can be sent now."""

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether everything that was sent has been accepted (and will survive a restart)."""

    @abstractmethod
    def when_settled(self, callback: Callable[[], object]) -> None:
        """Call back as soon as everything that was sent until now has been accepted (which may be at once)."""

    @abstractmethod
    def tell_moment(self, moment: Moment) -> None:
        """Have the coordinator record a moment that is in a profile here, if it keeps one; it may get lost."""

    @abstractmethod
    def update_pilots(self, updates: Sequence[Update]) -> None:
        """Report states of pilots."""

    @abstractmethod
    def update_tasks(self, updates: Sequence[Update]) -> None:
        """Report states of tasks; of several states of one task, the last one suffices."""

    @abstractmethod
    def close(self) -> None:
        """Say goodbye and free everything; what is not settled by then may be lost."""


class ClientConnection(Connection):
    """The client's side: gives pilots, tasks and commands, gets updates."""

    def __init__(self) -> None:
        super().__init__()
        self.on_pilots: Callable[[list[Update]], None] = _nobody
        self.on_tasks: Callable[[list[Update]], None] = _nobody
        self.on_mark: Callable[[], None] = _nobody
        """Is called when `mark` has moved."""

    @abstractmethod
    def insert_pilots(self, pilots: Mapping[str, Mapping[str, Any]], owner: str = '') -> None:
        """Make pilots known, by uid, with a record of plain data; must come before tasks for them.

        `owner` is kept with them.
        """

    @abstractmethod
    def insert_tasks(self, pilot: str, tasks: Sequence[Submission], owner: str = '') -> None:
        """Hand at most `BULK` tasks to a pilot (`UNBOUND`: to none, they are only kept); `owner` is kept with them."""

    def insert_like(self, pilot: str, common: bytes, tasks: Sequence[tuple[str, bytes]], owner: str = '') -> None:
        """The same for tasks (uid, description) whose descriptions have something in common; all that is packed.

        Where both have an attribute, that of the task counts.
        """
        descriptions = codec.unpack_bulk(common, [description for _, description in tasks])
        self.insert_tasks(pilot, [Submission(uid, description) for (uid, _), description in
                                  zip(tasks, descriptions, strict=True)], owner)

    @abstractmethod
    def bind_tasks(self, pilot: str, uids: Sequence[str]) -> None:
        """Hand at most `BULK` tasks that were inserted before to this pilot, as if they were new there.

        Tasks that are bound to it already, and those that have left their agent, stay as they are.
        """

    @abstractmethod
    def forget_tasks(self, uids: Sequence[str]) -> None:
        """Drop what is kept about at most `BULK` tasks, those of them that are final, but for their uids and states.

        A client that takes over finds them without owner.
        """

    @abstractmethod
    def command(self, pilot: str, command: Mapping[str, Any]) -> None:
        """Send a command to all agents of a pilot; what one client sends to one agent arrives in the order sent."""

    @abstractmethod
    def note(self, key: str, value: Any) -> None:
        """Keep plain data under this key, in place of what was there; for the client that takes over (`recover`)."""

    @property
    @abstractmethod
    def mark(self) -> Mark:
        """Covers all updates that were delivered here, and of what was sent at least that which is accepted."""

    @abstractmethod
    def acknowledge(self, owners: Sequence[str], mark: Mark) -> None:
        """The application was told all states that the tasks and pilots of these owners had reached at this mark."""

    @abstractmethod
    def recover(self, on_page: Callable[[Page], None]) -> None:
        """Have everything that the session holds delivered page by page; `on_tasks` and `on_pilots` wait for the end.

        To be called before anything else is sent. A client that takes a session over is given nothing before that.
        """

    def finish(self, done: Callable[[], object]) -> None:
        """Have the session closed, after all that was sent before; `done` is called when that is accepted.

        Nothing but `close` may follow. A backend whose `close` waits for the answer has it closed there.
        """
        self.when_settled(done)

    @abstractmethod
    def detach(self) -> None:
        """Close, but leave the session open: its pilots go on, and another client may take over."""


class AgentConnection(Connection):
    """The agent's side: gets tasks and commands, gives updates. Tasks and commands come in the order they were sent."""

    def __init__(self) -> None:
        super().__init__()
        self.on_tasks: Callable[[list[dict[str, Any]]], None] = _nobody
        self.on_command: Callable[[dict[str, Any]], None] = _nobody

    @abstractmethod
    def hold(self, on: bool) -> None:
        """Ask for no more tasks (what is on its way still comes), or ask for them again. Commands always come."""

    @abstractmethod
    def unsettled(self) -> list[Update]:
        """The updates of tasks that have been sent, but not accepted; for an agent that has to end without."""

    def remove_endpoint(self) -> None:
        """Remove what a coordinator that is gone for good has left on this host, as nobody else is left to do so."""
        return   # most leave nothing
