"""Who is there: how clients and agents write down where they run, and how others find out whether they still do."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from rp_api.coordination.mongodb.server import Collection, Document
from rp_api.system.host import host_id
from rp_api.system.processes import lives, start_time


def here() -> Document:
    """Where this process runs, so that others can tell whether it still does."""
    return {'host': host_id(), 'name': os.uname().nodename, 'pid': os.getpid(), 'started': start_time(os.getpid())}


def has_died(where: Mapping[str, Any]) -> bool:
    """Whether a process on this host has ended; False for those on other hosts, which cannot be seen."""
    return where['host'] == host_id() and not lives(where['pid'], where['started'])


def living_client(collection: Collection, session: Document, interval: float) -> str:
    """Where the client of an open session lives; empty if it has left, died, or shows no sign of life for its lease.

    Returns only after that time if the client is on another host and has not left.
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
