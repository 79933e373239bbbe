"""Addresses of this host. Names may be asked for; nothing is sent to the hosts that are asked about."""

from __future__ import annotations

import socket

_DISCARD = 9


def interfaces() -> set[str]:
    """The names of the network interfaces here."""
    return {name for _, name in socket.if_nameindex()}


def source_address(host: str) -> str:
    """The address that packets to a host come from; empty if there is no way there."""
    try:
        return _source(host, _DISCARD)
    except (OSError, UnicodeError):   # the latter for what cannot be a name
        return ''


def address_towards(server: str) -> str:
    """Where to listen, `tcp://HOST`, for a server at `tcp://HOST:PORT` and whoever is beside it.

    It is the address that packets to the server come from; OSError if there is no way there.
    """
    host, _, port = server.removeprefix('tcp://').rpartition(':')
    return f'tcp://{_source(host, int(port))}'


def resolved(name: str) -> str:
    """The address of a host of that name; empty if there is none."""
    try:
        return socket.gethostbyname(name)
    except (OSError, UnicodeError):
        return ''


def _source(host: str, port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))   # which sends nothing
        address: str = probe.getsockname()[0]
        return address
