"""A task as one flat row, the same in commands, conditions, data frames, files and the report; its files.

All times are in seconds since 1970, durations in seconds, sizes in bytes. What is not known is None.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rp_api import states
from rp_api.by_value.function_name import function_name
from rp_api.description.partitions import WHOLE
from rp_api.reasons.explain import reason_of, reason_of_pilot
from rp_api.reasons.view import View
from rp_api.task_info.slots import nodes_of
from rp_api.task_info.usage import TaskTimes
from rp_api.units import MB

TEXT, INTEGER, NUMBER, TIME, FLAG = 'text', 'integer', 'number', 'time', 'flag'
"""The kinds of columns."""

_USED: Mapping[str, str] = {'cpu': NUMBER, 'memory': INTEGER, 'read': INTEGER, 'written': INTEGER, 'switches': INTEGER,
                            'gpu': NUMBER, 'gpu_memory': INTEGER}

COLUMNS: Mapping[str, str] = {
    'uid': TEXT, 'name': TEXT, 'program': TEXT, 'arguments': TEXT, 'state': TEXT, 'cause': TEXT, 'reason': TEXT,
    'exit_code': INTEGER, 'cached': FLAG, 'submitted': TIME, 'placed': TIME, 'started': TIME, 'ended': TIME,
    'duration': NUMBER, 'waiting': NUMBER, **_USED, 'ranks': INTEGER, 'cores': INTEGER, 'gpus': NUMBER,
    'requested_memory': INTEGER, 'timeout': NUMBER, 'node': TEXT, 'pilot': TEXT, 'attempts': INTEGER, 'raptor': TEXT,
    'tmgr': TEXT, 'sandbox': TEXT}
"""The columns of a row and their kinds; docs/guides/sweeps.md says what they are."""

Row = dict[str, Any]

_MAX_PROGRAM_CHARS = 60


def row_of(task: Mapping[str, Any], view: View, *, reasons: bool = True) -> Row:
    """Return the row of a task; without `reasons`, these are None, which takes less time."""
    description = task['description']
    times = TaskTimes(task.get('submitted'), *task.get('times') or ())
    duration = times.duration
    if duration is None and times.started is not None and task['state'] == states.AGENT_EXECUTING:
        duration = max(0.0, view.now - times.started)   # until now
    usage = task.get('usage') or {}
    reason = reason_of(task, view) if reasons and task['state'] != states.DONE else None
    ranks = description.get('ranks') or 1
    place = _record_of(task.get('pilot'), view)
    return {
        'uid': task['uid'], 'name': description.get('name') or None, 'program': program_of(description),
        'arguments': _arguments(description), 'state': task['state'], 'cause': reason.kind if reason else None,
        'reason': reason.sentence if reason else None, 'exit_code': task.get('exit_code'),
        'cached': bool(task.get('cached')), **times._asdict(), 'duration': duration, 'waiting': times.waiting,
        **{name: usage.get(name) for name in _USED}, 'ranks': ranks,
        'cores': ranks * description.get('cores_per_rank', 1),
        'gpus': float(ranks * description.get('gpus_per_rank', 0)),
        'requested_memory': ranks * description.get('mem_per_rank', 0) * MB or None,
        'timeout': description.get('timeout') or None, 'node': ','.join(nodes_of(task)) or None,
        'pilot': place.get(WHOLE) or task.get('pilot') or None,
        'attempts': len(task.get('history') or ()) + bool(task.get('attempts') and task.get('pilot')),
        'raptor': description.get('raptor_id') or None, 'tmgr': task.get('tmgr') or None,
        'sandbox': sandbox_of(task, view)}


def pilot_row(pilot: Mapping[str, Any], view: View) -> Row:
    """Return the row of a pilot or partition; `whole` is the pilot of a partition."""
    description, details = pilot['record'].get('description', {}), pilot.get('resource_details') or {}
    reason = reason_of_pilot(pilot, view)
    return {'uid': pilot['uid'], 'resource': description.get('resource'), 'state': pilot['state'],
            'cause': reason.kind if reason else None, 'reason': reason.sentence if reason else None,
            'nodes': len(details.get('node_list') or ()) or description.get('nodes') or None,
            'cores': details.get('cores') or description.get('cores') or None,
            'gpus': details.get('gpus', description.get('gpus')), 'whole': pilot['record'].get(WHOLE)}


def program_of(description: Mapping[str, Any]) -> str | None:
    """Return what a task runs: the name of its program or function, or the first line of its code or command."""
    if executable := description.get('executable'):
        return os.path.basename(str(executable)) or str(executable)
    texts = (description.get(name) for name in ('method', 'code', 'command', 'mode'))
    name = function_name(description.get('function')) or next((str(text) for text in texts if text), '')
    return name.strip().partition('\n')[0][:_MAX_PROGRAM_CHARS] or None


def sandbox_of(task: Mapping[str, Any], view: View) -> str | None:
    """Return the working directory of a task on the platform; None before it is bound to a pilot."""
    record = _record_of(task.get('pilot'), view)
    sandboxes = _record_of(record.get(WHOLE), view).get('sandboxes') or record.get('sandboxes')
    own = task['description'].get('sandbox') or task['uid']
    return os.path.normpath(os.path.join(sandboxes['pilot'], own)) if sandboxes else None


def output_of(task: Mapping[str, Any], view: View, stream: str) -> str | None:
    """Return the path of the file with the task's standard output (`stdout`) or error; None if there is no sandbox."""
    sandbox = sandbox_of(task, view)
    name = task['description'].get(stream) or f'{task["uid"]}.{"out" if stream == "stdout" else "err"}'
    return os.path.join(sandbox, name) if sandbox else None


def _record_of(pilot: str | None, view: View) -> Mapping[str, Any]:
    """Return the record of a pilot or partition; empty without one."""
    return next((each['record'] for each in view.pilots() if each['uid'] == pilot), {}) if pilot else {}


def _arguments(description: Mapping[str, Any]) -> str | None:
    found = description.get('arguments') or description.get('args') or ()
    return ' '.join(map(str, found)) or None if isinstance(found, list | tuple) else '(...)'   # they are pickled
