"""Waits as components report them: plain data in the item `waits_for` of a task's info.

It is a dict of the kind of the wait, the text of what the task waits for, and since when; empty once the wait is over.
Version 2.0 has reported the text alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rp_api.reasons.kinds import STEP, WAITING

WAITS_FOR = 'waits_for'
"""The item of a task's info."""


class Wait(NamedTuple):
    """A wait: its kind, a text that completes "it waits for", and since when, in seconds since 1970."""

    kind: str
    text: str
    since: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the wait as plain data."""
        return self._asdict()


def read_wait(value: Any) -> Wait | None:
    """Return a reported wait; None if the task waits for nothing any more, or nothing was reported."""
    if isinstance(value, dict):
        return Wait(str(value.get('kind') or STEP), str(value.get('text')), value.get('since'))
    return Wait(_of_version_2_0(str(value)), str(value), None) if value else None


def _of_version_2_0(text: str) -> str:
    first = text.partition(' ')[0]
    known = {'environment': 'environment', 'service': 'service', 'attempt': 'attempt', 'another': 'attempt',
             'restart': 'attempt', 'workers': 'workers', 'resources': 'place', 'its': 'workers'}
    return f'{WAITING}.{known[first]}' if first in known else STEP
