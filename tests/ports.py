"""Ports at which the servers of a test can listen."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

_RANDOM = random.SystemRandom()   # another than in the tests that run beside this one, whatever these have seeded


def free_ports(count: int) -> list[int]:
    """So many ports at which nobody listens.

    None of them is one that the system gives away: between two uses of a port by a test, nobody gets it by chance.
    """
    found: set[int] = set()
    while len(found) < count:
        port = _RANDOM.randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(('127.0.0.1', port))
            found.add(port)
    return sorted(found)
