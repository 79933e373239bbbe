"""The common part of the connections of clients and agents to the hub of their session."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import zmq

from rp_api.coordination import wire
from rp_api.coordination.contract import PROTOCOL, Connection, Update
from rp_api.loop.event_loop import Loop
from rp_api.system.host import host_id
from rp_api.system.processes import start_time
from rp_api.transport import connection as link
from rp_api.transport.access import Access
from rp_api.transport.clocks import ClockReader
from rp_api.transport.connection import PeerWatch
from rp_api.transport.resend import ResendQueue
from rp_api.wire import codec
from rp_profiling.write.host_clock import SAME, Moment

PING_INTERVAL_S = 2.0
"""Seconds between heartbeats."""

RECONNECT_INTERVALS_MS = (10, 20)
"""Milliseconds between attempts to connect, first and later; most of them occur while the hub starts."""

FINAL_PING_INTERVAL_S = 0.25
"""Seconds between heartbeats at the end, when the application waits for the answer."""

SILENCE_TIMEOUT_S = 60.0
"""Seconds after which a hub on another host that does not answer is considered lost."""

_log = logging.getLogger('radical.pilot.coordination')


class HubConnection(Connection):
    """A DEALER socket to the hub that resends unacknowledged messages after each reconnect.

    It sends a hello on each new connection, and nothing else until the welcome.
    """

    def __init__(self, loop: Loop, access: Access, role: str, uid: str, agent: str = '') -> None:
        self._loop = loop
        self._endpoint = access.address
        instance = os.urandom(8).hex()
        self._hello = {'protocol': PROTOCOL, 'role': role, 'uid': uid, 'agent': agent, 'host': host_id(),
                       'host_name': os.uname().nodename, 'pid': os.getpid(), 'started': start_time(os.getpid()),
                       'instance': instance, 'hold': False, 'recover': False}
        self._unsettled: ResendQueue[bytes] = ResendQueue()
        self._cursors = 0, 0   # revisions of tasks and of other data
        self._greeting = False
        self._welcome = False
        self._lost = False
        self._finishing = False
        self._finished = False
        self._closed = False
        self._hub = PeerWatch()
        self._awaited: deque[tuple[int, Callable[[], object]]] = deque()
        self._clock = ClockReader(lambda sent: self._post([0, 'clock', sent]),
                                  lambda reading: self._handler.on_clock(reading))
        self._handlers: dict[str, Callable[..., None]] = {
            'who': self._on_who, 'pong': self._on_pong, 'welcome': self._on_welcome, 'time': self._clock.answer,
            'refused': self._on_refused, 'ack': self._on_ack, 'feed': self._on_feed}
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._link = link.PeerConnection(loop, zmq.DEALER, access.address, access.keys, access.server_key,
                                         self._context, self._receive, self._say_hello, self._on_refused)
        self._socket = self._link.socket
        self._socket.setsockopt(zmq.IDENTITY, instance.encode())
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.reconnect_ivl, self._socket.reconnect_ivl_max = RECONNECT_INTERVALS_MS
        self._link.open()
        self._timer = loop.call_later(PING_INTERVAL_S, self._ping)

    def when_settled(self, callback: Callable[[], object]) -> None:
        if self._unsettled:
            self._awaited.append((self._unsettled.sent, callback))
        else:
            callback()

    def update_pilots(self, updates: Sequence[Update]) -> None:
        self._send('update_pilots', wire.packed(updates))

    def update_tasks(self, updates: Sequence[Update]) -> None:
        for part in wire.parts(wire.packed(updates)):
            self._send('update_tasks', part)

    def tell_moment(self, moment: Moment) -> None:
        self._post([0, 'moment', moment.message, moment.there])

    def remove_endpoint(self) -> None:
        """Remove the socket of a local hub that does not return, and its directory if it is empty."""
        scheme, _, path = self._endpoint.partition('://')
        if scheme == 'ipc':
            with suppress(OSError):
                os.unlink(path)
            with suppress(OSError):
                os.rmdir(os.path.dirname(path))

    def close(self) -> None:
        self._leave('bye')

    def _leave(self, last_message: str) -> None:
        if self._closed:
            return
        self._closed = True
        self._timer.cancel()
        if not self._finished:
            if not self._welcome:   # the hub ignores other messages before a hello
                self._say_hello()
            self._post([0, last_message])
        self._hub.stop()
        self._link.close(0 if self._lost or self._finished else 0.5)
        self._context.term()

    def _send(self, operation: str, *arguments: Any) -> None:
        """Send a message that must arrive: it is kept and resent until the hub has acknowledged it."""
        data = codec.pack([self._unsettled.sent + 1, operation, *arguments])
        self._unsettled.add(data)
        if self._welcome:
            self._post_raw(data)

    def _post(self, message: list[Any]) -> None:
        self._post_raw(codec.pack(message))

    def _post_raw(self, data: bytes) -> None:
        try:
            self._socket.send(data, zmq.NOBLOCK)
        except zmq.Again:   # not connected: what must arrive is resent after the next welcome
            _log.debug('no connection to the hub, a message is deferred')

    def _say_hello(self) -> None:
        """Send a hello, on a new connection or at the hub's request."""
        if self._finished:
            return
        self._greeting = True
        self._welcome = False
        since, others = self._cursors
        self._post([0, 'hello', self._hello | {'since': since, 'others': others,
                                               'settled': self._unsettled.acknowledged}])

    def _receive(self) -> None:
        for (data,) in link.arrivals(self._socket):
            self._hub.hear()
            kind, *arguments = codec.unpack(data)
            self._handlers[kind](*arguments)

    def _on_who(self) -> None:
        if not self._greeting:   # once suffices, however many messages the hub dropped
            self._say_hello()

    def _on_pong(self, kept: int, rev: int, since: int, others_since: int) -> None:
        if self._greeting:
            return
        if self._lost:   # it did not answer for a while, and does not know that it was considered lost
            self._say_hello()
            return
        self._on_ack(kept, rev)
        self._compare((since, others_since))

    def _compare(self, sent: tuple[int, int]) -> None:
        """Request what the hub has sent and what has not arrived."""
        if sent != self._cursors:
            self._say_hello()

    def _on_welcome(self, hub: dict[str, Any]) -> None:
        if self._welcome:   # the answer to a repeated hello
            return
        self._greeting = False
        self._welcome = True
        self._hub.stop()
        if hub['host'] != host_id():
            self._clock.start()
        elif self._hub.start(self._loop, hub['pid'], hub.get('started'), self._hub_died):
            self._handler.on_clock(SAME)
        else:
            self._hub_died()
            return
        for data in self._unsettled:
            self._post_raw(data)
        if self._lost:
            self._lost = False
            self._handler.on_found()

    def _on_refused(self, reason: str) -> None:
        self._timer.cancel()
        self._greeting, self._welcome = True, False
        self._finished = True   # another hello would evict the peer that now has its place
        self._handler.on_refused(reason)

    def _on_ack(self, number: int, rev: int) -> None:
        full = not self.room
        if not self._unsettled or number <= self._unsettled.acknowledged:
            return
        self._unsettled.acknowledge(number)
        while self._awaited and self._awaited[0][0] <= number:
            self._awaited.popleft()[1]()
        if full or not self._unsettled:
            self._handler.on_room()

    def _on_feed(self, since: int, others_since: int, upto: int, others_upto: int, tasks: list[Any],
                 others: list[Any]) -> None:
        own, others_own = self._cursors
        if since > own or others_since > others_own:   # a message in between was lost
            self._on_who()
            return
        if upto > own or others_upto > others_own:   # otherwise it is a duplicate
            self._cursors = max(upto, own), max(others_upto, others_own)
            self._take(tasks, others)
        if not self._closed:
            self._post([0, 'seen', *self._cursors])

    @abstractmethod
    def _take(self, tasks: list[Any], others: list[Any]) -> None:
        """Handle an update from the hub."""

    @property
    def _holds(self) -> bool:
        """True if the hub must send nothing except answers."""
        return bool(self._hello['hold'] or self._hello['recover'])

    def _ping(self) -> None:
        if not self._lost and self._hub.silent(SILENCE_TIMEOUT_S):
            self._hub_lost('it does not answer')
        if self._greeting:   # the hello or its answer was lost, or takes long
            self._say_hello()
        else:
            self._post([0, 'ping', self._unsettled.sent, *self._cursors, self._holds])
            if self._welcome and not self._hub.by_process:   # it is on another host
                self._clock.due()
        self._ping_later()

    def _ping_later(self) -> None:
        """Schedule the next heartbeat, earlier if the application waits for the answer."""
        self._timer.cancel()
        interval = min(PING_INTERVAL_S, FINAL_PING_INTERVAL_S) if self._finishing else PING_INTERVAL_S
        self._timer = self._loop.call_later(interval, self._ping)

    def _hub_died(self) -> None:
        self._hub_lost('it died')

    def _hub_lost(self, how: str) -> None:
        self._hub.stop()
        self._welcome = self._greeting = False
        if not self._lost:
            self._lost = True
            self._handler.on_lost(how)
