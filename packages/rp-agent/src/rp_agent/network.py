"""The address of this host at which the other nodes of the pilot find it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

_DISCARD = 9


def listen_address(platform: Mapping[str, Any], other: str) -> str:
    """Where to listen for processes on other nodes, one of which is `other`, as `mesh.connection.Listener` takes it.

    It is the platform's network interface if there is one of that name here, else the address that packets to the other
    node come from, else that of this host's name. Names are asked for.
    """
    interfaces = {name for _, name in socket.if_nameindex()}
    for name in (platform.get('network_interface'), (platform.get('system_architecture') or {}).get('iface')):
        if name in interfaces:
            return f'tcp://{name}'
    return f'tcp://{_source(other) or _resolved(socket.gethostname()) or "127.0.0.1"}'


def _source(host: str) -> str:
    """The address that packets to a host come from; nothing is sent. Empty if there is no way there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, _DISCARD))
        except (OSError, UnicodeError):   # the latter for what cannot be a name
            return ''
        address: str = probe.getsockname()[0]
        return address


def _resolved(name: str) -> str:
    try:
        return socket.gethostbyname(name)
    except (OSError, UnicodeError):
        return ''
