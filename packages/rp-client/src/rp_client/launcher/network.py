"""The address of this host at which agents on other hosts reach the session."""

from __future__ import annotations

import os
import socket

from rp_api.platforms.definition import ResourceConfig
from rp_api.system.network import interfaces, resolved, source_address
from rp_client.launcher.ssh_config import nearest_host

_ELSEWHERE = '192.0.2.1'
"""An unused address (RFC 5737); the source address of packets to it is that of the default route."""

_HERE = ('localhost', '127.0.0.1', '::1')
"""Names of this host, which may also stand for a forwarded port."""


def own_address(platform: ResourceConfig) -> str:
    """Return the address or interface of this host that a socket for agents on the platform binds to.

    It is RADICAL_PILOT_PROXY_HOST, the platform's `network_interface` if this host has it, the source address of
    packets to the platform's host (or its jump host), or that of the default route. The call may run ssh and query name
    servers.
    """
    asked = os.environ.get('RADICAL_PILOT_PROXY_HOST')
    if asked:
        return asked if asked in interfaces() else resolved(asked) or asked
    if platform.network_interface in interfaces():
        return platform.network_interface
    host = nearest_host(platform.job_manager_endpoint)
    found = source_address(host) if host not in _HERE else ''
    return found or source_address(_ELSEWHERE) or resolved(socket.gethostname()) or '127.0.0.1'
