"""The socket at which a manager waits for the carrier of its node."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from rp_api.loop.event_loop import Loop
from rp_raptor.carriers.carrier import PEER
from rp_raptor.carriers.channel import End, Pipe
from rp_raptor.carriers.stream_pipe import StreamPipe

_HELLO_TIMEOUT = 1.0   # seconds for the first bytes of a carrier
_CREDENTIALS = struct.Struct('=iII')   # pid, uid and gid


class Attached(Protocol):
    """What uses a connection."""

    def attach(self, open_pipe: Callable[[End], Pipe]) -> object:
        """Use another pipe."""


class CarrierListener:
    """Gives connections of the carrier to the channels, by the number of the node at the other end.

    That with the number of this node is for objects.

    The socket is in the private `directory`. The carrier finds it by the file at `path`, which only its owner can read.
    """

    def __init__(self, loop: Loop, directory: str, path: str, nodes: int, channels: Mapping[int, Attached]) -> None:
        self._loop = loop
        self._path = path
        self._channels = channels
        address = os.path.join(directory, 'c')
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket.bind(address)
        self._socket.listen(nodes)
        loop.add_fd(self._socket.fileno(), self._accept)
        fd = os.open(f'{path}.new', os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, 'w') as file:
            json.dump({'socket': address, 'nodes': nodes}, file)
        os.rename(f'{path}.new', path)

    @property
    def awaited(self) -> bool:
        """False when a carrier has removed the file, as no others will be started."""
        return os.path.exists(self._path)

    def close(self) -> None:
        """Stop listening."""
        if self._socket.fileno() >= 0:
            self._loop.remove_fd(self._socket.fileno())
            self._socket.close()
            with suppress(FileNotFoundError):
                os.unlink(self._path)

    def _accept(self) -> None:
        try:
            carrier, _ = self._socket.accept()
        except OSError:   # it is gone already
            return
        try:
            carrier.settimeout(_HELLO_TIMEOUT)
            credentials = carrier.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            channel = self._channels.get(*PEER.unpack(carrier.recv(PEER.size, socket.MSG_WAITALL)))
        except (OSError, struct.error):
            channel = None
        if channel is None or _CREDENTIALS.unpack(credentials)[1] != os.geteuid():
            carrier.close()
        else:
            channel.attach(lambda end: StreamPipe(self._loop, carrier, end))
