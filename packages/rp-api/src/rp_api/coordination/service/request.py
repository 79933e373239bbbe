"""Requests to a stand-alone hub, and the form of requests and answers.

A request is `[number, protocol, operation, arguments]`, its answer `[number, 'ok', result]` or
`[number, 'error', sentence]`. The control socket requires the key of the hub's owner.
"""

from __future__ import annotations

import struct
import time
from reprlib import repr as short  # handles long and deeply nested values
from typing import Any

import zmq

from rp_api.coordination.contract import PROTOCOL
from rp_api.coordination.service.access import HubAccess
from rp_api.errors import CoordinationError
from rp_api.transport import keys
from rp_api.wire import codec

DOMAIN = 'rp.hub'
"""The ZAP domain of control sockets."""

ANSWER_TIMEOUT_S = 10.0
"""Seconds to wait for an answer."""

_EVENT = struct.Struct('=HI')
_BROKEN = (zmq.Event.HANDSHAKE_FAILED_NO_DETAIL | zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.DISCONNECTED)
_WATCHED = zmq.Event.CONNECTED | zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.HANDSHAKE_FAILED_AUTH | _BROKEN


def ask(access: HubAccess, url: str, operation: str, arguments: dict[str, Any] | None = None,
        timeout: float = ANSWER_TIMEOUT_S) -> Any:
    """Return the hub's answer to a request; raise `CoordinationError` for a refusal, or without an answer in time."""
    asker = _Asker(access, url)
    try:
        asker.connect()
        return asker.ask(operation, arguments or {}, timeout)
    finally:
        asker.close()


def parse(data: bytes) -> tuple[int, Any, str, dict[str, Any]]:
    """Return number, protocol, operation and arguments of a request; raise `CoordinationError` if it is malformed."""
    request = codec.unpack(data)
    if not isinstance(request, list) or [type(part) for part in request[:1] + request[2:]] != [int, str, dict]:
        raise CoordinationError('malformed request')
    number, protocol, operation, arguments = request
    return number, protocol, operation, arguments


def mismatch(theirs: Any) -> str:
    """Return an error text for a client with another version of the protocol; empty if it matches."""
    if theirs == PROTOCOL:
        return ''
    return (f'the hub uses protocol {PROTOCOL}, this client {short(theirs)}: install the same major version of '
            'rp-api on both sides (pip install --upgrade rp-api), and start the hub again')


class _Asker:
    """A single request on a socket of its own."""

    def __init__(self, access: HubAccess, url: str) -> None:
        self._url = url
        self._seen = 0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        keys.make_client(self._socket, access.keys, access.server.encode())
        self._socket.reconnect_ivl, self._socket.reconnect_ivl_max = 50, 500
        self._monitor = self._socket.get_monitor_socket(_WATCHED)

    def connect(self) -> None:
        try:
            self._socket.connect(self._url)
        except zmq.ZMQError as error:
            raise CoordinationError(f'cannot connect to {self._url!r}: {error}') from error

    def close(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)
        self._context.term()

    def ask(self, operation: str, arguments: dict[str, Any], timeout: float) -> Any:
        deadline = time.monotonic() + timeout
        self._socket.send(codec.pack([1, PROTOCOL, operation, arguments]))
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            ready = dict(poller.poll(int(left * 1000) + 1))
            if self._monitor in ready:
                self._note(*_EVENT.unpack(self._monitor.recv_multipart()[0]))
            if self._socket in ready:
                _, kind, result = codec.unpack(self._socket.recv())
                return _checked(kind, result)
        raise CoordinationError(self._why(timeout))

    def _note(self, event: int, _value: int) -> None:
        self._seen |= event
        if event == zmq.Event.HANDSHAKE_FAILED_AUTH:
            raise CoordinationError(f'the hub at {self._url} rejects the key of the access file, which belongs to '
                                    'another hub, or to an earlier one at this address; copy the file again')

    def _why(self, timeout: float) -> str:
        if not self._seen & zmq.Event.CONNECTED:
            return (f'nothing answers at {self._url} within {timeout:g} s: does the hub run (rp hub status), and can '
                    'it be reached from this host (a tunnel may be needed)?')
        if not self._seen & zmq.Event.HANDSHAKE_SUCCEEDED:
            return (f'the process that listens at {self._url} is not the hub of the access file: it has other keys. '
                    'Copy the file of the hub that runs there now')
        return f'the hub at {self._url} received the request, but did not answer within {timeout:g} s'


def _checked(kind: str, result: Any) -> Any:
    if kind != 'ok':
        raise CoordinationError(str(result))
    return result
