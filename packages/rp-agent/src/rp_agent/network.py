"""The address of this host on the network of the pilot's nodes."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any

from rp_api.system.network import address_towards, interface_address, interfaces, resolved, source_address


def listen_address(platform: Mapping[str, Any], other: str) -> str:
    """Return the address to listen at for other nodes, such as `other`, in the form that `transport.Listener` takes.

    It is the platform's network interface if this host has one of that name, else the source address of packets to the
    other node, else the address of this host's name.
    """
    here = interfaces()
    for name in (platform.get('network_interface'), (platform.get('system_architecture') or {}).get('iface')):
        if name in here:
            return f'tcp://{name}'
    return f'tcp://{source_address(other) or resolved(socket.gethostname()) or "127.0.0.1"}'


def service_address(platform: Mapping[str, Any], others: Sequence[str], coordinator: str) -> str:
    """Return the IP address to listen at for the pilot's tasks and, if the coordinator is on another host, for that.

    Args:
        platform: The platform's definition.
        others: The names of other nodes of the pilot.
        coordinator: The address of the coordinator, if it has a host name; anything else means this host.
    """
    if others:
        address = listen_address(platform, others[-1])
    else:
        try:
            address = address_towards(coordinator) if coordinator.startswith('tcp://') else ''
        except OSError:
            address = ''
    host = address.removeprefix('tcp://')
    return (interface_address(host) if host in interfaces() else host) or '127.0.0.1'
