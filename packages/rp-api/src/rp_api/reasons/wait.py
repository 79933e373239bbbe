"""Waits as components report them: plain data in the item `waits_for` of a task's info.

It is a dict of the kind of the wait, the text of what the task waits for, and since when; empty once the wait is over.
Version 2.0 has reported the text alone.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from rp_api.raptor_link import ANY
from rp_api.reasons.kinds import STEP

WAITS_FOR = 'waits_for'
"""The item of a task's info."""


class Wait(NamedTuple):
    """A wait: its kind, a text that completes "it waits for", and since when, in seconds since 1970."""

    kind: str
    text: str
    since: float | None


def wait(kind: str, text: str) -> dict[str, Any] | str:
    """Return a wait that begins now, as plain data; empty if the text is."""
    return Wait(kind, text, time.time())._asdict() if text else ''


def read_wait(value: Any) -> Wait | None:
    """Return a reported wait; None if the task waits for nothing any more, or nothing was reported."""
    if isinstance(value, dict):
        return Wait(str(value.get('kind') or STEP), str(value.get('text')), value.get('since'))
    return Wait(STEP, str(value), None) if value else None


def no_master(uid: str) -> str:
    """Return the text about a RAPTOR master that was not submitted."""
    return 'a RAPTOR master (none was submitted)' if uid == ANY else f'RAPTOR master {uid} (was not submitted)'
