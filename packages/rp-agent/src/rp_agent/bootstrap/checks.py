"""Checks that run before an agent starts: clocks, and the connection to the hub."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from rp_agent.bootstrap.failure import BootstrapError

NETWORK_ERROR, CLOCK_ERROR = 22, 23

CONNECT_TIMEOUT = 5.0
"""Seconds that a hub may take to answer."""

MOST_SKEW = 6 * 3600.0
"""Maximum clock difference in seconds. A larger one makes traces useless and certificates invalid."""


def clock(submitted: float, now: float, files: float) -> None:
    """Compare the clock of this node with the clocks of the client and the file system.

    Only a start before the submission is an error: a pilot may wait in the batch queue for days.
    """
    node = os.uname().nodename
    if submitted - now > MOST_SKEW:
        raise BootstrapError(CLOCK_ERROR, f'the clock of {node} is {_hours(submitted - now)} behind that of the '
                             'client: one of them has to be set')
    if abs(files - now) > MOST_SKEW:
        side = 'behind' if files > now else 'ahead of'
        raise BootstrapError(CLOCK_ERROR, f'the clock of {node} is {_hours(abs(files - now))} {side} that of the file '
                             'system in which the sandbox is: the administrators of the machine have to set it')


def hub_answers(access: Mapping[str, Any]) -> None:
    """Check that this node reaches the hub of the session; raise `BootstrapError` if it does not."""
    endpoint = str(access.get('endpoint', ''))
    url = urlsplit(endpoint)
    if access.get('backend') != 'hub' or url.scheme not in ('tcp', 'ipc'):
        return
    try:
        with _connected(url.scheme, url.hostname, url.port, url.path) as connection:
            if connection.recv(1):   # a ZeroMQ socket sends a greeting first
                return
        reason = 'the connection was closed at once'
    except TimeoutError:
        reason = f'no answer within {CONNECT_TIMEOUT:.0f} s'
    except OSError as error:
        reason = error.strerror or str(error)
    through = 'through the tunnel ' if 'RP_TUNNEL' in os.environ else ''
    raise BootstrapError(NETWORK_ERROR, f'{os.uname().nodename} does not reach the hub of the session {through}at '
                         f'{endpoint}: {reason}. It has to listen at an address that the nodes reach: set '
                         'RADICAL_PILOT_PROXY_HOST, in the environment of the application, to such an address, name or '
                         'network interface of its host. If it has none, a tunnel is needed (forward_tunnel_endpoint '
                         'of the platform)')


def _connected(scheme: str, host: str | None, port: int | None, path: str) -> socket.socket:
    if scheme == 'tcp':
        return socket.create_connection((host or '', port or 0), CONNECT_TIMEOUT)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(CONNECT_TIMEOUT)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _hours(seconds: float) -> str:
    return f'{seconds / 3600:.0f} hours'
