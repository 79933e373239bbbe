"""What the pilots and tasks of a session are by its traces alone: for sessions without a hub, as simulated ones are.

Pilots and tasks look as those that hubs have stored (`rp_api.coordination.sessions`), as far as traces know them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rp_profiling.read.trace import Trace

PMGR, TMGR = 'pmgr.0000', 'tmgr.0000'
"""The managers that all pilots and tasks are counted to, as traces do not say whose they are."""


def pilots(trace: Trace) -> Iterator[dict[str, Any]]:
    """The pilots whose agents have told what they have."""
    from rp_profiling.analyse.occupation import Occupation

    for place, resources in Occupation(trace).resources.items():
        amounts = asdict(resources)
        yield {'uid': trace.places[place], 'resource_details': amounts,
               'record': {'pmgr': PMGR, 'description': {'nodes': amounts['nodes']}}}


def tasks(trace: Trace) -> Iterator[dict[str, Any]]:
    """The tasks, each with the pilot and the slots that it had last."""
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
    """The slots of all ranks, from the short form that traces have."""
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
