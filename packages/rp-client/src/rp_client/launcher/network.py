"""The address of this host at which agents on other hosts find the session."""

from __future__ import annotations

import os
import socket

from rp_api.platforms.definition import ResourceConfig
from rp_api.system.network import interfaces, resolved, source_address
from rp_client.launcher.ssh_config import nearest_host

_ELSEWHERE = '192.0.2.1'
"""An address that nobody has (RFC 5737); what a packet to it would be sent from is the default route's address."""

_HERE = ('localhost', '127.0.0.1', '::1')
"""Hosts that are this one, or reached through a port of this one, which says nothing about the network."""


def own_address(platform: ResourceConfig) -> str:
    """What a socket that is to be reached from the platform binds to: an address of this host, or an interface.

    It is what RADICAL_PILOT_PROXY_HOST says, else the platform's `network_interface` if there is one of that name here,
    else the address that packets to the platform's host (or its jump host), or to anywhere, come from. It may ask ssh
    and a name server.
    """
    asked = os.environ.get('RADICAL_PILOT_PROXY_HOST')
    if asked:
        return asked if asked in interfaces() else resolved(asked) or asked
    if platform.network_interface in interfaces():
        return platform.network_interface
    host = nearest_host(platform.job_manager_endpoint)
    found = source_address(host) if host not in _HERE else ''
    return found or source_address(_ELSEWHERE) or resolved(socket.gethostname()) or '127.0.0.1'
