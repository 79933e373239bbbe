"""The address of this host at which the other nodes of the pilot find it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from rp_api.system.network import interfaces, resolved, source_address


def listen_address(platform: Mapping[str, Any], other: str) -> str:
    """Where to listen for processes on other nodes, one of which is `other`, as `mesh.connection.Listener` takes it.

    It is the platform's network interface if there is one of that name here, else the address that packets to the other
    node come from, else that of this host's name. Names are asked for.
    """
    here = interfaces()
    for name in (platform.get('network_interface'), (platform.get('system_architecture') or {}).get('iface')):
        if name in here:
            return f'tcp://{name}'
    return f'tcp://{source_address(other) or resolved(socket.gethostname()) or "127.0.0.1"}'
