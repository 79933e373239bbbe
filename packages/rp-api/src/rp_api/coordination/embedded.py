"""The embedded backend: connections of clients and agents to the hub of their session."""

from __future__ import annotations

import logging
import os
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, cast

import zmq

from rp_api.coordination.contract import BULK, PROTOCOL, AgentConnection, ClientConnection, Connection, Submission, Update
from rp_api.mesh import codec, keys
from rp_api.mesh.loop import Loop
from rp_api.host import host_id, pidfd_open

WINDOW = 8
"""Messages that may be on their way to the hub before `room` turns False."""

PING = 2.0
"""Seconds between signs of life; a lost hub is looked for more often."""

SILENCE = 60.0
"""Seconds after which a hub on another host that does not answer counts as lost."""

_log = logging.getLogger('radical.pilot.coordination')


class HubAddress:
    """Where a hub is and what is needed to be let in; plain data for configuration files (keep them private)."""

    __slots__ = ('endpoint', 'public', 'secret', 'server')

    def __init__(self, endpoint: str, server: str, public: str, secret: str) -> None:
        self.endpoint = endpoint
        self.server = server
        self.public = public
        self.secret = secret

    def as_dict(self) -> dict[str, str]:
        """The address as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


class _HubConnection(Connection):
    """A DEALER socket to the hub that sends again after a restart what had not been acknowledged."""

    def __init__(self, loop: Loop, address: HubAddress, role: str, uid: str, identity: str) -> None:
        super().__init__()
        self._loop = loop
        self._hello = {'protocol': PROTOCOL, 'role': role, 'uid': uid, 'host': host_id(), 'pid': os.getpid()}
        self._unsettled: deque[tuple[int, bytes]] = deque()
        self._number = 0
        self._cursor = 0
        self._welcome = False
        self._pidfd: int | None = None
        self._lost = False
        self._closed = False
        self._heard = time.monotonic()
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IDENTITY, identity.encode())
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 20)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        keys.make_client(self._socket, keys.KeyPair(address.public.encode(), address.secret.encode()),
                         address.server.encode())
        self._socket.connect(address.endpoint)
        loop.add_socket(self._socket, self._receive)
        self._say_hello()
        self._timer = loop.call_later(PING, self._ping)

    @property
    def room(self) -> bool:
        return len(self._unsettled) < WINDOW

    @property
    def settled(self) -> bool:
        return not self._unsettled

    def update_pilots(self, updates: Sequence[Update]) -> None:
        self._send('update_pilots', _packed(updates))

    def update_tasks(self, updates: Sequence[Update]) -> None:
        for first in range(0, len(updates), BULK):
            self._send('update_tasks', _packed(updates[first:first + BULK]))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._timer.cancel()
        self._post([0, 'bye'])
        self._loop.remove_socket(self._socket)
        self._forget_hub()
        self._socket.close(linger=0 if self._lost else 500)
        self._context.term()

    def _send(self, operation: str, *arguments: Any) -> None:
        """Send something that must arrive: it is kept, and sent again, until the hub has it safely."""
        self._number += 1
        data = codec.pack([self._number, operation, *arguments])
        self._unsettled.append((self._number, data))
        if self._welcome:
            self._post_raw(data)

    def _post(self, message: list[Any]) -> None:
        self._post_raw(codec.pack(message))

    def _post_raw(self, data: bytes) -> None:
        try:
            self._socket.send(data, zmq.NOBLOCK)
        except zmq.Again:   # not connected at the moment; what matters is sent again after the next welcome
            _log.debug('a message has to wait for the hub')

    def _say_hello(self) -> None:
        self._welcome = False
        self._post([0, 'hello', self._hello | {'since': self._cursor}])

    def _receive(self) -> None:
        while not self._closed:
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._heard = time.monotonic()
            kind, *arguments = codec.unpack(data)
            getattr(self, f'_on_{kind}')(*arguments)

    def _on_who(self) -> None:
        self._say_hello()

    def _on_pong(self) -> None:
        if self._lost and self._welcome:
            self._found()

    def _on_welcome(self, hub: dict[str, Any]) -> None:
        self._welcome = True
        self._forget_hub()
        if hub['host'] == host_id():
            self._pidfd = pidfd_open(hub['pid'])
            if self._pidfd is not None:
                self._loop.add_fd(self._pidfd, lambda: self._hub_lost('it died'))
        for _, data in self._unsettled:
            self._post_raw(data)
        if self._lost:
            self._found()

    def _on_refused(self, reason: str) -> None:
        self.on_refused(reason)

    def _on_ack(self, number: int) -> None:
        full = not self.room
        while self._unsettled and self._unsettled[0][0] <= number:
            self._unsettled.popleft()
        if full or not self._unsettled:
            self.on_room()

    def _on_feed(self, cursor: int, tasks: list[Any], others: list[Any]) -> None:
        self._cursor = max(self._cursor, cursor)
        self._take(tasks, others)
        if not self._closed:
            self._post([0, 'seen'])

    @abstractmethod
    def _take(self, tasks: list[Any], others: list[Any]) -> None:
        """Take in what the hub has sent."""

    def _ping(self) -> None:
        if self._pidfd is None and not self._lost and self._heard < time.monotonic() - SILENCE:
            self._hub_lost('it is silent')
        self._post([0, 'ping'])
        self._timer = self._loop.call_later(PING / 10 if self._lost else PING, self._ping)

    def _hub_lost(self, how: str) -> None:
        self._forget_hub()
        self._welcome = False
        if not self._lost:
            self._lost = True
            self._timer.cancel()
            self._timer = self._loop.call_later(PING / 10, self._ping)
            self.on_lost(how)

    def _found(self) -> None:
        self._lost = False
        self.on_found()

    def _forget_hub(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_fd(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None


class HubClientConnection(_HubConnection, ClientConnection):
    """The client's connection to its hub."""

    def __init__(self, loop: Loop, address: HubAddress, session: str) -> None:
        super().__init__(loop, address, 'client', session, f'client:{os.getpid()}')

    def insert_pilots(self, pilots: Mapping[str, Mapping[str, Any]]) -> None:
        self._send('pilots', [(uid, codec.pack(description)) for uid, description in pilots.items()])

    def insert_tasks(self, pilot: str, tasks: Sequence[Submission]) -> None:
        shared, bodies = codec.pack_bulk([task.description for task in tasks])
        self._send('tasks', pilot, shared, [(task.uid, body) for task, body in zip(tasks, bodies, strict=True)])

    def command(self, pilot: str, command: Mapping[str, Any]) -> None:
        self._send('command', pilot, codec.pack(command))

    def _take(self, tasks: list[Any], others: list[Any]) -> None:
        if tasks:   # first: the end of a pilot must not hide results that came before it
            self.on_tasks(_unpacked(tasks))
        if others:
            self.on_pilots(_unpacked(others))


class HubAgentConnection(_HubConnection, AgentConnection):
    """An agent's connection to the hub of its session."""

    def __init__(self, loop: Loop, address: HubAddress, pilot: str) -> None:
        super().__init__(loop, address, 'agent', pilot, f'agent:{pilot}')

    def _take(self, tasks: list[Any], others: list[Any]) -> None:
        for shared, bulk in tasks:
            descriptions = codec.unpack_bulk(shared, [body for _, body in bulk])
            for (uid, _), description in zip(bulk, descriptions, strict=True):
                description['uid'] = uid
            self.on_tasks(descriptions)
        for command in others:
            self.on_command(cast(dict[str, Any], codec.unpack(command)))


def _packed(updates: Sequence[Update]) -> list[tuple[str, str, bytes | None]]:
    return [(uid, state, codec.pack(info) if info else None) for uid, state, info in updates]


def _unpacked(rows: Sequence[Any]) -> list[Update]:
    return [Update(uid, state, codec.unpack(info) if info else None) for uid, state, info in rows]
