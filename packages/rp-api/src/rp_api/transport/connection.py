"""The two sides of a connection: a socket that listens, one that connects, and the watch on a peer."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import zmq

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop, is_readable
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system import limits, private
from rp_api.transport.keys import LINGER, Gate, KeyPair, Tally, make_client, make_server

Refused = Callable[[str], object]

UNSEEN = 1024
"""Maximum number of messages of a peer that wait here; more of them wait at the sender."""

BACKLOG = 4096
"""Connections at most that wait to be accepted: a thousand workers may start at once."""

_BURST = 64
_AT_ONCE, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)   # plain numbers are much faster than enums
_EVENT = struct.Struct('=HI')   # number and value of a socket event, as in ZeroMQ's monitor frames
_UNCLEAR = zmq.Event.HANDSHAKE_FAILED_NO_DETAIL | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
_WATCHED = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.HANDSHAKE_FAILED_AUTH | _UNCLEAR
_JUDGED = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.HANDSHAKE_FAILED_AUTH   # decided by the gate, which counts these


def arrivals(socket: zmq.Socket[Any]) -> Iterator[list[bytes]]:
    """Yield the messages that have arrived, in limited number, so that other callbacks have a turn."""
    for frames in _arrivals(socket):
        yield [frame.bytes for frame in frames]


def signed_arrivals(socket: zmq.Socket[Any], malformed: Tally) -> Iterator[tuple[bytes, bytes, str]]:
    """Yield sender, content and public key of the sender of such messages; `malformed` counts those of other forms."""
    for frames in _arrivals(socket):
        if len(frames) == 2:
            yield frames[0].bytes, frames[1].bytes, str(frames[1].get('User-Id'))
        else:
            malformed.add('not two frames')


def _arrivals(socket: zmq.Socket[Any]) -> Iterator[list[zmq.Frame]]:
    for _ in range(0 if socket.closed else _BURST):
        try:
            frames = [socket.recv(_AT_ONCE, copy=False)]
        except zmq.Again:
            return
        while frames[-1].more:
            frames.append(socket.recv(_AT_ONCE, copy=False))
        yield frames
        if socket.closed or not is_readable(socket):
            return


def send_to(socket: zmq.Socket[Any], peer: bytes, data: bytes) -> None:
    """Send a message to a peer of a ROUTER socket; raise zmq.ZMQError if it is not connected, or its queue is full."""
    socket.send(peer, _MORE)
    socket.send(data, _AT_ONCE)


def refuse_loudly(reason: str) -> None:
    """End the loop that calls this with CoordinationError, instead of waiting forever for a connection."""
    raise CoordinationError(reason)


class Monitor:
    """Calls `on_event(number)` in the loop for selected events of a socket."""

    def __init__(self, loop: Loop, socket: zmq.Socket[Any], events: int, on_event: Callable[[int], object]) -> None:
        self._loop = loop
        self._socket = socket
        self._on_event = on_event
        address = f'inproc://monitor.{id(self)}'
        socket.monitor(address, events)
        self._events: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR)
        self._events.rcvhwm = 0   # with a limit, ZeroMQ's thread and this one could wait for each other
        self._events.connect(address)
        loop.add_socket(self._events, self._receive, alone=True)

    def close(self) -> None:
        """Stop; this must be called before the socket itself is closed."""
        self._loop.remove_socket(self._events)
        self._socket.disable_monitor()
        self._events.close(linger=0)

    def _receive(self) -> None:
        for frames in arrivals(self._events):
            number, _ = _EVENT.unpack(frames[0])
            self._on_event(number)


class Strangers:
    """Counts connections to a server socket that fail before the gate, and warns about them.

    Their peers do not know the server's key, do not use CURVE, or disconnect at once. Of some of them, ZeroMQ reports
    only the disconnect, so their number is reduced by that of regular peers that are connected.
    """

    def __init__(self, loop: Loop, socket: zmq.Socket[Any], address: str,
                 gone: Callable[[], object] | None = None) -> None:
        self._tally = Tally(f'a stranger at {address}')
        self._on_gone = gone
        self._failed = self._judged = self._gone = 0
        self._monitor = Monitor(loop, socket, _WATCHED | zmq.Event.DISCONNECTED, self._on_event)

    @property
    def count(self) -> int:
        """The number of failed connections."""
        return self._tally.count

    def close(self) -> None:
        """Stop; this must be called before the socket itself is closed."""
        self._monitor.close()

    def _on_event(self, number: int) -> None:
        self._failed += bool(number & _UNCLEAR)
        self._judged += bool(number & _JUDGED)
        self._gone += number == zmq.Event.DISCONNECTED
        if max(self._failed, self._gone - self._judged) > self._tally.count:
            self._tally.add('it has not shown that it knows the keys')
        if number == zmq.Event.DISCONNECTED and self._on_gone:
            self._on_gone()


class PeerConnection:
    """A CURVE client socket in a loop.

    `connected` is called after each handshake, including those of automatic reconnects; `refused` with an error text
    when the server rejects these keys, after which no further attempt is made; `lost` each time the connection is lost.
    """

    def __init__(self, loop: Loop, kind: int, address: str, keys: KeyPair, server_public: bytes,
                 context: zmq.Context[Any] | None, receive: Callable[[], object],
                 connected: Callable[[], object], refused: Refused, lost: Callable[[], object] | None = None) -> None:
        self._loop = loop
        self._address = address
        self._connected = connected
        self._refused = refused
        self._lost = lost
        self._failures = Tally(f'cannot connect to {address} (other keys there, or no gate yet)')
        if context is None:
            limits.require_threads('a connection', limits.OF_ZEROMQ)
        self.socket: zmq.Socket[bytes] = (context or zmq.Context.instance()).socket(kind)
        make_client(self.socket, keys, server_public)
        self.socket.reconnect_ivl = 50
        self.socket.reconnect_ivl_max = 2000
        watched = _WATCHED | zmq.Event.DISCONNECTED if lost else _WATCHED
        self._monitor = Monitor(loop, self.socket, watched, self._on_event)
        loop.add_socket(self.socket, receive)

    def open(self) -> None:
        """Start to connect, after all socket options are set."""
        try:
            self.socket.connect(self._address)
        except zmq.ZMQError as error:
            self.close(0)
            raise CoordinationError(f'cannot connect to {self._address!r}: {error}') from error

    def close(self, linger: float = LINGER) -> None:
        """Close the socket; queued messages are sent within `linger` seconds, in the background."""
        self._loop.remove_socket(self.socket)
        self._monitor.close()
        self.socket.close(linger=int(linger * 1000))

    def _on_event(self, number: int) -> None:
        if number == zmq.Event.HANDSHAKE_SUCCEEDED:
            self._connected()
        elif number == zmq.Event.DISCONNECTED and self._lost:
            self._lost()
        elif number == zmq.Event.HANDSHAKE_FAILED_AUTH:
            self._refused(f'{self._address} does not accept the key of this process')
        elif number & _UNCLEAR:
            self._failures.add('the handshake failed')


class Listener:
    """A CURVE server socket, bound and in a loop; `address` is the address for clients.

    The address None creates an ipc path in a new directory (below `base`), 'ipc://path' must be in a private directory,
    'tcp://host' and 'tcp://host:port' select an interface (port 0 or none: any free one). At most `high_water` messages
    wait for a peer that does not read. `gone` is called after the loss of a connection.
    """

    def __init__(self, loop: Loop, kind: int, keys: KeyPair, gate: Gate, address: str | None, domain: str,
                 high_water: int, receive: Callable[[], object], base: str | None = None, *,
                 gone: Callable[[], object] | None = None) -> None:
        self._loop = loop
        self._fresh = ''
        self._strangers: Strangers | None = None
        self.address = ''
        self.socket: zmq.Socket[bytes] = gate.context.socket(kind)
        try:
            make_server(self.socket, keys, domain)
            self.socket.sndhwm = high_water
            self.socket.rcvhwm = UNSEEN
            self.socket.backlog = BACKLOG
            if kind == zmq.ROUTER:   # sending to a disconnected peer fails, and a reconnecting one keeps its identity
                self.socket.router_mandatory = True
                self.socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
            self.address = self._bind(address, base)
            self._strangers = Strangers(loop, self.socket, self.address, gone)
        except BaseException:
            self.close(0)
            raise
        loop.add_socket(self.socket, receive)

    @property
    def strangers(self) -> int:
        """The number of connections with invalid keys."""
        return self._strangers.count if self._strangers else 0

    def close(self, linger: float = LINGER) -> None:
        """Close the socket; queued messages are sent within `linger` seconds, in the background."""
        if self.socket.closed:
            return
        self._loop.remove_socket(self.socket)
        if self._strangers:
            self._strangers.close()
        self.socket.close(linger=int(linger * 1000))
        with suppress(FileNotFoundError):   # it may have been removed already
            if self._fresh:
                import shutil  # rarely needed, and slow to import

                shutil.rmtree(self._fresh)
            elif self.address.startswith('ipc://'):
                os.unlink(self.address.removeprefix('ipc://'))

    def _bind(self, address: str | None, base: str | None) -> str:
        if address is None:
            self._fresh = make_private_directory(base)
            address = f'ipc://{self._fresh}/s'
        checked = _checked_address(address)
        try:
            self.socket.bind(checked)
        except zmq.ZMQError as error:
            raise CoordinationError(f'cannot listen at {address!r}: {error}') from error
        return self.socket.getsockopt_string(zmq.LAST_ENDPOINT)


def _checked_address(address: str) -> str:
    """Return the address in ZeroMQ's form; raise CoordinationError if other users could reach the socket."""
    transport, _, rest = address.partition('://')
    if transport == 'ipc' and rest:
        try:
            private.check(os.path.dirname(os.path.abspath(rest)), readable=False)
        except OSError as error:
            raise CoordinationError(f'cannot listen at {address!r}: {error}') from error
        return address
    host, _, port = rest.partition(':')
    if transport != 'tcp' or not host or host in ('*', '0.0.0.0') or not (port or '0').isdigit():
        raise CoordinationError(f'cannot listen at {address!r}: allowed are ipc://<path> '
                                'and tcp://<interface>[:<port>]')
    return f'tcp://{host}:{port if int(port or 0) else "*"}'


def new_directory_path(base: str | None = None) -> str:
    """Return a path for a new directory that is short enough for a socket in it.

    The directory is in `base`, by default the one for temporary files.
    """
    base = base or os.environ.get('TMPDIR', '/tmp')
    name = f'rp.{os.urandom(6).hex()}'
    if len(os.fsencode(base)) + len(name) + len('//s') > zmq.IPC_PATH_MAX_LEN:
        base = '/tmp'
    return os.path.abspath(f'{base}/{name}')


def make_private_directory(base: str | None = None) -> str:
    """Create a private directory at a new path, and return the path."""
    path = new_directory_path(base)
    try:
        os.mkdir(path, 0o700)
        private.check(path, readable=False)
    except OSError as error:
        raise CoordinationError(f'cannot make the directory {path} for a socket: {error}') from error
    return path


class PeerWatch:
    """A watch on one peer by its messages; `start` adds its process, if it is on this host."""

    __slots__ = ('_process', 'heard')

    def __init__(self) -> None:
        self.heard = time.monotonic()
        self._process: ProcessHandle | None = None

    def hear(self) -> None:
        """Record a message of the peer."""
        self.heard = time.monotonic()

    @property
    def by_process(self) -> bool:
        """True if the process itself is watched, so that missing messages mean nothing."""
        return self._process is not None

    def start(self, loop: Loop, pid: int, started: int | None, died: Callable[[], object]) -> bool:
        """Watch the peer's process, and call `died()` once when it ends; return False if it has ended already."""
        try:
            self._process = ProcessHandle.open(pid, started)
        except OSError:   # out of file descriptors: it is watched like a peer on another host
            return True
        if self._process is None:
            return False
        self._process.watch(loop, died)
        return True

    def ended(self) -> bool:
        """Return True if the process is known to have ended."""
        return self._process is not None and self._process.wait(0)

    def silent(self, seconds: float) -> bool:
        """Return True if only messages show that the peer lives, and none arrived for that many seconds."""
        return self._process is None and self.heard < time.monotonic() - seconds

    def stop(self) -> None:
        """Stop watching."""
        if self._process is not None:
            self._process.close()
            self._process = None
