"""The coordination contract: what the client and the agents can rely on, whichever backend carries it.

- Tasks go in by the bulk and each is handed to exactly one agent: the one of the pilot that it is bound to.
- Delivery is at least once, effects are exactly once: what is sent again after a restart of the hub is recognised by
  its uid (tasks, pilots) or changes nothing (states only move forward).
- What was accepted is kept until the session ends; a restarted hub serves it again.
- Commands have no uids: after a restart of the hub one may arrive twice, so that obeying it again must do no harm.
- Nothing here blocks. All methods are called in the thread of the connection's event loop; all callbacks come there.
- `room` is False while too much is on its way; `on_room` is called when more can be sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

PROTOCOL = 1
"""Version of the messages between client, hub and agents; peers of another version are refused."""

BULK = 1024
"""Most entities in one message."""


class Update(NamedTuple):
    """A state that a pilot or task has reached, and what became known with it."""

    uid: str
    state: str
    info: dict[str, Any] | None = None


class Submission(NamedTuple):
    """A task on its way to a pilot: its uid and its description, both as plain data."""

    uid: str
    description: Mapping[str, Any]


def _nobody(*_: Any) -> None:
    """Default of the callbacks: nobody wants to know."""


class Connection(ABC):
    """What both sides of the coordination have in common."""

    def __init__(self) -> None:
        self.on_lost: Callable[[str], None] = _nobody
        self.on_found: Callable[[], None] = _nobody
        self.on_refused: Callable[[str], None] = _nobody
        self.on_room: Callable[[], None] = _nobody

    @property
    @abstractmethod
    def room(self) -> bool:
        """Whether more can be sent now."""

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether everything that was sent has been accepted (and will survive a restart)."""

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

    @abstractmethod
    def insert_pilots(self, pilots: Mapping[str, Mapping[str, Any]]) -> None:
        """Make pilots known, by uid; must come before tasks for them."""

    @abstractmethod
    def insert_tasks(self, pilot: str, tasks: Sequence[Submission]) -> None:
        """Hand at most `BULK` tasks to the agent of a pilot."""

    @abstractmethod
    def command(self, pilot: str, command: Mapping[str, Any]) -> None:
        """Send a command to the agent of a pilot; commands and tasks arrive in the order in which they were sent."""


class AgentConnection(Connection):
    """The agent's side: gets tasks and commands, gives updates."""

    def __init__(self) -> None:
        super().__init__()
        self.on_tasks: Callable[[list[dict[str, Any]]], None] = _nobody
        self.on_command: Callable[[dict[str, Any]], None] = _nobody
