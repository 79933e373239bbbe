"""The attribute `after` of task descriptions: the tasks that a task depends on, and how each of them has to end.

It is a list of uids, all with the condition `done`, or a dict of uids and conditions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rp_api.description.casts import text
from rp_api.record import CastError

DONE = 'done'
"""The condition that a task is DONE."""

ENDED = 'ended'
"""The condition that a task has ended, in any state."""

FAILED = 'failed'
"""The condition that a task has ended as FAILED or CANCELED."""

CONDITIONS = (DONE, ENDED, FAILED)

Value = list[str] | dict[str, str]

_FORM = f'a list of tasks or uids, or a dict of these with one of {", ".join(map(repr, CONDITIONS))} for each'


def after(value: Any) -> Value:
    """Cast to the uids of tasks, or to a dict of uids and conditions; tasks are replaced by their uids."""
    if type(value) is list and set(map(type, value)) <= {str}:   # the usual case
        return value
    if isinstance(value, Mapping):
        found = {uid: _condition(condition) for task, condition in value.items() for uid in _uids(task)}
        return value if found == value and type(value) is dict else found
    if isinstance(value, str | os.PathLike) or not isinstance(value, Iterable):
        return [_uid(value)]
    return [uid for task in value for uid in _uids(task)]


def not_empty(value: Value) -> str | None:
    """Check that all uids have characters."""
    return None if all(value) else 'tasks or their uids, which are not empty'


def conditions(value: Value) -> Iterator[tuple[str, str]]:
    """Yield each uid with its condition."""
    if isinstance(value, dict):
        yield from value.items()
    else:
        yield from ((uid, DONE) for uid in value)


def _uids(task: Any) -> Iterator[str]:
    """Yield the uid of a task, or those of a sweep."""
    yield from map(_uid, task if isinstance(task, Iterable) and hasattr(task, 'uid') else (task,))


def _uid(task: Any) -> str:
    uid = getattr(task, 'uid', task)
    try:
        return str(text(uid))   # without the class of generated ones
    except CastError:
        raise CastError(_FORM) from None


def _condition(value: Any) -> str:
    if value not in CONDITIONS:
        raise CastError(_FORM)
    return str(value)
