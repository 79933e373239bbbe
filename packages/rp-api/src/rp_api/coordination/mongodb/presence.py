"""Presence of clients and agents: they record their processes, and others check whether these are alive."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Mapping
from typing import Any

from rp_api.coordination.mongodb.server import Collection, Document
from rp_api.system.host import host_id
from rp_api.system.processes import lives, start_time


def here() -> Document:
    """Return host, pid and start time of this process."""
    return {'host': host_id(), 'name': os.uname().nodename, 'pid': os.getpid(), 'started': start_time(os.getpid())}


def has_died(where: Mapping[str, Any]) -> bool:
    """Return whether a process on this host has ended; False for other hosts, where that is unknown."""
    return where['host'] == host_id() and not lives(where['pid'], where['started'])


def living_client(collection: Collection, session: Document, interval: float) -> str:
    """Return the process of a session's client if it lives; empty if it has left, died, or exceeded its lease.

    This waits up to the lease for a heartbeat if the client is on another host and has not left.
    """
    client = session['client']
    name = f'process {client["pid"]} on {client["name"]}'
    if client['left'] or has_died(client):
        return ''
    if client['host'] == host_id():
        return name
    deadline = time.monotonic() + session['lease']
    while time.monotonic() < deadline:
        time.sleep(min(interval, session['lease'] / 4))
        now = collection.find_one({'_id': session['_id']})
        if now is None or now['client']['left']:
            return ''
        if (now['client']['instance'], now['client']['beat']) != (client['instance'], client['beat']):
            return name
    return ''


class Silence:
    """Measures the seconds since each of several heartbeats changed."""

    def __init__(self, interval: float) -> None:
        self._longest = 2 * interval
        self._seen: dict[Hashable, tuple[object, float, float]] = {}

    def observe(self, who: Hashable, beat: object, now: float) -> float:
        """Return the seconds since the heartbeat of `who` changed, which has the value `beat` at the time `now`."""
        known, looked, silent = self._seen.get(who, (None, now, 0.0))
        silent = silent + min(now - looked, self._longest) if known == beat else 0.0
        self._seen[who] = beat, now, silent
        return silent
