"""Links of a manager to its master: what carries messages, as bytes, in both directions.

`ZmqLink` is a connection of its own. `CarriedLink` goes through the carriers to the first manager, which has a
`ZmqLink` for it, see `rp_raptor.worker.relay`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

import zmq

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop, Timer
from rp_api.system.shared_directory import place
from rp_api.transport.access import Access
from rp_api.transport.connection import PeerConnection, arrivals
from rp_raptor.carriers.channel import FIRST_KIND, Channel, OpenFile
from rp_raptor.carriers.listener import CarrierListener
from rp_raptor.worker.carried_calls import CarriedFiles, results_placed, with_files
from rp_raptor.worker.carried_objects import ObjectPipe
from rp_raptor.worker.detour import Detour
from rp_raptor.worker.job_process import refusal

_WELCOME_TIMEOUT = 60.0   # seconds for the master's file to appear, and for its first message
_CHECK_INTERVAL_S = 0.2   # seconds between looks for the file

_START_TIMEOUT = 150.0     # seconds for the first way to the master
_RESTART_TIMEOUT = 30.0    # seconds for another one; a master that hears nothing gives a part up after 60
_LOOK_INTERVAL_S = 1.0     # between looks whether carriers are still to come

FRAME, CONNECTED, REFUSED, CLOSED, OBJECT, NO_OBJECT = range(FIRST_KIND, FIRST_KIND + 6)
"""Kinds of messages of a channel: one from or to the master; a handshake, with the place of the first manager; the
master is lost; the part has ended; it wants an object from the first manager; this will not come."""


class LinkUser(Protocol):
    """What uses a link."""

    def connected(self) -> None:
        """Handle a handshake: all messages from before it may be lost."""

    def received(self, data: bytes) -> None:
        """Handle a message of the master."""

    def lost(self, reason: str) -> None:
        """Handle the end of the master."""


class ObjectUser(LinkUser, Protocol):
    """What uses a link to get objects, too."""

    def object_came(self, id: bytes, file: OpenFile | None) -> None:
        """Handle an object that was asked for; it will not come if there is no file."""


class MasterLink(Protocol):
    """A link; messages that are sent before the first handshake are dropped."""

    @property
    def place(self) -> str:
        """The place whose files the master may refer to, see `rp_api.system.shared_directory.place`."""

    def send(self, data: bytes, *, filed: bool = False) -> None:
        """Send a message; `filed` says that it has results in files that carriers take."""

    def receive(self) -> None:
        """Handle the messages that have arrived."""

    def done(self, ids: Iterable[int]) -> None:
        """Note that calls have ended here."""

    def ask(self, id: bytes) -> bool:
        """Ask the first manager for an object; False if carriers cannot bring it."""

    def close(self) -> None:
        """Close the link after pending messages are sent."""


OpenLink = Callable[[ObjectUser], MasterLink]


class ZmqLink:
    """A connection to the master, whose address is in the file at `path`."""

    def __init__(self, loop: Loop, path: str, user: LinkUser) -> None:
        self._loop = loop
        self._path = path
        self._user = user
        self._connection: PeerConnection | None = None
        self._greeted = self._answered = False
        self._deadline = time.monotonic() + _WELCOME_TIMEOUT
        self._timer = loop.call_later(0, self._open)

    @property
    def place(self) -> str:
        """The place of this process."""
        return place()

    def send(self, data: bytes, *, filed: bool = False) -> None:
        """Send a message."""
        if self._connection is not None and self._greeted:
            self._connection.socket.send(data)

    def receive(self) -> None:
        """Handle the messages that have arrived."""
        assert self._connection is not None
        for frames in arrivals(self._connection.socket):
            self._answered = True
            self._user.received(frames[-1])

    def done(self, ids: Iterable[int]) -> None:
        """Note nothing: files of calls are the caller's."""

    def ask(self, id: bytes) -> bool:
        """Ask nobody."""
        return False

    def close(self) -> None:
        """Close the link after pending messages are sent."""
        self._timer.cancel()
        if self._connection is not None:
            self._connection.close()

    def _open(self) -> None:
        if not os.path.exists(self._path) and time.monotonic() < self._deadline:
            # shared file systems show files of other nodes late
            self._timer = self._loop.call_later(_CHECK_INTERVAL_S, self._open)
            return
        try:
            access = Access.load(self._path)
            self._connection = PeerConnection(self._loop, zmq.DEALER, access.address, access.keys, access.server_key,
                                              None, self.receive, self._greet, self._user.lost)
            self._connection.socket.sndhwm = 0   # the calls of the worker bound the messages
            self._connection.open()
            self._timer = self._loop.call_at(self._deadline, self._check)
        except CoordinationError as error:
            self._user.lost(str(error))

    def _greet(self) -> None:
        self._greeted = True
        self._user.connected()

    def _check(self) -> None:
        if not self._answered:
            self._user.lost(f'no master has answered within {_WELCOME_TIMEOUT:g} s')


class CarriedLink:
    """The link of a manager that is not the first one: over carriers or, if there are none, a connection of its own.

    Without carriers, it makes a detour over ZeroMQ to the first manager or, if that has ended or none have ever come,
    gets a connection of its own.
    """

    def __init__(self, loop: Loop, name: str, path: str, part: int, job_path: str, detour_path: str,
                 listen: Callable[[Channel, ObjectPipe], CarrierListener], user: ObjectUser) -> None:
        self._loop = loop
        self._name = name
        self._path = path
        self._part = part
        self._job_path = job_path
        self._detour_path = detour_path
        self._user = user
        self._direct: ZmqLink | None = None
        self._detour: Detour | None = None
        self._greeted = self._closing = False
        self._place = ''
        self._files = CarriedFiles()
        self._channel = Channel(loop, self._heard, self._changed)
        self._objects = ObjectPipe(self._object_came, self._objects_lost)
        self._asked: set[bytes] = set()   # objects
        self._listener = listen(self._channel, self._objects)
        self._timer: Timer | None = None
        self._look(time.monotonic() + _START_TIMEOUT)

    @property
    def place(self) -> str:
        """The place of the first manager, which passes on files, or of this process."""
        return place() if self._direct is not None else self._place

    def send(self, data: bytes, *, filed: bool = False) -> None:
        """Send a message."""
        for message, files in with_files(data) if filed else [(data, [])]:
            if self._direct is not None:
                self._direct.send(results_placed(message, files, ''))
            elif self._greeted:
                self._channel.send(FRAME, message, files)

    def receive(self) -> None:
        """Handle the messages that have arrived, if the connection is this manager's own."""
        if self._direct is not None:
            self._direct.receive()

    def done(self, ids: Iterable[int]) -> None:
        """Note that calls have ended here."""
        self._files.done(ids)

    def ask(self, id: bytes) -> bool:
        """Ask the first manager for an object; False if carriers cannot bring it."""
        if not self._objects.open or self._channel.pipe is None:
            return False
        self._asked.add(id)
        self._channel.send(OBJECT, id)
        return True

    def close(self) -> None:
        """Close the link after pending messages are sent."""
        self._closing = True
        self._objects.close()
        self._files.close()
        self._stop_waiting()
        self._listener.close()
        if self._direct is not None:
            self._direct.close()
            return
        self._channel.send(CLOSED)
        self._channel.flush()
        self._channel.detach()
        self._close_detour()

    def _heard(self, kind: int, data: bytes, files: list[OpenFile]) -> None:
        if kind == FRAME:
            self._user.received(self._files.placed(data, files))
        elif kind == CONNECTED:
            self._greeted = True
            self._place = data.decode()
            self._user.connected()
            self._files.clear()   # of calls that were dropped, or whose results do not count
        elif kind == REFUSED:
            self._user.lost(data.decode())
        elif kind == NO_OBJECT:
            self._object_came(data, None)

    def _object_came(self, id: bytes, file: OpenFile | None) -> None:
        if id in self._asked:
            self._asked.discard(id)
            self._user.object_came(id, file)

    def _objects_lost(self) -> None:
        for id in [*self._asked]:
            self._object_came(id, None)

    def _changed(self) -> None:
        self._stop_waiting()
        if self._channel.pipe is None and not self._closing:
            self._look(time.monotonic() + _RESTART_TIMEOUT)
        elif self._channel.pipe is not self._detour:
            self._close_detour()

    def _look(self, deadline: float) -> None:
        """Wait for carriers, and look for another way."""
        if time.monotonic() > deadline:
            reason = 'its carrier does not come'
        elif not self._listener.awaited:
            reason = 'the first manager has ended'
        elif self._greeted or not (reason := refusal(self._job_path)):
            if self._detour is None and os.path.exists(self._detour_path):
                with suppress(CoordinationError):   # the first manager has just ended
                    self._detour = Detour(self._loop, self._detour_path, self._part, self._channel)
            self._timer = self._loop.call_later(_LOOK_INTERVAL_S, self._look, deadline)
            return
        print(f'{self._name}: {reason}: it has a connection of its own to the master', file=sys.stderr, flush=True)
        self._listener.close()
        self._close_detour()
        self._channel.detach()
        self._greeted = False
        self._direct = ZmqLink(self._loop, self._path, self._user)
        self._objects.close()
        self._objects_lost()

    def _close_detour(self) -> None:
        if self._detour is not None:
            self._detour.close()
            self._detour = None

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
