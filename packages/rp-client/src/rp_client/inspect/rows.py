"""A task as one flat row: what commands list, print as JSON, and use in conditions; its files on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rp_api import states
from rp_api.description.partitions import WHOLE
from rp_api.reasons.explain import reason_of
from rp_api.reasons.view import View
from rp_client.inspect.functions import function_name

Row = dict[str, Any]

FIELDS: Mapping[str, str] = {
    'uid': 'uid', 'name': 'name of the description', 'executable': 'the program, function or command',
    'arguments': 'its arguments, in one line', 'state': 'state', 'kind': 'kind of the reason',
    'reason': 'why it waits, has failed or is slow', 'pilot': 'uid of its pilot', 'node': 'names of its nodes',
    'attempts': 'number of attempts', 'exit_code': 'exit code', 'submitted': 'time of its submission',
    'start': 'time of its start', 'end': 'time of its end', 'elapsed': 'seconds that it has run',
    'waited': 'seconds from submission to start', 'cpu': 'seconds of CPU time', 'memory': 'peak memory in bytes',
    'read': 'bytes read', 'written': 'bytes written', 'gpu': 'mean utilisation of its GPUs, 0 to 1',
    'gpu_memory': 'peak GPU memory in bytes', 'ranks': 'number of ranks', 'cores': 'cores of all ranks',
    'gpus': 'GPUs of all ranks', 'raptor': 'uid of its RAPTOR master', 'tmgr': 'uid of its task manager'}
"""The items of a row, None where they are not known. Times are seconds since 1970."""

_PROGRAMS = ('executable', 'function', 'method', 'code', 'command')
_MAX_PROGRAM_CHARS = 60


def row_of(task: Mapping[str, Any], view: View, *, reasons: bool = True) -> Row:
    """Return the row of a task; without `reasons`, these are None, which takes less time."""
    description = task['description']
    placed, started, ended = task.get('times') or (None, None, None)
    submitted, usage = task.get('submitted'), task.get('usage') or {}
    runs = task['state'] == states.AGENT_EXECUTING
    reason = reason_of(task, view) if reasons else None
    ranks = description.get('ranks', 1)
    begun = started or placed
    return {
        'uid': task['uid'], 'name': description.get('name') or None, 'executable': program_of(description),
        'arguments': _arguments(description),
        'state': task['state'], 'kind': reason.kind if reason else None, 'reason': reason.sentence if reason else None,
        'pilot': task.get('pilot') or None, 'node': ','.join(nodes_of(task)) or None, 'attempts': task.get('attempts'),
        'exit_code': task.get('exit_code'), 'submitted': submitted, 'start': started, 'end': ended,
        'elapsed': _difference(started, ended or (view.now if runs else None)), 'waited': _difference(submitted, begun),
        'cpu': usage.get('cpu'), 'memory': usage.get('memory'), 'read': usage.get('read'),
        'written': usage.get('written'), 'gpu': usage.get('gpu'), 'gpu_memory': usage.get('gpu_memory'),
        'ranks': ranks, 'cores': ranks * description.get('cores_per_rank', 1),
        'gpus': ranks * description.get('gpus_per_rank', 0), 'raptor': description.get('raptor_id') or None,
        'tmgr': task.get('tmgr') or None}


def _arguments(description: Mapping[str, Any]) -> str | None:
    found = description.get('arguments') or description.get('args') or ()
    return ' '.join(map(str, found)) or None if isinstance(found, list | tuple) else '(...)'   # they are pickled


def program_of(description: Mapping[str, Any]) -> str:
    """Return what a task runs: the program, the function by its name, the first line of code or of a command."""
    for name in _PROGRAMS:
        value = description.get(name)
        if name == 'function' and value:
            return function_name(value) or '(function)'
        if isinstance(value, str) and value:
            return value.strip().splitlines()[0][:_MAX_PROGRAM_CHARS]
    return str(description.get('mode', '')) or '-'


def nodes_of(task: Mapping[str, Any]) -> list[str]:
    """Return the names of the nodes that a task runs on, or has run on, each once."""
    return list(dict.fromkeys(str(slot.get('node_name') or slot.get('node_index')) for slot in task.get('slots') or ()))


def sandbox_of(task: Mapping[str, Any], view: View) -> str | None:
    """Return the working directory of a task on the platform; None before it is bound to a pilot."""
    records = {pilot['uid']: pilot['record'] for pilot in view.pilots()}
    record = records.get(task.get('pilot') or '')
    if record is None:
        return None
    pilot = record.get(WHOLE) or task['pilot']   # a partition uses the directory of its pilot
    sandboxes = (view.note(f'job.{pilot}') or {}).get('sandboxes') or records[pilot].get('sandboxes')
    given = task['description'].get('sandbox', '')
    return os.path.normpath(os.path.join(sandboxes['pilot'], given or task['uid'])) if sandboxes else None


def output_of(task: Mapping[str, Any], view: View, stream: str) -> str | None:
    """Return the path of the file with the task's standard output (`stdout`) or error; None if there is no sandbox."""
    sandbox = sandbox_of(task, view)
    name = task['description'].get(stream) or f'{task["uid"]}.{"out" if stream == "stdout" else "err"}'
    return os.path.join(sandbox, name) if sandbox else None


def _difference(first: float | None, last: float | None) -> float | None:
    return None if first is None or last is None else max(0.0, last - first)
