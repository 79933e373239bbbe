"""The client's interface to the coordinator of its session: start, connection, supervision and end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rp_api.coordination.contract import LEASE_S, ClientConnection
from rp_api.loop.event_loop import Loop


@dataclass(frozen=True, slots=True)
class Settings:
    """The coordination settings of a session.

    `dburl` is the URL of a MongoDB, `hub_url` that of a stand-alone hub. Without both, the session has its own hub,
    which also listens at the network interface `listen` (`tcp://<interface>[:<port>]`), and whose agents connect to
    `address` (that of a tunnel or a gateway). `lease` is the number of seconds after which an agent that does not
    answer is declared lost, `orphan_timeout` the number of seconds that pilots without work wait for an application
    that died.
    """

    dburl: str = ''
    hub_url: str = ''
    listen: str = ''
    address: str = ''
    lease: float = LEASE_S
    orphan_timeout: float = 60.0


class Coordinator(ABC):
    """The coordinator of one session, as the client starts or finds it.

    `endpoint` is its address for messages and traces, without secrets. `agent_access` is the plain data that agents
    need to reach it (`connect.agent_connection`), including secrets. `attached` is true if the session existed and is
    open: a client that takes it over calls `ClientConnection.recover`, and receives nothing before.
    """

    endpoint: str
    agent_access: dict[str, Any]
    attached: bool = False

    @abstractmethod
    def start(self) -> None:
        """Start or find the coordinator, and return when it serves; raise CoordinationError if it does not."""

    @abstractmethod
    def connect(self, loop: Loop) -> ClientConnection:
        """Return the client's connection."""

    @abstractmethod
    def watch(self, loop: Loop) -> None:
        """Restart the coordinator from now on when it dies; an exception in the loop reports that this failed."""

    @property
    def reachable(self) -> bool:
        """True if agents on other hosts reach it at the address in `agent_access`."""
        return True

    def listen(self, address: str, done: Callable[[str], object]) -> None:
        """Listen also at `tcp://<interface or address>:*`; `done(error)` is called in the loop afterwards."""
        done('')

    def ending(self) -> None:
        """Do not restart the coordinator after the end of the session; called in the loop's thread."""
        return   # many coordinators never restart

    def when_open(self, callback: Callable[[], object]) -> None:
        """Call `callback()` in the loop as soon as another client could take the session over from this one."""
        callback()

    @abstractmethod
    def stop(self, patience: float, *, leave: bool = False) -> None:
        """Wait at most `patience` seconds for its end, then stop it and clean up; `leave`: let it run."""
