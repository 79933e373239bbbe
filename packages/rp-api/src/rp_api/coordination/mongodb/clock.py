"""The offset of this clock to that of the database, the common reference of client and agents."""

from __future__ import annotations

from datetime import datetime, timezone
from time import time_ns

from rp_api.coordination.mongodb.server import Client
from rp_api.transport.clocks import ROUNDS
from rp_profiling.write.host_clock import SAME, Reading

TICK = 1_000_000
"""Nanoseconds in the resolution of a server's time (1 ms); the rest is cut off."""


def read_clock(client: Client) -> Reading:
    """Return the best of several readings."""
    return min((_reading(client) for _ in range(ROUNDS)), key=lambda reading: reading.within)


def _reading(client: Client) -> Reading:
    sent = time_ns()
    there = client.admin.command('hello').get('localTime')
    now = time_ns()
    if not isinstance(there, datetime):   # not every compatible server sends it
        return SAME
    milliseconds = round(there.replace(tzinfo=timezone.utc).timestamp() * 1000)
    return Reading((sent + now) // 2 - milliseconds * TICK - TICK // 2, max(0, now - sent) // 2 + TICK // 2)
