"""Authentication of connections: the CURVE keys of a session, their socket options, and the gate that admits peers.

Every socket that crosses a process boundary is a CURVE server or a CURVE client. A server admits only clients whose
public key is in the process's `Gate`; without a gate, all are rejected. Keys are generated per session, stored in files
that only their owner can read, and never shown or logged. The gate implements ZAP 1.0 (ZeroMQ RFC 27).
"""

from __future__ import annotations

import os
import struct
from typing import Any

import zmq
from zmq.utils import z85

from rp_api.errors import CoordinationError, OwnershipError
from rp_api.logger import logger
from rp_api.loop.event_loop import Loop
from rp_api.system import private
from rp_api.wire.codec import MAX_BYTES

DOMAIN = 'rp'
"""The default ZAP domain of sockets."""

LINGER = 2.0
"""Seconds for a socket that is being closed to send queued messages."""

_KEY_LENGTH = 40
_ZAP_ENDPOINT = 'inproc://zeromq.zap.01'
_ZAP_VERSION = b'1.0'


class Tally:
    """Counts errors of peers, and logs a warning for the 1st, 2nd, 4th, 8th ...: a flood does not fill the log."""

    __slots__ = ('_what', 'count')

    def __init__(self, what: str) -> None:
        self.count = 0
        self._what = what

    def add(self, why: object) -> None:
        """Count an error."""
        self.count += 1
        if self.count & (self.count - 1) == 0:
            logger('rp_api.mesh.keys').warning('%s: %s (%d so far)', self._what, why, self.count)


class KeyPair:
    """A CURVE key pair, both keys as z85 text in bytes; `repr` omits the secret one."""

    __slots__ = ('public', 'secret')

    def __init__(self, public: bytes, secret: bytes) -> None:
        self.public = _checked(public)
        self.secret = _checked(secret)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyPair) and (self.public, self.secret) == (other.public, other.secret)

    def __hash__(self) -> int:
        return hash(self.public)

    def __repr__(self) -> str:
        return f'KeyPair(public={self.public!r})'


def generate() -> KeyPair:
    """Return a new key pair."""
    return KeyPair(*zmq.curve_keypair())


def read_private(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the first `limit` bytes of a file with keys; raise CoordinationError if it is not private or readable."""
    try:
        return private.read_file(path, limit)
    except OwnershipError:
        raise
    except OSError as error:
        raise CoordinationError(f'cannot read the key file {os.fspath(path)}: {error.strerror}') from error


def make_server(socket: zmq.Socket[Any], keys: KeyPair, domain: str = DOMAIN) -> None:
    """Set the options of a CURVE server before binding; the context's gate checks its clients for `domain`.

    High-water marks and reconnection are left to the caller.
    """
    socket.curve_server = True
    socket.zap_domain = domain.encode()
        # without this, a process without a gate (yet, or any more) would admit all peers
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    _set_keys(socket, keys)
    _set_common(socket)


def make_client(socket: zmq.Socket[Any], keys: KeyPair, server_public: bytes) -> None:
    """Set the options of a CURVE client before connecting to the server with that public key."""
    socket.curve_serverkey = _checked(server_public)
    _set_keys(socket, keys)
    _set_common(socket)


class Gate:
    """Admits peers by their public keys to all CURVE servers of a context; one per context, served by a loop.

    Close it after the sockets that it guards.
    """

    def __init__(self, context: zmq.Context[Any], loop: Loop) -> None:
        self.context = context
        self._loop = loop
        self._allowed: set[tuple[bytes, bytes]] = set()
        self._refusals = Tally('refused a peer')
        self._malformed = Tally('malformed authentication request')
        self._socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        self._socket.linger = 0
        try:
            self._socket.bind(_ZAP_ENDPOINT)
        except zmq.ZMQError as error:
            self._socket.close()
            raise CoordinationError(f'the context has a gate already: {error}') from error
        loop.add_socket(self._socket, self._receive, alone=True)

    @property
    def refused(self) -> int:
        """The number of rejected connections."""
        return self._refusals.count

    def allow(self, public: bytes, domain: str = DOMAIN) -> None:
        """Admit peers with this public key to the servers of a domain."""
        self._allowed.add((domain.encode(), _checked(public)))

    def close(self) -> None:
        """Stop admitting peers."""
        self._loop.remove_socket(self._socket)
        self._socket.close()

    def _receive(self) -> None:
        frames = self._socket.recv_multipart()
        # sender, empty frame; then version, request, domain, address, identity, mechanism, credentials
        if len(frames) < 8 or frames[1] or frames[2] != _ZAP_VERSION:
            self._malformed.add(f'{len(frames)} frames')
            return
        sender, _, _, request, domain, address, _, mechanism, *credentials = frames
        key = self._admitted(domain, mechanism, credentials)
        if not key:
            self._refusals.add(f'{mechanism!r:.20} from {address!r:.80}')
        status, text = (b'200', b'OK') if key else (b'400', b'not a key of this session')
        self._socket.send_multipart([sender, b'', _ZAP_VERSION, request, status, text, key, b''])

    def _admitted(self, domain: bytes, mechanism: bytes, credentials: list[bytes]) -> bytes:
        """Return the peer's public key if it is admitted, else an empty value."""
        if mechanism != b'CURVE' or len(credentials) != 1 or len(credentials[0]) != 32:
            return b''
        key: bytes = z85.encode(credentials[0])
        return key if (domain, key) in self._allowed else b''


def _set_keys(socket: zmq.Socket[Any], keys: KeyPair) -> None:
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)


def _set_common(socket: zmq.Socket[Any]) -> None:
    """Set the limits of all connections: the size of messages, and the time until a dead peer is detected."""
    socket.linger = int(LINGER * 1000)
    socket.maxmsgsize = MAX_BYTES + 1024
    socket.handshake_ivl = 10_000
    socket.heartbeat_ivl = 10_000
    socket.heartbeat_timeout = 30_000
    socket.heartbeat_ttl = 30_000
    socket.tcp_keepalive = 1


def _checked(key: bytes) -> bytes:
    """Return the key if it is z85 text of 32 bytes; else raise CoordinationError."""
    try:
        valid = isinstance(key, bytes) and len(key) == _KEY_LENGTH and len(z85.decode(key)) == 32
    except (KeyError, struct.error):  # an invalid character, or a value out of range
        valid = False
    if not valid:
        raise CoordinationError(f'a CURVE key is {_KEY_LENGTH} characters of z85 text')
    return key
