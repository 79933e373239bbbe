"""The address of this host at which agents on other hosts find the session."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

from rp_api.platforms.definition import ResourceConfig

_ELSEWHERE = '192.0.2.1'
"""An address that nobody has (RFC 5737); what a packet to it would be sent from is the default route's address."""

_DISCARD = 9


def own_address(platform: ResourceConfig) -> str:
    """What a socket that is to be reached from the platform binds to: an address of this host, or an interface.

    It is what RADICAL_PILOT_PROXY_HOST says, else the platform's `network_interface` if there is one of that name here,
    else the address that packets to the platform's host, or to anywhere, come from. It may ask a name server.
    """
    asked = os.environ.get('RADICAL_PILOT_PROXY_HOST')
    if asked:
        return _resolved(asked) or asked
    if platform.network_interface in _interfaces():
        return platform.network_interface
    host = urlsplit(platform.job_manager_endpoint).hostname or 'localhost'
    found = _source(host) if host not in ('localhost', '127.0.0.1') else ''
    return found or _source(_ELSEWHERE) or _resolved(socket.gethostname()) or '127.0.0.1'


def _interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


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
    """The address of a name; an interface stands for itself. Empty if there is none."""
    if name in _interfaces():
        return name
    try:
        return socket.gethostbyname(name)
    except (OSError, UnicodeError):   # the latter for what cannot be a name
        return ''
