"""Converts profiles of older versions of RADICAL-Pilot into the current format.

There were three formats, which differ in the header and the number of fields:

- now: `time,event,comp,thread,uid,state,msg`
- until 0.46: `time,comp:thread,uid,state,event,msg`
- until 0.35: `time,thread,uid,event,msg`, with times since the start of the agent
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rp_profiling.write.tracer import HEADER

_TODAY = HEADER.lstrip('#').split(',')
_LOOKED_AT = 50
"""Lines that are read to detect the format of a file."""

# names of states until 2015
STATES = {
    'New': 'NEW', 'Done': 'DONE', 'Failed': 'FAILED', 'Canceled': 'CANCELED', 'Cancelled': 'CANCELED',
    'PendingLaunch': 'PMGR_LAUNCHING_PENDING', 'Launching': 'PMGR_LAUNCHING', 'PendingActive': 'PMGR_ACTIVE_PENDING',
    'Active': 'PMGR_ACTIVE', 'Unscheduled': 'TMGR_SCHEDULING_PENDING', 'Scheduling': 'TMGR_SCHEDULING',
    'PendingInputStaging': 'TMGR_STAGING_INPUT_PENDING', 'StagingInput': 'TMGR_STAGING_INPUT',
    'AgentStagingInputPending': 'AGENT_STAGING_INPUT_PENDING', 'AgentStagingInput': 'AGENT_STAGING_INPUT',
    'AllocatingPending': 'AGENT_SCHEDULING_PENDING', 'Allocating': 'AGENT_SCHEDULING',
    'PendingExecution': 'AGENT_EXECUTING_PENDING', 'ExecutingPending': 'AGENT_EXECUTING_PENDING',
    'Executing': 'AGENT_EXECUTING', 'AgentStagingOutputPending': 'AGENT_STAGING_OUTPUT_PENDING',
    'AgentStagingOutput': 'AGENT_STAGING_OUTPUT', 'PendingOutputStaging': 'TMGR_STAGING_OUTPUT_PENDING',
    'StagingOutput': 'TMGR_STAGING_OUTPUT',
}
# the intermediate names are the old ones in capitals: PENDING_LAUNCH
STATES |= {re.sub(r'(?<=[a-z])(?=[A-Z])', '_', old).upper(): new for old, new in STATES.items()}
STATES['ACTIVE_PENDING'] = 'PMGR_ACTIVE_PENDING'
_EVENTS = {'sync abs': 'sync_abs', 'sync rel': 'sync_rel', 'state': 'advance'}

Translate = Callable[[str], str]


def translation(head: bytes) -> Translate | None:
    """Return a function that converts a line of a file which starts with `head`; None if no conversion is needed."""
    width = _width(head.decode('utf-8', 'replace').splitlines()[:_LOOKED_AT])
    if width == 5:
        return _from_first
    if width == 6:
        return _from_second
    return _from_third if b'UMGR_' in head or b'umgr' in head else None


def translate(text: bytes, line: Translate) -> bytes:
    """Return a part of a file in the current format."""
    return ''.join(f'{line(row)}\n' for row in text.decode('utf-8', 'replace').splitlines()
                   if row and not row.startswith('#')).encode()


def _width(lines: list[str]) -> int:
    """Return the number of columns: from the header, if there is one, otherwise from most rows."""
    for line in lines:
        if line.startswith('#') and ',' in line:
            return len(line.lstrip('# ').split(','))
    widths = [len(line.split(',', len(_TODAY) - 1)) for line in lines if line.strip() and not line.startswith('#')]
    return max(set(widths), key=widths.count, default=len(_TODAY))


def _from_first(line: str) -> str:
    time, thread, uid, event, msg = _fields(line, 5)
    return _today(time, event, '', thread, uid, '', msg)


def _from_second(line: str) -> str:
    time, name, uid, state, event, msg = _fields(line, 6)
    comp, _, thread = name.partition(':')
    return _today(time, event, comp, thread, uid, state, msg)


def _from_third(line: str) -> str:
    return _today(*_fields(line, 7))


def _fields(line: str, count: int) -> list[str]:
    """Return the fields of a line, empty where they are missing; a line without a time keeps its one field."""
    found = line.split(',', count - 1)
    return [*found, *[''] * (count - len(found))]


def _today(time: str, event: str, comp: str, thread: str, uid: str, state: str, msg: str) -> str:
    state = STATES.get(state) or state.replace('UMGR_', 'TMGR_', 1)
    comp = comp.replace('umgr', 'tmgr', 1)
    return ','.join((time.strip(), _EVENTS.get(event, event), comp, thread, uid, state, msg))
