"""What those do who do not belong to a session, or who do but speak nonsense."""

from __future__ import annotations

import random
import socket as sockets
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgpack
import zmq

from rp_api.coordination.contract import PROTOCOL
from rp_api.transport import keys
from rp_api.transport.keys import KeyPair

TIMEOUT = 30.0
JUDGED = (zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.HANDSHAKE_FAILED_AUTH | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
          | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL | zmq.Event.DISCONNECTED)

SIGNATURE = b'\xff' + bytes(8) + b'\x7f'
VERSION = b'\x03\x01'


def greeting(mechanism: bytes = b'CURVE', version: bytes = VERSION) -> bytes:
    """The 64 bytes with which a ZMTP 3 peer begins (RFC 23)."""
    return SIGNATURE + version + mechanism.ljust(20, b'\0') + bytes(32)


def header(flags: int, size: int, long: bool = True) -> bytes:
    """What begins a frame that claims to have that size."""
    return bytes([flags]) + (struct.pack('>Q', size) if long else bytes([size]))


def garbage(rng: random.Random, count: int) -> Iterator[bytes]:
    """Byte strings that nobody should take for a peer, some of them close to it."""
    for _ in range(count):
        yield rng.choice([
            b'', greeting()[:rng.randrange(65)], greeting(), greeting(version=rng.randbytes(2)),
            greeting(rng.choice([b'NULL', b'PLAIN', b'GSSAPI', b'\xff' * 20])),
            greeting() + header(rng.randrange(256), rng.choice([2**63 - 1, 2**64 - 1, 2**31, 2**28])),
            greeting() + b'\x04\xc8\x05HELLO\x01\x00', greeting() + b'\x04\xc8\x08INITIATE',
            ]) + rng.randbytes(rng.randrange(1, 300))


def connect(address: str) -> sockets.socket:
    """A plain connection to a listening socket."""
    if address.startswith('ipc://'):
        connection = sockets.socket(sockets.AF_UNIX)
        target: Any = address.removeprefix('ipc://')
    else:
        connection = sockets.socket()
        host, _, port = address.removeprefix('tcp://').rpartition(':')
        target = host, int(port)
    connection.settimeout(TIMEOUT)
    for _ in range(1000):
        try:
            connection.connect(target)
            return connection
        except BlockingIOError:   # a Unix socket's queue of connections is full
            time.sleep(0.001)
    raise TimeoutError(f'{address} takes no connections')


def shout(address: str, data: bytes) -> None:
    """Connect, send this, and leave."""
    with connect(address) as connection, suppress(OSError):   # it may have been cut off by then
        connection.sendall(data)


@contextmanager
def half_open(address: str, count: int) -> Iterator[list[sockets.socket]]:
    """Connections that begin like peers, and then say nothing more."""
    opened: list[sockets.socket] = []
    try:
        for number in range(count):
            opened.append(connect(address))
            with suppress(OSError):
                opened[-1].sendall(greeting()[:number % 65])
        yield opened
    finally:
        for connection in opened:
            connection.close()


class Speaker:
    """A ZeroMQ socket with keys of one's choice that says what it likes; None as keys is no CURVE at all."""

    def __init__(self, address: str, kind: int, own: KeyPair | None, server: bytes, identity: bytes = b'') -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self.socket: zmq.Socket[bytes] = self._context.socket(kind)
        if own:
            keys.make_client(self.socket, own, server)
        self.socket.linger = 0
        self.socket.reconnect_ivl = 20
        if identity:
            self.socket.setsockopt(zmq.ROUTING_ID, identity)
        self._monitor: zmq.Socket[bytes] = self.socket.get_monitor_socket(JUDGED)
        self.socket.connect(address)

    def judged(self) -> int:
        """The event with which the first attempt to connect ended."""
        assert self._monitor.poll(int(TIMEOUT * 1000)), 'the handshake did not end'
        return int.from_bytes(self._monitor.recv_multipart()[0][:2], 'little')

    def say(self, *frames: bytes) -> None:
        """Send a message; one that cannot leave at once is lost."""
        with suppress(zmq.Again):
            self.socket.send_multipart(frames, zmq.NOBLOCK)

    def insist(self, *frames: bytes) -> None:
        """Send a message, waiting for room; fails if there never is any."""
        self.socket.sndtimeo = int(TIMEOUT * 1000)
        self.socket.send_multipart(frames)

    def hear(self) -> list[bytes]:
        """The next message that comes."""
        self.socket.rcvtimeo = int(TIMEOUT * 1000)
        return self.socket.recv_multipart()

    def finish(self) -> None:
        """Have all that was said arrive before leaving."""
        self.socket.linger = int(TIMEOUT * 1000)

    def close(self) -> None:
        """Leave."""
        self.socket.disable_monitor()
        self._monitor.close(linger=0)
        self.socket.close()
        self._context.term()


@contextmanager
def speaking(address: str, kind: int, own: KeyPair | None, server: bytes, identity: bytes = b'') -> Iterator[Speaker]:
    """A speaker that leaves at the end."""
    speaker = Speaker(address, kind, own, server, identity)
    try:
        yield speaker
    finally:
        speaker.close()


KINDS = ['hello', 'items', 'grant', 'sync', 'bye', 'refuse', 'ping', 'seen', 'pilots', 'tasks', 'bind', 'command',
         'note', 'recover', 'acknowledge', 'detach', 'listen', 'hold', 'update_pilots', 'update_tasks', 'purge',
         '__init__', 'worker', 'open', 'credit', 'calls', 'results', 'states', 'submit', 'cancel', 'define', 'died',
         'run', 'close']


HELLO: dict[str, Any] = {
    'protocol': PROTOCOL, 'role': 'agent', 'uid': 'p.flood', 'agent': 'agent_0', 'host': 'elsewhere', 'pid': 1,
    'host_name': 'elsewhere', 'instance': 'flood', 'since': 0, 'others': 0, 'settled': 0, 'hold': False,
    'recover': False}
"""What an agent says first, to a hub."""


def nonsense(rng: random.Random, depth: int = 0) -> Any:
    """A random value that can be packed."""
    pick = rng.randrange(10 if depth < 4 else 7)
    if pick < 3:
        return rng.choice([0, 1, -1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, -2**63, rng.randrange(2**32)])
    if pick < 7:
        return rng.choice([None, True, 1e308, float('nan'), '', 'p.1', 'DONE', 't.p.1.1', b'', rng.randbytes(9),
                           rng.choice(KINDS), '\x00', 'x' * rng.randrange(200)])
    if pick < 9:
        return [nonsense(rng, depth + 1) for _ in range(rng.randrange(5))]
    return {rng.choice(['uid', 'role', 'pid', 'host', 1, None, b'x']): nonsense(rng, depth + 1)
            for _ in range(rng.randrange(4))}


def malformed(rng: random.Random) -> list[bytes]:
    """The frames of a message that no proper peer sends."""
    pick = rng.randrange(8)
    if pick == 0:
        body = rng.randbytes(rng.randrange(400))
    elif pick == 1:
        body = b'\x91' * rng.randrange(1, 2000) + b'\x00'          # nested deeply
    elif pick == 2:
        body = rng.choice([b'\xdd', b'\xdf', b'\xdb', b'\xc6']) + b'\xff\xff\xff\xff' + rng.randbytes(5)   # 4 GiB
    elif pick == 3:
        body = b'\xc7\x05\x01' + rng.randbytes(5)                   # an extension type
    elif pick < 6:
        body = pack([rng.choice(KINDS), *(nonsense(rng) for _ in range(rng.randrange(7)))])
    else:
        body = pack([nonsense(rng), rng.choice(KINDS), *(nonsense(rng) for _ in range(rng.randrange(5)))])
    extra = [rng.randbytes(5) for _ in range(rng.randrange(1, 5))] if rng.randrange(6) == 0 else []
    return [*extra, body]


def pack(value: Any) -> bytes:
    """The value as bytes, as a peer of any make would pack it."""
    data: bytes = msgpack.packb(value)
    return data
