"""Addresses of this host and name resolution, without sending packets to the hosts concerned."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

_DISCARD = 9
_SIOCGIFADDR = 0x8915   # in all Linux systems


def interfaces() -> set[str]:
    """Return the names of the network interfaces."""
    return {name for _, name in socket.if_nameindex()}


def interface_address(name: str) -> str:
    """Return the IPv4 address of a network interface; empty if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack('256s', os.fsencode(name)[:15]))
        except OSError:
            return ''
    return socket.inet_ntoa(answer[20:24])


def source_address(host: str) -> str:
    """Return the source address of packets to a host; empty if it cannot be reached."""
    try:
        return _source(host, _DISCARD)
    except (OSError, UnicodeError):   # the latter for invalid names
        return ''


def address_towards(server: str) -> str:
    """Return the address `tcp://HOST` on which a server at `tcp://HOST:PORT` and its neighbours reach this host.

    It is the source address of packets to the server; raise OSError if the server cannot be reached.
    """
    host, _, port = server.removeprefix('tcp://').rpartition(':')
    return f'tcp://{_source(host, int(port))}'


def resolved(name: str) -> str:
    """Return the address of a host name; empty if it cannot be resolved."""
    try:
        return socket.gethostbyname(name)
    except (OSError, UnicodeError):
        return ''


def _source(host: str, port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))   # sends nothing
        address: str = probe.getsockname()[0]
        return address
