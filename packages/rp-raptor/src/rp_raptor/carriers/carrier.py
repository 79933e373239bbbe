"""A carrier: passes bytes and files between the manager of its node and those of other nodes, by MPI.

The carrier of the first node connects to its manager once for each other node, every other carrier once. What comes
over such a connection goes to the carrier of the other node, and from there to the manager, and is not looked at. The
descriptor of a file, which a manager sends together with bytes, becomes a message of its own, from the memory of the
file into that of a new one, whose descriptor the other manager gets with the same bytes.

Each carrier has one connection more, for objects, see `rp_raptor.carriers.passing`.

No MPI call blocks, as that would use a CPU, and wait for ever for a carrier that is dead.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.raptor_link import CARRIER
from rp_api.system import signals
from rp_api.transport.keys import read_private
from rp_raptor.carriers.channel import FIRST_KIND, OpenFile, new_file
from rp_raptor.carriers.passing import FIRST_TAG, ID_BYTES, Passing
from rp_raptor.carriers.probe import Probe
from rp_raptor.carriers.stream_pipe import Frames, framed
from rp_raptor.definitions import start_mpi

PEER = struct.Struct('=I')
"""The first bytes of a connection: the number of the node at the other end; its own number for objects."""

MAX_FILES = 200
"""Descriptors that are sent at a time at most; the kernel takes 253."""

_CHUNK = 64 << 10           # bytes that are read at a time: larger memory comes from the kernel each time
_MAX_SENDING = 16 << 20     # bytes of a connection that are being sent, above which no more are read
_CONNECT_TIMEOUT = 60.0     # seconds for the manager of the node to listen
_CHECK_INTERVAL_S = 0.1
_END_TIMEOUT_S = 5          # for the end of MPI, and after a SIGTERM
_PR_SET_PDEATHSIG = 1       # of Linux
_MAX_FILE = 1 << 16         # bytes of the manager's file
_BYTES, _FILE, _STOP = 1, 2, 3   # tags, below FIRST_TAG

Buffer = bytes | memoryview


class _Incoming:
    """A message that is being received, to a file if it is the content of one."""

    __slots__ = ('buffer', 'file', 'request')

    def __init__(self, buffer: Buffer, file: OpenFile | None, request: Any) -> None:
        self.buffer, self.file, self.request = buffer, file, request


class _Pump:
    """A connection to the manager, for the messages to and from another node."""

    def __init__(self, manager: socket.socket, peer: int) -> None:
        self.manager = manager
        self.peer = peer
        self.sending: deque[tuple[Any, Buffer, int]] = deque()   # requests with buffers and sizes
        self.sending_bytes = 0
        self.incoming: deque[_Incoming] = deque()
        self.files: list[OpenFile] = []   # that were received, and belong to the next bytes
        self.unsent: deque[tuple[Buffer, list[OpenFile]]] = deque()   # to the manager
        self.events = select.EPOLLIN

    @property
    def connected(self) -> bool:
        """True until the connection to the manager is lost."""
        return self.manager.fileno() >= 0


class Carrier:
    """The carrier of a node, whose manager listens at `path`."""

    def __init__(self, mpi: Any, path: str) -> None:
        self._mpi = mpi
        self._world = mpi.COMM_WORLD
        self._status = mpi.Status()
        self._sockets = select.epoll()   # of MPI, if it uses any
        self._known: set[str] = set()    # descriptors that need not be looked at again
        iprobe = ctypes.cast(ctypes.CDLL(mpi.__file__).MPI_Iprobe, ctypes.c_void_p).value
        self._probe = Probe(iprobe or 0, mpi._handleof(self._world), mpi._sizeof(mpi.Status), mpi.ANY_SOURCE,
                            mpi.ANY_TAG, self._sockets.fileno())
        self._epoll = select.epoll()
        self._stopped = False
        rank = self._world.rank
        peers = range(self._world.size) if rank == 0 else [rank, 0]   # objects first: channels rely on it
        self._by_peer = {peer: _Pump(_connection(path, peer), peer) for peer in peers}
        self._objects = self._by_peer[rank]
        self._frames = Frames()
        self._passing = Passing(mpi, self._end_object)
        self._by_fd = {pump.manager.fileno(): pump for pump in self._by_peer.values() if pump.connected}
        for fd in self._by_fd:
            self._epoll.register(fd, select.EPOLLIN)
        self._active: set[_Pump] = set()   # with messages under way
        self._heard: set[int] = set()      # carriers of which there was a message

    def run(self) -> None:
        """Pass on what comes until the first manager has no connection any more."""
        if not self._by_fd:
            self._end()
        while not self._stopped:
            if self._probe.wait(self._epoll.fileno(), bool(self._active - {self._objects}),
                                self._objects in self._active):
                while self._receive():
                    pass
            for fd, events in self._epoll.poll(0):
                pump = self._by_fd[fd]
                if events & select.EPOLLOUT:
                    self._flush(pump)
                if events & ~select.EPOLLOUT:
                    self._read(pump)
            for pump in [*self._active]:
                self._progress(pump)

    # from the manager

    def _read(self, pump: _Pump) -> None:
        try:
            data, files, _, _ = socket.recv_fds(pump.manager, _CHUNK, MAX_FILES)
        except BlockingIOError:
            return
        except ConnectionError:
            data, files = b'', []
        if pump is self._objects:
            for _, told, opened in self._frames.add(data, files):
                nodes = memoryview(told)[ID_BYTES:].cast('H')
                self._passing.start(told[:ID_BYTES], nodes.tolist(), opened[0])
            self._active.add(pump)
            if not data:
                self._lose(pump)
            return
        for file in map(OpenFile, files):
            size = os.fstat(file.fd).st_size
            content = memoryview(mmap.mmap(file.fd, size, access=mmap.ACCESS_READ) if size else b'')
            self._send(pump, content, _FILE)
        if data:
            self._send(pump, data, _BYTES)
        else:
            self._lose(pump)

    def _send(self, pump: _Pump, data: Buffer, tag: int) -> None:
        size = len(data)
        pump.sending.append((self._world.Isend([data, self._mpi.BYTE], pump.peer, tag), data, size))
        pump.sending_bytes += size
        self._active.add(pump)

    def _lose(self, pump: _Pump) -> None:
        """Handle the end of a connection: all carriers end with the first manager, and go on without another.

        The manager may replace single connections.
        """
        self._epoll.unregister(pump.manager)
        del self._by_fd[pump.manager.fileno()]
        pump.manager.close()
        if not self._by_fd:
            self._end()

    def _end(self) -> None:
        """End all carriers if this one is the first; others without a manager stay for the sake of the first."""
        if self._world.rank == 0 and not self._stopped:
            self._stopped = True
            for peer in range(1, self._world.size):
                self._world.Isend([b'', self._mpi.BYTE], peer, _STOP)

    # from other carriers

    def _receive(self) -> bool:
        """Begin to receive a message, if there is one; return whether there may be more."""
        message = self._world.Improbe(self._mpi.ANY_SOURCE, self._mpi.ANY_TAG, self._status)
        if message is None:
            return False
        tag, size = self._status.Get_tag(), self._status.Get_count(self._mpi.BYTE)
        source = self._status.Get_source()
        if source not in self._heard:
            self._heard.add(source)
            self._find_sockets()
        if tag >= FIRST_TAG:
            self._passing.receive(source, tag, size, message)
            self._active.add(self._objects)
            self._progress(self._objects)
            return True
        file, buffer = None, memoryview(bytearray(size))
        if tag == _FILE:
            file = new_file(size)
            if size:
                buffer = memoryview(mmap.mmap(file.fd, size))
        elif tag == _STOP:
            self._stopped = True
        pump = self._by_peer[source]
        pump.incoming.append(_Incoming(buffer, file, message.Irecv([buffer, self._mpi.BYTE])))
        self._active.add(pump)
        return not self._stopped

    def _find_sockets(self) -> None:
        """Watch the sockets that MPI has opened since the last time, so that messages end a sleep; see `Probe`."""
        found = set(os.listdir('/proc/self/fd'))
        for name in found - self._known:
            with suppress(OSError):   # it is closed, or cannot be waited for
                if int(name) not in self._by_fd and os.readlink(f'/proc/self/fd/{name}').startswith('socket:'):
                    self._sockets.register(int(name), select.EPOLLIN | select.EPOLLET)
        self._known = found

    def _progress(self, pump: _Pump) -> None:
        """Drop what was sent, and give the manager what was received, in order."""
        while pump.sending and pump.sending[0][0].Test():
            pump.sending_bytes -= pump.sending.popleft()[2]
        while pump.incoming and pump.incoming[0].request.Test():
            come = pump.incoming.popleft()
            if come.file is not None:
                pump.files.append(come.file)
            else:
                pump.unsent.append((come.buffer, pump.files))
                pump.files = []
        passing = pump is self._objects and self._passing.progress()
        if not pump.sending and not pump.incoming and not passing:
            self._active.discard(pump)
        if not pump.events & select.EPOLLOUT or not pump.connected:
            self._flush(pump)
        else:
            self._watch(pump)

    def _end_object(self, id: bytes, files: list[OpenFile]) -> None:
        self._objects.unsent.append((framed(FIRST_KIND, id, len(files)), files))

    def _flush(self, pump: _Pump) -> None:
        """Send to the manager what it takes; nothing is kept for one that is gone."""
        try:
            while pump.unsent:
                data, files = pump.unsent[0]
                descriptors = [file.fd for file in files]
                sent = socket.send_fds(pump.manager, [data], descriptors) if pump.connected else len(data)
                if sent < len(data):
                    pump.unsent[0] = memoryview(data)[sent:], []
                else:
                    pump.unsent.popleft()
        except BlockingIOError:
            pass
        except ConnectionError:   # as will be read, too
            pump.unsent.clear()
        self._watch(pump)

    def _watch(self, pump: _Pump) -> None:
        events = (select.EPOLLIN if pump.sending_bytes < _MAX_SENDING else 0) | (select.EPOLLOUT if pump.unsent else 0)
        if events != pump.events and pump.connected:
            pump.events = events
            self._epoll.modify(pump.manager, events)


def _connection(path: str, peer: int) -> socket.socket:
    """Return a connection to the manager of this node; a closed one if the manager is dead."""
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        manager.connect(path)
        manager.sendall(PEER.pack(peer))
        manager.setblocking(False)
    except OSError:
        manager.close()
    return manager


def _manager(path: str) -> tuple[str, int]:
    """Return the socket of the manager of this node, and the number of nodes, when the manager has written its file."""
    deadline = time.monotonic() + _CONNECT_TIMEOUT
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise CoordinationError(f'{path} does not exist')
        time.sleep(_CHECK_INTERVAL_S)
    found = json.loads(read_private(path, _MAX_FILE))
    return found['socket'], found['nodes']


def _end_later(*_: object) -> None:
    """Give managers, which are told to end at the same time, time for their last words."""
    signal.alarm(_END_TIMEOUT_S)


def main() -> int:
    """Run a carrier of the MPI job that the environment describes; return the exit code."""
    signals.set_defaults()
    signal.signal(signal.SIGTERM, _end_later)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)   # a launcher that is killed leaves no carriers
    try:
        path, nodes = _manager(os.environ[CARRIER])
        start_mpi(nodes)
        from mpi4py import MPI  # it was just initialised

        Carrier(MPI, path).run()
    except Exception as error:
        print(f'carrier on {os.uname().nodename}: {error!r}', file=sys.stderr, flush=True)
        os._exit(1)   # the end of MPI would wait for the other carriers
    with suppress(FileNotFoundError):   # the first manager is gone, and starts no others
        os.unlink(os.environ[CARRIER])
    signal.alarm(_END_TIMEOUT_S)   # MPI_Finalize waits for all others
    return 0
