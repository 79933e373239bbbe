"""A master's connection to the agent; `rp_api.raptor_link` defines the messages."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, Protocol

import zmq

from rp_api import raptor_link
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.raptor_link import BULK
from rp_api.transport.access import Access
from rp_api.transport.connection import PeerConnection, arrivals
from rp_api.transport.keys import Tally
from rp_api.transport.resend import Resender
from rp_api.wire import codec
from rp_raptor.wire.protocol import Handlers

RECONNECT_TIMEOUT = 60.0
"""Seconds without a connection after which the agent counts as lost."""

DELAY_PER_TASK, MIN_DELAY, MAX_DELAY = 1e-4, 1e-3, 0.02
"""Seconds that a result may wait to share a message with others, per task that the agent has sent and waits for; delays
below the second value become 0, the third is the limit."""

_log = logging.getLogger('radical.pilot.raptor')


class Boss(Protocol):
    """The handler of the agent's messages."""

    def on_tasks(self, common: bytes, uids: list[str], sandboxes: list[str], rests: list[bytes]) -> None:
        """Take tasks that were requested; see `rp_api.raptor_link`."""

    def on_cancel(self, uids: list[str]) -> None:
        """Cancel tasks."""

    def on_give_back(self, count: int) -> None:
        """Return tasks for any master that no rank has started."""

    def on_task_state(self, uid: str, state: str, result: dict[str, Any] | None) -> None:
        """Take the state of a submitted task."""

    def on_rpc(self, number: int, command: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Handle a remote call of an application."""

    def on_stop(self, reason: str) -> None:
        """End the master for a reason."""

    def on_agent_lost(self, reason: str) -> None:
        """Handle the loss of the agent."""


class AgentLink:
    """Connects to the agent at `access` and announces `for_applications` there. For the loop's thread only."""

    def __init__(self, loop: Loop, context: zmq.Context[Any], access: Access, uid: str, for_applications: Access,
                 boss: Boss) -> None:
        self._loop = loop
        self._hello = 'hello', uid, os.getpid(), for_applications.as_dict()
        self._boss = boss
        self._malformed = Tally('malformed message of the agent dropped')
        self._resender = Resender()
        self._handlers: Handlers = {
            'welcome': self._nothing, 'tasks': self._on_tasks, 'cancel': boss.on_cancel,
            'give_back': boss.on_give_back, 'stop': boss.on_stop, 'task_state': boss.on_task_state,
            'rpc': boss.on_rpc, 'got': self._resender.has_come, 'again': self._again}
        self._uids: list[str] = []                        # of tasks whose results wait to be sent
        self._results: list[dict[str, Any] | bytes] = []
        self._owed = 0                                    # number of tasks that the agent waits for
        self._timer = loop.call_later(RECONNECT_TIMEOUT, self._give_up)
        self._connection = PeerConnection(loop, zmq.DEALER, access.address, access.keys, access.server_key, context,
                                      self._receive, self._connected, boss.on_agent_lost, self._disconnected)
        self._connection.socket.sndhwm = 0   # the tasks that the agent has sent bound the messages
        self._connection.socket.routing_id = uid.encode()   # identifies the master after a reconnection
        self._connection.open()
        self._known = False
        self._say(*self._hello)   # the first message

    def send(self, *message: Any) -> None:
        """Send a message, again if the connection breaks before it has arrived."""
        self._connection.socket.send_multipart(self._resender.say(codec.pack(message)), zmq.NOBLOCK)

    def _say(self, *message: Any) -> None:
        self._connection.socket.send(codec.pack(message), zmq.NOBLOCK)

    def results(self, uids: Sequence[str], results: Sequence[dict[str, Any] | bytes]) -> None:
        """Queue results of tasks, which may be packed; those of many tasks share few messages."""
        if not self._uids:
            delay = min(MAX_DELAY, DELAY_PER_TASK * self._owed)
            self._loop.call_later(delay if delay >= MIN_DELAY else 0, self._send_results)
        self._uids += uids
        self._results += results

    def returned(self, uids: Sequence[str]) -> None:
        """Return tasks that the agent has asked back."""
        self._owed = max(0, self._owed - len(uids))
        self.send('returned', uids)

    def _send_results(self) -> None:
        uids, self._uids = self._uids, []
        results, self._results = self._results, []
        self._owed = max(0, self._owed - len(uids))
        for first in range(0, len(uids), BULK):
            self.send('results', uids[first:first + BULK], results[first:first + BULK])

    def close(self, linger: float) -> None:
        """Send `bye` and close the connection; pending messages have `linger` seconds to be sent."""
        self._timer.cancel()
        self._send_results()
        self.send('bye')
        self._connection.close(linger)

    def _connected(self) -> None:
        self._timer.cancel()
        if self._known:   # messages of both sides may be lost
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
        """Ignore `welcome`."""
