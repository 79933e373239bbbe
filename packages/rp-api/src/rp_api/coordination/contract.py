"""The coordination contract: the guarantees for client and agents, independent of the backend.

- Tasks are submitted in bulks, and each is delivered to exactly one agent of the pilot that it is bound to.
- Delivery is at least once, effects are exactly once: duplicates are recognised by uid (tasks, pilots, commands) or
  have no effect (states only move forward).
- An update of a task counts only if it comes from the pilot that the task is bound to: a pilot that was declared lost,
  and returns when its tasks run on another pilot, changes nothing.
- Some states may be reported again with new information, which replaces the earlier one (`StateModel.repeated`): that
  of an active pilot after the loss of a node, for example.
- Accepted data is kept until the session ends. A restarted backend delivers it again, also to a client that takes over
  the session of another one (`recover`).
- A client receives changes, and acknowledges separately which of them its application has been notified of: for all
  entities of an owner, up to a mark (`acknowledge`). The next client notifies its application of the rest.
- An agent whose process has died, or that does not answer within its lease, is declared lost: its pilot becomes FAILED,
  with the reason.
- Nothing blocks. All methods are called in the thread of the connection's event loop; all callbacks run there.
- `room` is False while too many messages are in flight; `Handler.on_room` is called when more can be sent. An agent
  with enough tasks requests no more (`hold`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from reprlib import repr as short  # handles long and deeply nested values
from typing import Any, NamedTuple

from rp_api import states
from rp_api.batch import Batch
from rp_api.errors import CoordinationError
from rp_api.wire import codec
from rp_profiling.write.host_clock import Moment, Reading

PROTOCOL = 3
"""Version of the messages between client, hub and agents; peers with another version are rejected."""

BULK = 1024
"""Maximum number of entities in one message."""

UNBOUND = ''
"""The pilot of a task that is not bound yet."""

UNBOUND_STATE, BOUND_STATE = states.TMGR_SCHEDULING_PENDING, states.AGENT_STAGING_INPUT_PENDING
"""The states of a task without and with a pilot, until an agent has taken it."""

LEFT_AGENT = states.TASK.value(states.TMGR_STAGING_OUTPUT_PENDING)
"""Value of the first state in which the outcome of a task is known: what the application stages is not waited for."""

WINDOW = 8
"""Messages that the coordinator has not accepted yet at which `room` turns False."""

LEASE_S = 60.0
"""Seconds after which an agent that does not answer is declared lost; a session may set another value."""


class Update(NamedTuple):
    """A state that a pilot or task has reached, with its information (plain data, see also `PackedInfo`)."""

    uid: str
    state: str
    info: Mapping[str, Any] | None = None


class PackedInfo(Mapping[str, Any]):
    """The information of an update as received: most of it is never read, so it is unpacked on each access.

    It is `packed` by `rp_api.wire.codec`. If it cannot be unpacked, it holds only an error text.
    """

    __slots__ = ('packed',)

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    def as_dict(self) -> dict[str, Any]:
        """Return the unpacked information."""
        try:
            info = codec.unpack(self.packed)
        except CoordinationError as error:
            info = error
        return info if isinstance(info, dict) else {
            'exception': f'the agent has sent information that cannot be read: {short(info)}'}

    def __getitem__(self, name: str) -> Any:
        return self.as_dict()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.as_dict())

    def __len__(self) -> int:
        return len(self.as_dict())

    def __bool__(self) -> bool:
        return True   # empty information is not packed

    def __repr__(self) -> str:
        return repr(self.as_dict())


def packed_info(info: Mapping[str, Any] | None) -> bytes | None:
    """Return the information of an update as sent, or None if it is empty."""
    if type(info) is PackedInfo:   # the usual case
        return info.packed
    return codec.pack(info) if info else None


class Mark(NamedTuple):
    """The progress of a client: the agents' changes that it has received (`reported`), and its own (`own`)."""

    reported: int = 0
    own: int = 0


class KnownPilot(NamedTuple):
    """A pilot as stored in the session: the record that it was inserted with, and the last update.

    `told` is the last state of which an application was notified (NEW: none). The `info` of a FAILED or CANCELED pilot
    has `reached`, the state before that.
    """

    uid: str
    record: dict[str, Any]
    state: str
    info: dict[str, Any] | None
    told: str


class KnownTask(NamedTuple):
    """A task as stored in the session: its owner, its pilot, and the last update.

    `attempts` counts how often it was bound to a pilot. `told` is the last state of which an application was notified
    (NEW: none); a task that was bound again may be in an earlier one. `submitted` is in seconds since the epoch, None
    if it is not known.
    """

    uid: str
    owner: str
    pilot: str
    attempts: int
    description: dict[str, Any]
    state: str
    info: dict[str, Any] | None
    told: str
    submitted: float | None = None


class Page(NamedTuple):
    """A part of a session's data: notes and pilots are in the first page, tasks in the order of submission."""

    notes: dict[str, Any]
    pilots: list[KnownPilot]
    tasks: list[KnownTask]
    last: bool


NewTask = tuple[str, Mapping[str, Any]]
"""The uid of a task for an agent, and its description, which tasks may share: it must not be changed."""


class Handler:
    """The calls of a connection to its user; this one ignores all of them."""

    def on_lost(self, how: str) -> None:
        """Handle the loss of the coordinator, which died or does not answer."""

    def on_found(self) -> None:
        """Handle the return of the coordinator."""

    def on_refused(self, reason: str) -> None:
        """Handle the end of the connection: the coordinator refuses this peer."""

    def on_room(self) -> None:
        """Send more if there is more: `room` is True, or everything is `settled`."""

    def on_clock(self, reading: Reading) -> None:
        """Handle the offset of this clock to the coordinator's when it is known, possibly several times."""


class ClientHandler(Handler):
    """The calls of a client's connection."""

    def on_pilots(self, updates: list[Update]) -> None:
        """Handle changes of pilots."""

    def on_tasks(self, updates: list[Update]) -> None:
        """Handle changes of tasks."""

    def on_mark(self) -> None:
        """Handle a move of `mark`."""


class AgentHandler(Handler):
    """The calls of an agent's connection."""

    def on_tasks(self, tasks: list[NewTask]) -> None:
        """Take new tasks."""

    def on_command(self, command: dict[str, Any]) -> None:
        """Carry out a command of the client."""

    def on_followed(self, outcomes: list[Update]) -> None:
        """Handle outcomes (`coordination.outcome`) of followed tasks, of some perhaps more than once."""


class Connection(ABC):
    """The common part of client and agent connections."""

    _handler: Handler
    _unsettled: Sized = ()

    @property
    def room(self) -> bool:
        """True if more can be sent now."""
        return len(self._unsettled) < WINDOW

    @property
    def settled(self) -> bool:
        """True if everything sent has been accepted (and will survive a restart)."""
        return not self._unsettled

    @abstractmethod
    def when_settled(self, callback: Callable[[], object]) -> None:
        """Call `callback` as soon as everything sent until now has been accepted, possibly at once."""

    @abstractmethod
    def tell_moment(self, moment: Moment) -> None:
        """Send a moment in a local profile to the coordinator, which may record it; it may get lost."""

    @abstractmethod
    def update_pilots(self, updates: Sequence[Update]) -> None:
        """Report states of pilots."""

    @abstractmethod
    def update_tasks(self, updates: Sequence[Update]) -> None:
        """Report states of tasks; of several states of one task, the last one suffices."""

    @abstractmethod
    def close(self) -> None:
        """Say goodbye and release all resources; messages that are not settled may be lost."""


class ClientConnection(Connection):
    """The client's side: sends pilots, tasks and commands, receives updates."""

    _handler: ClientHandler = ClientHandler()

    def open(self, handler: ClientHandler) -> None:
        """Make all further calls to this handler; before that, they are ignored."""
        self._handler = handler

    @abstractmethod
    def insert_pilots(self, pilots: Mapping[str, Mapping[str, Any]], owner: str = '') -> None:
        """Insert pilots by uid, with a record of plain data and their owner; required before tasks for them."""

    keeps_chunks = False
    """True if the coordinator keeps the chunks of sweeps whole until an agent takes their tasks."""

    @abstractmethod
    def insert_batch(self, pilot: str, batch: Batch, owner: str = '') -> None:
        """Bind at most `BULK` new tasks to a pilot (`UNBOUND`: only store them), and store their owner.

        If the coordinator `keeps_chunks`, the uid of a chunk stands for all of its tasks in `bind_tasks` and
        `update_tasks` until an agent takes them; these calls make tasks of a chunk that contains one of their uids.
        """

    @abstractmethod
    def withdraw(self, uids: Sequence[str]) -> None:
        """Request chunks and tasks back from the pilots that they are bound to, if no agent has taken them.

        The answer for a task that no agent has taken is an update to AGENT_SCHEDULING with the information `returned`:
        its pilot; it is unbound then. For a chunk, there is always an answer: if an agent has taken its tasks,
        `returned` is empty, and all that agents have reported before on the tasks has been delivered.
        """

    @abstractmethod
    def bind_tasks(self, pilot: str, uids: Sequence[str]) -> None:
        """Bind at most `BULK` stored tasks to this pilot, as if they were new there.

        Tasks that are already bound to it, and those that have left their agent, are unchanged. The others keep the
        information of their last update, such as their attempts elsewhere, until the next one has some.
        """

    @abstractmethod
    def forget_tasks(self, uids: Sequence[str]) -> None:
        """Delete the data of those of at most `BULK` tasks that are final, except for uids and states.

        A client that takes over finds them without owner.
        """

    @abstractmethod
    def command(self, pilot: str, command: Mapping[str, Any]) -> None:
        """Send a command to all agents of a pilot; an agent receives the commands of one client in order."""

    @abstractmethod
    def note(self, key: str, value: Any) -> None:
        """Store plain data under a key, replacing a previous value; for a client that takes over (`recover`)."""

    @property
    @abstractmethod
    def mark(self) -> Mark:
        """Covers all updates that were delivered here, and at least those sent ones that were accepted."""

    @abstractmethod
    def acknowledge(self, owners: Sequence[str], mark: Mark) -> None:
        """Record that the application was notified of the states of these owners' entities up to the mark."""

    @abstractmethod
    def recover(self, on_page: Callable[[Page], None]) -> None:
        """Deliver the session's data page by page; changes of tasks and pilots follow only after the last page.

        Call this before sending anything else. A client that takes over a session receives nothing before.
        """

    def finish(self, done: Callable[[], object]) -> None:
        """Close the session after everything sent before; `done` is called when that is accepted.

        Only `close` may follow. A backend whose `close` waits for the answer closes the session there.
        """
        self.when_settled(done)

    @abstractmethod
    def detach(self) -> None:
        """Close, but leave the session open: its pilots continue, and another client may take over."""


class AgentConnection(Connection):
    """The agent's side: receives tasks and commands in the order in which they were sent, sends updates."""

    _handler: AgentHandler = AgentHandler()

    def open(self, handler: AgentHandler) -> None:
        """Make all further calls to this handler; before that, they are ignored."""
        self._handler = handler

    @abstractmethod
    def hold(self, on: bool) -> None:
        """Stop requesting tasks (those in flight still arrive), or request them again. Commands always arrive."""

    @abstractmethod
    def follow_tasks(self, uids: Sequence[str]) -> None:
        """Call `AgentHandler.on_followed` as soon as each of these tasks, of any pilot, has left its agent or is final.

        A task that the coordinator does not know may still come, unless its client has ended.
        """

    @abstractmethod
    def unsettled(self) -> list[Update]:
        """Return the updates of tasks that were sent but not accepted, for an agent that has to end without them."""

    def remove_endpoint(self) -> None:
        """Remove the files that a coordinator which does not return has left on this host."""
        return   # most coordinators leave none
