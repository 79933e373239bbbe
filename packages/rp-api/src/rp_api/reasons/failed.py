"""Reasons of tasks that have failed or were cancelled: the cause behind the kind of the failure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rp_api import states
from rp_api.failures import kinds as k
from rp_api.failures.task_error import TaskError, task_error
from rp_api.reasons.exit_codes import CRASHES, meaning, signal_of
from rp_api.reasons.kinds import CANCELED, FAILED, KINDS
from rp_api.reasons.reason import Reason
from rp_api.reasons.symptoms import recognised
from rp_api.system.signals import name_of

_OF_PROGRAM = frozenset({k.EXIT, k.SIGNAL, k.LAUNCH, k.EXCEPTION, k.INTERNAL, k.STAGING})
"""The kinds of failures whose cause a line of an output may name."""

_OF_SYSTEM = frozenset({'failed.disk', 'failed.permission', 'failed.network'})
"""The causes of failures of the components themselves."""

LIMIT_WORDS = re.compile(r'time.?limit|walltime|runlimit|reached its runtime|\bdeadline\b', re.IGNORECASE)
"""Words of batch systems and agents about a job whose time is over."""

_BY_CODE: Mapping[int, str] = {2: 'failed.usage', 64: 'failed.usage', 66: 'failed.file', 73: 'failed.permission',
                               77: 'failed.permission', 124: 'failed.timeout', 125: 'failed.launch',
                               126: 'failed.permission', 127: 'failed.program'}
"""The kinds of reasons that exit codes say alone."""


def has_failed(task: Mapping[str, Any]) -> bool:
    """Return whether a task has failed, or a time limit or what it depends on has cancelled it."""
    if task['state'] == states.CANCELED:
        return bool((error := task.get('error')) and error.get('kind') not in (None, k.CANCELED))
    return bool(task['state'] == states.FAILED)


def failed(task: Mapping[str, Any]) -> Reason:
    """Return the reason of a task that has failed or was cancelled.

    Args:
        task: The task, with the paths of its files as `outputs` where they are known.
    """
    error = task_error(task['uid'], task['state'], task, task.get('outputs') or {})
    assert error is not None
    since = (task.get('times') or (None, None, None))[2]
    if error.kind == k.CANCELED:   # a time-out or a failed dependency cancels it as well
        said = error.sentence if task.get('exception') else 'it was cancelled'
        return Reason(CANCELED, said, since, _evidence(task, error), KINDS[CANCELED].remedy)
    kind, cause = _cause(task, error)
    return Reason(kind, _sentence(error, cause), since, _evidence(task, error), KINDS[kind].remedy)


def _cause(task: Mapping[str, Any], error: TaskError) -> tuple[str, str]:
    """Return the kind of the reason, and the cause in words; empty if the sentence of the failure says it."""
    if error.kind not in _OF_PROGRAM:
        return f'{FAILED}.{error.kind}', ''
    detail = str(task.get('exception_detail') or '')
    texts = [error.last_lines, error.sentence, detail if error.kind != k.EXIT else '']
    found = next((found for text in texts if text and (found := recognised(text))), None)
    if found is not None and error.kind in (k.INTERNAL, k.STAGING) and found[0] not in _OF_SYSTEM:
        found = None
    if error.kind == k.EXCEPTION and (found is None or found[0] == f'{FAILED}.exception'):
        return f'{FAILED}.exception', ''
    if found is not None:
        return found
    return _by_end(error)


def _by_end(error: TaskError) -> tuple[str, str]:
    """Return what the way says in which the program has ended."""
    code = error.exit_code
    number = error.signal_number or (signal_of(code) if error.kind in (k.EXIT, k.SIGNAL, k.LAUNCH) else None)
    if number is not None:
        name = name_of(number)
        kind = 'architecture' if name == 'SIGILL' else 'crash' if name in CRASHES else k.SIGNAL
        return f'{FAILED}.{kind}', meaning(-number)
    if error.kind in (k.EXIT, k.LAUNCH) and code:
        return _BY_CODE.get(code, f'{FAILED}.{error.kind}'), meaning(code)
    return f'{FAILED}.{error.kind}', ''


def _sentence(error: TaskError, cause: str) -> str:
    """Return the cause, if there is one, and how the task has ended."""
    if error.kind in (k.EXIT, k.SIGNAL, k.LAUNCH) and cause:
        return f'{cause} ({error.sentence})' if cause not in error.sentence else error.sentence
    return error.sentence


def _evidence(task: Mapping[str, Any], error: TaskError) -> dict[str, Any]:
    found = {'failure': error.kind, 'exit_code': error.exit_code, 'signal': error.signal, 'path': error.path,
             'lines': error.last_lines or None, 'nodes': nodes_of(task) or None, 'pilot': task.get('pilot') or None}
    return {name: value for name, value in found.items() if value is not None}


def nodes_of(task: Mapping[str, Any]) -> list[str]:
    """Return the names of the nodes of a task."""
    return list(dict.fromkeys(str(slot.get('node_name')) for slot in task.get('slots') or ()))
