"""The client's hold on the coordination of its session: how it is started, reached, watched and left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rp_api.coordination.contract import LEASE, ClientConnection
from rp_api.loop.event_loop import Loop


@dataclass(frozen=True, slots=True)
class Settings:
    """How a session wants to be coordinated; what is empty is not asked for.

    `dburl` names a MongoDB, `hub_url` a stand-alone hub. Otherwise the session has a hub of its own, which also listens
    at the network interface `listen` (`tcp://<interface>[:<port>]`), and whose agents are told to connect to `address`
    (what a tunnel or a gateway makes of it). `lease` are the seconds after which a silent agent counts as lost,
    `orphan_timeout` those that pilots without work wait for an application that died.
    """

    dburl: str = ''
    hub_url: str = ''
    listen: str = ''
    address: str = ''
    lease: float = LEASE
    orphan_timeout: float = 60.0


class Coordinator(ABC):
    """Starts or finds what coordinates one session.

    `endpoint` is its address for people and traces, without any secret. `agent_access` is what agents need to reach it
    (`connect.agent_connection`), plain data with secrets: to be kept private. `attached` tells that the session was
    there before, and open: a client that takes it over calls `ClientConnection.recover`, before which it is given
    nothing.
    """

    endpoint: str
    agent_access: dict[str, Any]
    attached: bool = False

    @abstractmethod
    def start(self) -> None:
        """Start or find it; returns when it serves. Raises CoordinationError, with the reason, if it does not."""

    @abstractmethod
    def connect(self, loop: Loop) -> ClientConnection:
        """The client's connection."""

    @abstractmethod
    def watch(self, loop: Loop) -> None:
        """From now on, start it again when it dies; an exception in the loop tells that this is in vain."""

    @property
    def reachable(self) -> bool:
        """Whether agents on other hosts find it at the address in `agent_access`."""
        return True

    def listen(self, address: str, done: Callable[[str], object]) -> None:
        """Become reachable at `tcp://<interface or address>:*`, in the loop; `done(error)` is called when it is."""
        done('')

    def ending(self) -> None:
        """From now on, in the loop's thread: once the session is closed, it is not to be started again."""
        return   # many do nothing of their own accord

    def when_open(self, callback: Callable[[], object]) -> None:
        """Call `callback()` in the loop as soon as another client can take the session over if this one dies."""
        callback()

    @abstractmethod
    def stop(self, patience: float, *, leave: bool = False) -> None:
        """Wait at most that many seconds for its end, end it then, leave nothing behind; `leave`: let it go on."""
