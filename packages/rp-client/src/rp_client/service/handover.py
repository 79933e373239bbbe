"""Requests to the owner of a session, from other processes of the user: to leave it, or to act on tasks and pilots.

The owner listens on a Unix socket in the session's directory, which is private to the user: an application on `owner`,
`rp session serve` on `served`. A connection carries one request and its answer, a line of JSON each. The answer to
`leave`, by which an application that attaches gets a served session, is the end of the connection.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rp_api.errors import CoordinationError

if TYPE_CHECKING:
    from rp_api.loop.event_loop import Loop

NAME, APPLICATION = 'served', 'owner'
"""The names of the sockets in the directory of a session: of a process that serves it, and of its application."""

HANDOVER_TIMEOUT = 60.0
"""Seconds that a server may take to leave."""

SEND_TIMEOUT_S = 2.0
"""Seconds that the owner waits for one that does not read its answer."""

MAX_REQUEST_BYTES = 16 << 20

Reply = Callable[[Mapping[str, Any]], None]
Act = Callable[[Mapping[str, Any], Reply], object]


class OwnerRequests:
    """The requests to the owner of a session, which this process is; `name` is that of the socket.

    Those that come before `start` wait.
    """

    def __init__(self, directory: str, name: str) -> None:
        self._path = Path(directory, name)
        self._left = threading.Event()
        self._open: dict[socket.socket, bytearray] = {}
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.setblocking(False)
        try:
            # it gets its name when it listens: one that refuses connections is removed as that of a dead process
            with _address(directory, f'{name}.{os.getpid()}') as address:
                self._listening.bind(address)
                try:
                    self._listening.listen()
                    self._inode = os.stat(address).st_ino
                    os.link(address, self._path)
                finally:
                    os.unlink(address)
        except BaseException:
            self._listening.close()
            raise

    def start(self, loop: Loop, act: Act) -> None:
        """Answer requests from now on: `act(request, reply)` is called in the loop; to be called there."""
        loop.add_fd(self._listening.fileno(), lambda: self._accept(loop, act))

    def wait(self, timeout: float) -> bool:
        """Wait for the request to leave; return False after `timeout` seconds."""
        return self._left.wait(timeout)

    def close(self) -> None:
        """Answer all who have asked this process to leave; to be called when the loop has ended."""
        with suppress(OSError):
            if self._path.stat().st_ino == self._inode:   # not that of a later owner
                self._path.unlink()
        for each in (self._listening, *self._open):
            each.close()

    def _accept(self, loop: Loop, act: Act) -> None:
        with suppress(OSError):   # it has gone already
            connection, _ = self._listening.accept()
            connection.setblocking(False)
            self._open[connection] = bytearray()
            loop.add_fd(connection.fileno(), lambda: self._read(connection, loop, act))

    def _read(self, connection: socket.socket, loop: Loop, act: Act) -> None:
        received, request, data = self._open[connection], {}, b''
        with suppress(OSError):
            data = connection.recv(1 << 16)
        received += data
        if data and b'\n' not in received and len(received) < MAX_REQUEST_BYTES:
            return
        loop.remove_fd(connection.fileno())
        with suppress(ValueError):
            request = json.loads(received)
        if request.get('do') == 'leave':
            self._left.set()   # the connection stays until this process has left
        elif request:
            act(request, partial(self._reply, connection))
        else:
            del self._open[connection]
            connection.close()

    def _reply(self, connection: socket.socket, answer: Mapping[str, Any]) -> None:
        with suppress(OSError):
            connection.settimeout(SEND_TIMEOUT_S)
            connection.sendall(json.dumps(answer).encode() + b'\n')
        self._open.pop(connection, None)
        connection.close()


def take_over(directory: str) -> None:
    """Ask the process that serves the session in a directory, if there is one, to leave, and wait until it has."""
    with suppress(FileNotFoundError, ConnectionError):
        _ask(directory, NAME, {'do': 'leave'}, HANDOVER_TIMEOUT)


def ask_owner(directory: str, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Return the answer of the owner of the session in a directory to a request.

    Raises:
        ConnectionError, FileNotFoundError: No process takes requests there.
        CoordinationError: It does not answer within `timeout` seconds.
    """
    for name in (APPLICATION, NAME):
        with suppress(FileNotFoundError, ConnectionError):
            if answer := _ask(directory, name, request, timeout):
                return json.loads(answer)   # type: ignore[no-any-return]
    raise ConnectionRefusedError(f'no process takes requests in {directory}')


def is_owned(directory: str) -> bool:
    """Return whether a process of this host owns the session in a directory."""
    for name in (APPLICATION, NAME):
        with suppress(OSError), _address(directory, name) as address, socket.socket(socket.AF_UNIX) as asking:
            asking.connect(address)
            return True
    return False


def clear_socket(directory: str, name: str) -> None:
    """Remove the socket that an owner has left which died; the coordinator has told that it has."""
    with suppress(FileNotFoundError):
        Path(directory, name).unlink()


def _ask(directory: str, name: str, request: Mapping[str, Any], timeout: float) -> bytes:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(timeout)
        with _address(directory, name) as address:
            try:
                asking.connect(address)
            except ConnectionRefusedError:   # its process died
                clear_socket(directory, name)
                raise
        try:
            asking.sendall(json.dumps(request).encode() + b'\n')
            return b''.join(iter(lambda: asking.recv(1 << 16), b''))
        except TimeoutError:
            raise CoordinationError(f'the process that owns the session in {directory} does not answer the request to '
                                    f'{request["do"]} within {timeout:.0f} s') from None


@contextmanager
def _address(directory: str, name: str) -> Iterator[str]:
    """Yield an address of a socket, which must be shorter than paths may be."""
    descriptor = os.open(directory, os.O_PATH)
    try:
        yield f'/proc/self/fd/{descriptor}/{name}'
    finally:
        os.close(descriptor)
