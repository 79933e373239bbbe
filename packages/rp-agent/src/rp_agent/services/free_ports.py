"""Free ports for services: outside the range from which the operating system takes ports of outgoing connections.

A port is tested on this host. On other nodes it is free most likely, and a service that cannot listen there ends; its
restart gets another port.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Container
from pathlib import Path

_LOWEST = 10000
_HIGHEST = 32767
_RANGE = Path('/proc/sys/net/ipv4/ip_local_port_range')


def free_port(used: Container[int], preferred: int = 0) -> int:
    """Return a free port that is not in `used`, the preferred one if possible.

    If none is found, it is any port, and the service reports the problem.
    """
    candidates = random.sample(_candidates(), 200)
    port = 0
    for port in [preferred, *candidates] if preferred else candidates:
        if port not in used and _is_free(port):
            break
    return port


def _candidates() -> range:
    try:
        first = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = _HIGHEST + 1
    return range(_LOWEST, first) if first - _LOWEST >= 1000 else range(_LOWEST, _HIGHEST + 1)


def _is_free(port: int) -> bool:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tested:
            tested.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)   # as servers do, despite old connections
            tested.bind(('', port))
    except OSError:
        return False
    return True
