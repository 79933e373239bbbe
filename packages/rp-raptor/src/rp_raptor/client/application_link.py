"""An application's connection to one master.

The connection opens when the master is up, sends `open` after each handshake, and keeps each call until its result has
arrived: the calls are sent again after a reconnection. The link is lost for good when the master has ended or has sent
nothing for `SILENCE` seconds. All methods run in the loop's thread.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from operator import not_
from typing import Any, Protocol
from weakref import ReferenceType

import zmq

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.states import FINAL
from rp_api.system.host import host_id
from rp_api.system.processes import start_time
from rp_api.system.shared_directory import place
from rp_api.transport.access import Access
from rp_api.transport.connection import PeerConnection, arrivals
from rp_api.transport.keys import Tally
from rp_raptor.objects.reference import Observer, Owned
from rp_raptor.objects.transfer import read_piece
from rp_raptor.wire import payload
from rp_raptor.wire.batch import Payloads, pack_message
from rp_raptor.wire.ids import Held, hold, release
from rp_raptor.wire.large_calls import sent_to_others
from rp_raptor.wire.protocol import APPLICATION, PING, PROTOCOL, SILENCE, Handlers, parse_from_master

BULK_BYTES = 4 << 20
"""Payload bytes at which a message is full."""


class MasterSide(Protocol):
    """The interface of a master's handle, as `radical.pilot.RaptorMaster` implements it."""

    @property
    def uid(self) -> str:
        """The master's unique id."""

    @property
    def state(self) -> str:
        """The state of the master's task."""

    @property
    def exception(self) -> str | None:
        """The error of a failed master."""

    @property
    def access(self) -> Mapping[str, Any] | None:
        """Address and keys of the master, see `rp_api.raptor_link.Access`; None until it is up."""


class ApplicationLink:
    """A connection to `master`; reports room, results and calls to resend to `owner`.

    It is a member of those that share the owner's calls, see `rp_api.balancing`. If there are others, `width` is the
    number of ranks of each call, else None.
    """

    def __init__(self, loop: Loop, master: MasterSide, name: str, owner: Owner, width: int | None) -> None:
        self.uid = master.uid
        self.free = 0            # the number of calls that the master accepts now
        self.ranks = 0           # the number of calls that its workers can run at a time
        self.asked = 0           # the number of calls that it was asked to give back
        self.exhausted = False   # it had none to give back, and has got no call and sent no result since
        self.calls: dict[int, Held] = {}
        self.lost = ''
        self.objects = ShownObjects(loop, self._send)
        self._loop = loop
        self._master = master
        self._name = name
        self._owner = owner
        self._width = width
        self._connection: PeerConnection | None = None
        self._met = False
        self._beside = True   # the master sees the files here
        self._address = ''
        self._heard = self._said = time.monotonic()
        self._malformed = Tally(f'malformed message of {master.uid}')
        self._on: Handlers = {
            'room': self._add_room, 'ranks': self._set_ranks, 'results': self._take_results,
            'returned': self._take_back, 'ended': self._end, 'refused': self._end, 'pong': self._nothing,
            'welcome': self._welcome, 'get_object': self.objects.give,
            'object_ready': owner.object_ready}

    @property
    def load(self) -> int:
        """The number of calls that the master has."""
        return len(self.calls)

    @property
    def waits(self) -> bool:
        """Return whether the master is not known to be up yet."""
        return self._connection is None and not self.lost

    def look(self) -> None:
        """Poll the state of the master, and check its heartbeat."""
        if self.lost:
            return
        state, access = self._master.state, self._master.access
        if state in FINAL:
            self._end(f'it is {state}' + (f': {self._master.exception}' if self._master.exception else ''))
        elif self._connection is None:
            self._heard = time.monotonic()
            if access is not None:
                self._connect(Access.read(access))
        else:
            self._keep_alive(time.monotonic())

    def define(self, fid: bytes, blob: bytes) -> None:
        """Send the definition of a function to the master."""
        if self._met:   # otherwise `_connected` sends all definitions
            self._send(['define', fid, blob])

    def give(self, numbers: array[int], payloads: Payloads, attributes: Mapping[str, Any] | None) -> None:
        """Send calls to the master: at most `free`, and at most one message's worth."""
        self.free -= len(numbers)
        self.exhausted = False
        hold(self.calls, numbers, payloads)
        message = ['calls', numbers, payloads, dict.fromkeys(numbers, attributes) if attributes else None]
        for each in [message] if self._beside else sent_to_others(message):
            self._send(each)

    def ask_back(self, number: int) -> None:
        """Ask the master to give back up to that many calls that no rank has started."""
        self.asked = number
        self._send(['give_back', number])

    def cancel(self, numbers: Sequence[int]) -> None:
        """Cancel calls; their results are discarded."""
        known = [number for number in numbers if self.calls.pop(number, None) is not None]
        if known:
            self._send(['cancel', array('Q', known)])

    def close(self) -> None:
        """Tell the master that this application leaves, and close the connection."""
        self.objects.disconnected()
        if self._connection is not None:
            if self._met:
                self._send(['close'])
            self._connection.close()
            self._connection = None

    def _connect(self, access: Access) -> None:
        self._address = access.address
        self._connection = PeerConnection(self._loop, zmq.DEALER, access.address, access.keys, access.server_key,
                                      None, self._receive, self._connected, self._end)
        self._connection.socket.sndhwm = 0   # the room that the master grants is the limit
        self._connection.open()

    def _connected(self) -> None:
        self._met = True
        self.free = self.ranks = self.asked = 0
        self._heard = time.monotonic()
        info = {'protocol': PROTOCOL, 'host': host_id(), 'pid': os.getpid(), 'started': start_time(os.getpid())}
        self._send(['open', self._name, info if self._width is None else {**info, 'share': self._width}])
        for fid, blob in self._owner.definitions.items():
            self._send(['define', fid, blob])
        self.objects.connected()
        self._give_up_calls()

    def _keep_alive(self, now: float) -> None:
        if now - self._heard > SILENCE:
            self._end(f'it has sent nothing for {SILENCE:.0f} seconds' if self._met else
                      f'no connection to {self._address} within {SILENCE:.0f} seconds')
        elif now - self._said >= PING:
            self._send(['ping'])

    def _send(self, message: list[Any]) -> None:
        assert self._connection is not None
        self._said = time.monotonic()
        self._connection.socket.send(pack_message(message), zmq.NOBLOCK)

    def _receive(self) -> None:
        assert self._connection is not None
        for frames in arrivals(self._connection.socket):
            try:
                operation, arguments = parse_from_master(b''.join(frames), APPLICATION)
            except CoordinationError as error:
                self._malformed.add(error)
                continue
            self._heard = time.monotonic()
            self._on[operation](*arguments)
        self._owner.deal()

    def _welcome(self, info: Mapping[str, Any]) -> None:
        self._beside = info.get('place') == place()

    def _add_room(self, number: int) -> None:
        self.free += number

    def _set_ranks(self, number: int) -> None:
        self.ranks = number
        self._owner.ranks_changed()

    def _take_results(self, numbers: array[int], payloads: Payloads) -> None:
        self.exhausted = False
        wanted = release(self.calls, numbers)
        if wanted is None:
            self._owner.results(numbers, payloads)
        else:   # some calls were cancelled, or were sent twice
            for result in compress(payloads, map(not_, wanted)):
                payload.discard(result)
            self._owner.results(array('Q', compress(numbers, wanted)), list(compress(payloads, wanted)))

    def _take_back(self, numbers: array[int]) -> None:
        """Hand calls back to the owner that no rank has started, without those that were cancelled meanwhile."""
        self.asked, self.exhausted = 0, not numbers
        self._owner.take_back({number: held.of(number) for number in numbers
                               if (held := self.calls.pop(number, None)) is not None})

    def _end(self, reason: str) -> None:
        if self.lost:
            return
        self.lost = f'{self.uid} cannot be reached any more: {reason}'
        self._met = False
        self.free = self.ranks = self.asked = 0
        self.objects.disconnected()
        if self._connection is not None:
            self._connection.close(0)
            self._connection = None
        self._give_up_calls()

    def _give_up_calls(self) -> None:
        """Hand all calls without a result back to the owner, which sends them again."""
        calls, self.calls = self.calls, {}
        self._owner.take_back({number: held.of(number) for number, held in calls.items()})

    def _nothing(self, *_: object) -> None:
        """Ignore a message that serves as a heartbeat only."""


class Owner(Protocol):
    """The owner of connections, which distributes calls to them; its methods are called in the loop's thread."""

    definitions: dict[bytes, bytes]

    def results(self, numbers: array[int], payloads: Sequence[bytes]) -> object:
        """Take the results of calls."""

    def take_back(self, calls: dict[int, bytes]) -> object:
        """Take calls that have to be sent again, to any master."""

    def deal(self) -> object:
        """Send waiting calls, as there may be more room."""

    def ranks_changed(self) -> object:
        """Note that the number of ranks of a master has changed."""

    def object_ready(self, id: bytes, fault: str) -> object:
        """Note that the master has an object, or why it has not."""


class ShownObjects(Observer):
    """Tells a master of objects before the calls with them, and sends their content to a master on another host.

    All methods but `dropped` are for the loop's thread.
    """

    def __init__(self, loop: Loop, send: Callable[[list[Any]], object]) -> None:
        self._loop = loop
        self._send = send
        self._objects: dict[bytes, ReferenceType[Owned]] = {}
        self._met = False

    def __len__(self) -> int:
        return len(self._objects)

    def show(self, owned: Owned) -> None:
        """Make an object known to the master, now or when the connection is there."""
        if owned.id not in self._objects:
            self._objects[owned.id] = owned.weak
            owned.observers.add(self)
            if self._met:
                self._tell(owned)

    def connected(self) -> None:
        """Make all objects known after a handshake."""
        self._met = True
        for weak in list(self._objects.values()):
            owned = weak()
            if owned is not None:
                self._tell(owned)

    def disconnected(self) -> None:
        """Send nothing any more."""
        self._met = False

    def dropped(self, id: bytes) -> None:
        """Tell the master in the loop's thread that an object is dropped."""
        self._loop.call_soon(self._drop, id)

    def give(self, id: bytes, offset: int, length: int) -> None:
        """Send a piece of an object; an empty one if it is not there, which ends the transfer."""
        weak = self._objects.get(id)
        owned = weak() if weak is not None else None
        try:
            data = read_piece(owned.path, offset, length) if owned is not None else b''
        except OSError:
            data = b''
        self._send(['object_piece', id, offset, data])

    def _tell(self, owned: Owned) -> None:
        self._send(['put_object', owned.id, owned.size, place(), owned.path])

    def _drop(self, id: bytes) -> None:
        if self._objects.pop(id, None) is not None and self._met:
            self._send(['drop_object', id])
