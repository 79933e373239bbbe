"""Takes the encryption off all connections of the processes that have this directory on their PYTHONPATH.

Only for `curve.py` and `raptor_transports.py`, which measure what encryption costs; no part of the system knows of it.
Peers still say their public key, in ZeroMQ's PLAIN mechanism, and are admitted by it, so that everything else is as it
is.
"""

from __future__ import annotations

from typing import Any

import zmq

from rp_api.transport import keys as curve


def _make_server(socket: zmq.Socket[Any], keys: curve.KeyPair, domain: str = curve.DOMAIN) -> None:
    socket.plain_server = True
    socket.zap_domain = domain.encode()
    curve._set_common(socket)


def _make_client(socket: zmq.Socket[Any], keys: curve.KeyPair, server_public: bytes) -> None:
    socket.plain_username = keys.public
    socket.plain_password = b'-'
    curve._set_common(socket)


def _admitted(gate: curve.Gate, domain: bytes, mechanism: bytes, credentials: list[bytes]) -> bytes:
    return credentials[0] if mechanism == b'PLAIN' and (domain, credentials[0]) in gate._allowed else b''


curve.make_server = _make_server
curve.make_client = _make_client
curve.Gate._admitted = _admitted  # type: ignore[method-assign, assignment]
