"""The reason of a task or pilot, given a view of its session, and its explanation in several lines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from rp_api import states
from rp_api.reasons.failed import failed
from rp_api.reasons.pilots import pilot_reason
from rp_api.reasons.reason import Reason
from rp_api.reasons.slow import slowness
from rp_api.reasons.view import View
from rp_api.reasons.waits import waits

_SHOWN_LINES = 10


def reason_of(task: Mapping[str, Any], view: View) -> Reason | None:
    """Return why a task waits, has failed or is slow; None if it is done, or runs as others of its kind.

    Args:
        task: The task, as `view.task` returns it.
        view: The session.
    """
    state = task['state']
    if state == states.DONE:
        return None
    if state in states.FINAL:
        return failed(task)
    if (found := waits(task, view)) is not None:
        return found if found.since is not None else found._replace(since=task.get('submitted'))
    return slowness(task, view) if state == states.AGENT_EXECUTING else None


def reason_of_pilot(pilot: Mapping[str, Any], view: View) -> Reason | None:
    """Return why a pilot does not run, or has ended; None if it is active.

    Args:
        pilot: The pilot or partition, one of `view.pilots()`.
        view: The session.
    """
    return pilot_reason(pilot, view)


def explanation(entity: Mapping[str, Any], view: View, *, pilot: bool = False) -> str:
    """Return a text of several lines: the state, the reason, since when, what it follows from, and the remedy.

    Args:
        entity: A task, or a pilot or partition.
        view: The session.
        pilot: True for a pilot.
    """
    reason = reason_of_pilot(entity, view) if pilot else reason_of(entity, view)
    if reason is None and not pilot and entity['state'] == states.DONE:
        reason = slowness(entity, view)
    lines = [f'{entity["uid"]} is {entity["state"]}' + (f': {reason.sentence}' if reason else '')]
    if reason is None:
        lines += _well(entity, view, pilot=pilot)
    else:
        if reason.since is not None:
            lines.append(f'since: {_clock(reason.since)} ({max(0.0, view.now - reason.since):.0f} s)')
        lines += _evidence(reason)
        if reason.remedy:
            lines.append(f'what to do: {reason.remedy}')
    return '\n'.join(lines)


def _well(entity: Mapping[str, Any], view: View, *, pilot: bool) -> Iterator[str]:
    """Yield what there is to say about a task or pilot without a reason."""
    if pilot:
        for entry in entity.get('waiting') or ():
            yield f'waiting there: {entry["count"]}, first {entry["first"]}: {entry["sentence"]}'
    elif entity['state'] == states.AGENT_EXECUTING:
        started = (entity.get('times') or (None, None, None))[1]
        yield 'it runs' + (f' for {view.now - started:.0f} s' if started else '')


def _evidence(reason: Reason) -> Iterator[str]:
    for name, value in reason.evidence.items():
        if name == 'lines':
            yield 'last lines:'
            yield from (f'    {line}' for line in str(value).splitlines()[-_SHOWN_LINES:])
        elif isinstance(value, Mapping):
            yield f'{name}: ' + ', '.join(f'{key} {each}' for key, each in value.items())
        elif isinstance(value, list | tuple):
            yield f'{name}: ' + ', '.join(map(str, value))
        else:
            yield f'{name}: {value:.6g}' if isinstance(value, float) else f'{name}: {value}'


def _clock(moment: float) -> str:
    return time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(moment))
