"""A worker's connection to its master, with a watch for the master's end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import zmq

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.loop.soon import Soon
from rp_api.system.host import host_id
from rp_api.transport.access import Access
from rp_api.transport.connection import PeerConnection, PeerWatch, arrivals
from rp_raptor.wire.batch import pack_message
from rp_raptor.wire.call_buffer import ResultGatherer
from rp_raptor.wire.protocol import PING, SILENCE, WORKER, parse_from_master

_WELCOME_TIMEOUT = 60.0   # seconds for the master's file to appear, and for its welcome
_CHECK_INTERVAL_S = 0.2        # seconds between looks for the file


class MasterConnection:
    """Exchanges messages with the master after the first handshake; messages sent before are dropped.

    Results wait for others until the next turn of the loop, as each rank sends those of long calls one by one.

    `connected()` is called after each handshake, `heard(operation, arguments)` for each message, and `lost(reason)`
    when the master is lost or was never reached.
    """

    def __init__(self, loop: Loop, path: str, connected: Callable[[], object],
                 heard: Callable[[str, list[Any]], object], lost: Callable[[str], object]) -> None:
        self._loop = loop
        self._path = path
        self._connected = connected
        self._heard = heard
        self._lost = lost
        self._connection: PeerConnection | None = None
        self._greeted = False
        self._results = ResultGatherer(lambda ids, payloads: self._send(['results', ids, payloads]))
        self._flush_soon = Soon(loop, self._results.flush)
        self._deadline = time.monotonic() + _WELCOME_TIMEOUT
        self._answered = False
        self._master = PeerWatch()
        loop.call_soon(self._open)
        loop.call_later(PING, self._watch)

    def send(self, message: list[Any]) -> None:
        """Send a message to the master."""
        if message[0] == 'results':
            self._results.add(message[1], message[2])
            self._flush_soon()
        else:
            self._results.flush()
            self._send(message)

    def _send(self, message: list[Any]) -> None:
        if self._connection and self._greeted:
            self._connection.socket.send(pack_message(message))

    def close(self) -> None:
        """Close the connection after pending messages are sent."""
        self._master.stop()
        if self._connection:
            self._connection.close()

    def _open(self) -> None:
        if not os.path.exists(self._path) and time.monotonic() < self._deadline:
            self._loop.call_later(_CHECK_INTERVAL_S, self._open)   # shared file systems show files of other nodes late
            return
        try:
            access = Access.load(self._path)
            self._connection = PeerConnection(self._loop, zmq.DEALER, access.address, access.keys, access.server_key,
                                              None, self._receive, self._greet, self._lost)
            self._connection.socket.sndhwm = 0   # the calls of the worker bound the messages
            self._connection.open()
        except CoordinationError as error:
            self._lost(str(error))

    def _greet(self) -> None:
        self._greeted = True
        self._connected()

    def _receive(self) -> None:
        assert self._connection
        for frames in arrivals(self._connection.socket):
            self._answered = True
            self._master.hear()
            operation, arguments = parse_from_master(frames[-1], WORKER)
            if operation == 'welcome':
                self._welcome(arguments[0])
            elif operation == 'refused':
                self._lost(f'the master refuses this worker: {arguments[0]}')
            elif operation != 'pong':
                self._heard(operation, arguments)

    def _welcome(self, info: dict[str, Any]) -> None:
        if self._master.by_process or info.get('host') != host_id():
            return
        if not self._master.start(self._loop, int(info['pid']), info.get('started'), self._master_ended):
            self._lost('the master has ended')

    def _master_ended(self) -> None:
        self._receive()   # the last messages
        self._lost('the master has ended')

    def _watch(self) -> None:
        """Send a heartbeat, and check that of a master on another node; one on this node has a process to watch."""
        if not self._answered and time.monotonic() > self._deadline:
            self._lost(f'no master has answered within {_WELCOME_TIMEOUT:g} s')
        elif self._answered and self._master.silent(SILENCE):
            self._lost(f'the master has sent nothing for {SILENCE:g} s')
        self.send(['ping'])
        self._loop.call_later(PING, self._watch)
