"""A master's connection to the agent; see `rp_api.raptor_link` for what is said."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import zmq

from rp_api import raptor_link
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.raptor_link import BULK, Access
from rp_api.transport.connection import Connection, arrivals
from rp_api.transport.keys import Tally
from rp_api.transport.resend import Resender
from rp_api.wire import codec

RECONNECT_TIMEOUT = 60.0
"""Seconds without a connection to the agent after which it counts as gone."""

DELAY_PER_TASK, MIN_DELAY, MAX_DELAY = 1e-4, 1e-3, 0.02
"""Seconds that a result may wait for others, for each task that the agent has given and waits for; what would wait for
less or more than the others."""

_log = logging.getLogger('radical.pilot.raptor')


class Boss(Protocol):
    """Who does what the agent wants."""

    def on_tasks(self, common: bytes, uids: list[str], sandboxes: list[str], rests: list[bytes]) -> None:
        """Tasks that were asked for; see `rp_api.raptor_link`."""

    def on_cancel(self, uids: list[str]) -> None:
        """Tasks that are not wanted any more."""

    def on_task_state(self, uid: str, state: str, result: dict[str, Any] | None) -> None:
        """What the agent has made of a task that was submitted."""

    def on_rpc(self, number: int, command: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Somebody wants something done."""

    def on_stop(self) -> None:
        """The master shall end."""

    def on_agent_lost(self, reason: str) -> None:
        """The agent is gone."""


class AgentLink:
    """Speaks with the agent at `access`; `for_applications` is what applications are told. For the loop's thread."""

    def __init__(self, loop: Loop, context: zmq.Context[Any], access: Access, uid: str, for_applications: Access,
                 boss: Boss) -> None:
        self._loop = loop
        self._hello = 'hello', uid, os.getpid(), for_applications.as_dict()
        self._boss = boss
        self._malformed = Tally('malformed message of the agent dropped')
        self._handlers: dict[str, Callable[..., object]] = {
            'welcome': self._nothing, 'tasks': self._on_tasks, 'cancel': boss.on_cancel, 'stop': boss.on_stop,
            'task_state': boss.on_task_state, 'rpc': boss.on_rpc}
        self._resender = Resender()
        self._handlers |= {'got': self._resender.has_come, 'again': self._again}
        self._uids: list[str] = []                        # of tasks whose results wait for others
        self._results: list[dict[str, Any] | bytes] = []
        self._owed = 0                                    # how many tasks the agent waits for
        self._timer = loop.call_later(RECONNECT_TIMEOUT, self._give_up)
        self._connection = Connection(loop, zmq.DEALER, access.address, access.keys, access.server_key, context,
                                      self._receive, self._connected, boss.on_agent_lost, self._disconnected)
        self._connection.socket.sndhwm = 0   # what there is to say is bounded by what the agent has given
        self._connection.socket.routing_id = uid.encode()   # the agent knows it again after a reconnection
        self._connection.open()
        self._known = False
        self._say(*self._hello)   # before anything else

    def send(self, *message: Any) -> None:
        """Send a message, which arrives also if the connection breaks meanwhile."""
        self._connection.socket.send_multipart(self._resender.say(codec.pack(message)), zmq.NOBLOCK)

    def _say(self, *message: Any) -> None:
        self._connection.socket.send(codec.pack(message), zmq.NOBLOCK)

    def results(self, uids: Sequence[str], results: Sequence[dict[str, Any] | bytes]) -> None:
        """Send results of tasks, which may be packed, those of many in few messages."""
        if not self._uids:
            delay = min(MAX_DELAY, DELAY_PER_TASK * self._owed)
            self._loop.call_later(delay if delay >= MIN_DELAY else 0, self._send_results)
        self._uids += uids
        self._results += results

    def _send_results(self) -> None:
        uids, self._uids = self._uids, []
        results, self._results = self._results, []
        self._owed = max(0, self._owed - len(uids))
        for first in range(0, len(uids), BULK):
            self.send('results', uids[first:first + BULK], results[first:first + BULK])

    def close(self, linger: float) -> None:
        """Say goodbye, and leave; what was said is sent within so many seconds."""
        self._timer.cancel()
        self._send_results()
        self.send('bye')
        self._connection.close(linger)

    def _connected(self) -> None:
        self._timer.cancel()
        if self._known:   # both may have missed something
            self._say(*self._hello)
            self._say('again', self._resender.heard)
        self._known = True

    def _disconnected(self) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_later(RECONNECT_TIMEOUT, self._give_up)

    def _give_up(self) -> None:
        self._boss.on_agent_lost(f'there is no connection to it for {RECONNECT_TIMEOUT:.0f} s')

    def _receive(self) -> None:
        for frames in arrivals(self._connection.socket):
            try:
                data = self._resender.hear(frames)
                if data is not None:
                    operation, arguments = raptor_link.from_agent(data)
                    self._handlers[operation](*arguments)
            except CoordinationError as error:
                self._malformed.add(error)
        if not self._connection.socket.closed and (number := self._resender.to_tell()):
            self._say('got', number)

    def _again(self, number: int) -> None:
        for frames in self._resender.again(number):
            self._connection.socket.send_multipart(frames, zmq.NOBLOCK)

    def _on_tasks(self, common: bytes, uids: list[str], sandboxes: list[str], rests: list[bytes]) -> None:
        self._owed += len(uids)
        self._boss.on_tasks(common, uids, sandboxes, rests)

    def _nothing(self, _: object) -> None:
        """The agent knows this master."""
