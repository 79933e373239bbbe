"""The socket that masters connect to, and the file that tells them how."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq

from rp_api import raptor_link
from rp_api.errors import CoordinationError
from rp_api.mesh import codec
from rp_api.mesh.connection import Listener, arrivals
from rp_api.mesh.keys import DOMAIN, Gate, Tally, generate
from rp_api.mesh.loop import Loop
from rp_api.raptor_link import Access

_log = logging.getLogger('radical.pilot.agent.raptor')

Receive = Callable[[bytes, str, list[Any]], object]


class Link:
    """Listens for masters at an address (None: a fresh one); `receive(sender, operation, arguments)` gets messages."""

    def __init__(self, loop: Loop, pilot_sandbox: str, address: str | None, receive: Receive) -> None:
        self._receive = receive
        self._malformed = Tally('dropped what a RAPTOR master has sent')
        self._context: zmq.Context[Any] = zmq.Context()
        self._gate = Gate(self._context, loop)
        keys, visitor = generate(), generate()
        self._gate.allow(visitor.public)
        # without a limit of messages: a master is sent no more tasks than it has asked for
        self._listener = Listener(loop, zmq.ROUTER, keys, self._gate, address, DOMAIN, 0, self._arrived)
        self._file = raptor_link.link_file(pilot_sandbox)
        Access(self._listener.address, keys.public.decode(), visitor.public.decode(),
               visitor.secret.decode()).save(self._file)

    def send(self, master: bytes, *message: Any) -> None:
        """Send a message; one to a master that is gone is dropped. ValueError if it is too large."""
        data = codec.pack(message)
        try:
            self._listener.socket.send_multipart([master, data], zmq.NOBLOCK)
        except zmq.ZMQError as error:   # what follows from its end is up to those who watch its process
            _log.debug('cannot send %s: %s', message[0], error)

    def refuse(self, why: object) -> None:
        """Note that a message was dropped."""
        self._malformed.add(why)

    def close(self) -> None:
        """Remove the file, and listen no more."""
        with suppress(FileNotFoundError):
            os.unlink(self._file)
        self._listener.close(0)
        self._gate.close()
        self._context.term()

    def _arrived(self) -> None:
        for frames in arrivals(self._listener.socket):
            try:
                if len(frames) != 2:
                    raise CoordinationError(f'a message of {len(frames)} frames')
                operation, arguments = raptor_link.from_master(frames[1])
            except CoordinationError as error:
                self.refuse(error)
            else:
                self._receive(frames[0], operation, arguments)
