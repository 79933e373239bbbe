"""Access to a process that listens: its address and keys, and the side that admits those who have them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import zmq

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.system import private
from rp_api.transport.connection import Listener
from rp_api.transport.keys import DOMAIN, Gate, KeyPair, generate, read_private

_LARGEST_FILE = 4096


@dataclass(frozen=True, slots=True)
class Access:
    """The address of a listener, its public key, and the key pair for connecting (all CURVE keys as z85)."""

    address: str
    server: str
    public: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        for name in ('address', 'server', 'public', 'secret'):
            if not isinstance(getattr(self, name), str):
                raise CoordinationError(f'{name} of an access must be a string')

    @classmethod
    def read(cls, data: object) -> Access:
        """Return the access from the data of `as_dict`; raise CoordinationError if it is malformed."""
        if not isinstance(data, Mapping) or set(data) != {'address', 'server', 'public', 'secret'}:
            raise CoordinationError('an access is a dict of address, server, public and secret')
        return cls(**data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Access:
        """Return the access in a file; raise CoordinationError if it is not private or malformed."""
        try:
            return cls.read(json.loads(read_private(path, _LARGEST_FILE)))
        except ValueError as error:
            raise CoordinationError(f'refusing the key file {os.fspath(path)}: {error}') from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the access to a file that only its owner can read, replacing it atomically."""
        private.write_file(path, json.dumps(self.as_dict()).encode())

    def as_dict(self) -> dict[str, str]:
        """Return the access as plain data, including the secret."""
        return asdict(self)

    @property
    def keys(self) -> KeyPair:
        """The key pair for connecting."""
        return KeyPair(self.public.encode(), self.secret.encode())

    @property
    def server_key(self) -> bytes:
        """The public key of the listener."""
        return self.server.encode()


class AccessPoint:
    """The keys and the gate of a process that listens, in a context of its own unless one is given."""

    def __init__(self, loop: Loop, context: zmq.Context[Any] | None = None, domain: str = DOMAIN) -> None:
        self._loop = loop
        self._domain = domain
        self._shares = context is not None
        self.context = context or zmq.Context()
        self.keys = generate()
        self.gate = Gate(self.context, loop)

    def listen(self, kind: int, address: str | None, high_water: int, receive: Callable[[], object],
               base: str | None = None, *, gone: Callable[[], object] | None = None) -> Listener:
        """Return a new listener, see there."""
        return Listener(self._loop, kind, self.keys, self.gate, address, self._domain, high_water, receive, base,
                        gone=gone)

    def admit(self, address: str) -> Access:
        """Admit peers with new keys, and return their access to this address."""
        keys = generate()
        self.gate.allow(keys.public, self._domain)
        return Access(address, self.keys.public.decode(), keys.public.decode(), keys.secret.decode())

    def close(self) -> None:
        """Close the gate and the context, after all sockets."""
        self.gate.close()
        if not self._shares:
            self.context.term()
