"""The address of this host at which agents on other hosts reach the session."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Sequence

from rp_api.platforms.definition import ResourceConfig
from rp_api.system.network import interfaces, resolved, source_address
from rp_client.launcher.batch.shell import Target, target

_ELSEWHERE = '192.0.2.1'
"""An unused address (RFC 5737); the source address of packets to it is that of the default route."""

_HERE = ('localhost', '127.0.0.1', '::1')
"""Names of this host, which may also stand for a forwarded port."""

_SSH_TIMEOUT = 10.0
"""Seconds in which ssh must have read its configuration, which may run commands."""

_MOST_JUMPS = 8
"""Nested jump hosts that are followed at most, as there may be a cycle."""


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


def nearest_host(url: str) -> str:
    """Return the first host on the route to the host of a URL, by its name or address in the network.

    This is the host that `ssh -G` reports, or its first jump host; without ssh, it is the host in the URL.
    """
    hop = target(url)
    for _ in range(_MOST_JUMPS):
        known = _configuration([hop.program, '-G', *hop.words]) if hop.program else {}
        first = known.get('proxyjump', 'none').partition(',')[0]
        if first == 'none':
            return known.get('hostname', hop.host)
        hop = _jump(hop.program, first)
    return hop.host


def _jump(program: str, name: str) -> Target:
    """Return a jump host given as `user@host:port` or as an ssh URL."""
    return target(name if '://' in name else f'ssh://{name}')._replace(program=program)


def _configuration(command: Sequence[str]) -> dict[str, str]:
    """Return the configuration that ssh prints for a host; empty on failure."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, errors='replace', timeout=_SSH_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if done.returncode:
        return {}
    pairs = (line.partition(' ') for line in done.stdout.splitlines())
    return {name: value for name, _, value in pairs if value}
