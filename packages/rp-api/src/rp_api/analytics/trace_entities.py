"""Pilots and tasks of a session derived from its traces, for sessions without a hub such as simulated ones.

They have the form of `rp_api.coordination.sessions`, with the data that traces contain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rp_profiling.read.trace import Trace

PMGR, TMGR = 'pmgr.0000', 'tmgr.0000'
"""The managers of all pilots and tasks, because traces do not record them."""


def pilots(trace: Trace) -> Iterator[dict[str, Any]]:
    """Yield the pilots whose agents have reported their resources."""
    from rp_profiling.analyse.occupation import Occupation

    for place, resources in Occupation(trace).resources.items():
        amounts = asdict(resources)
        yield {'uid': trace.places[place], 'resource_details': amounts,
               'record': {'pmgr': PMGR, 'description': {'nodes': amounts['nodes']}}}


def tasks(trace: Trace) -> Iterator[dict[str, Any]]:
    """Yield the tasks, each with its last pilot and slots."""
    columns = trace.columns
    had = {int(columns.uid[row]): int(row) for row in trace.rows_of('schedule_ok')}
    for task in map(int, trace.entities('task')):
        known: dict[str, Any] = {'uid': columns.uids[task], 'tmgr': TMGR, 'pilot': '', 'slots': [],
                                 'description': {}}
        if task in had:
            row = had[task]
            known['pilot'] = trace.places[trace.place_of_source[columns.source[row]]]
            known['slots'] = _slots(columns.messages[columns.message[row]])
            known['description'] = {'ranks': len(known['slots'])}
        yield known


def _slots(message: str) -> list[dict[str, Any]]:
    """Return the slots of all ranks, from the short form in traces."""
    from rp_profiling.write.slots import CORE, parse

    found = []
    for word in message.split():
        slot: dict[str, Any] = {'cores': [], 'gpus': []}
        for share in parse(word):
            slot['node_index'] = share.node
            slot['cores' if share.kind == CORE else 'gpus'].append(
                {'index': share.device, 'occupation': share.amount})
        found.append(slot)
    return found
