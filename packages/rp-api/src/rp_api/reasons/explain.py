"""The reason of a task or pilot, given a view of its session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_api import states
from rp_api.reasons.reason import Reason
from rp_api.reasons.view import View


def reason_of(task: Mapping[str, Any], view: View) -> Reason | None:
    """Return why a task waits, has failed or is slow; None if it is done, or runs as others of its kind."""
    if task['state'] == states.FAILED:
        return Reason('failed', str(task.get('exception')), view.now)
    return None


def reason_of_pilot(pilot: Mapping[str, Any], view: View) -> Reason | None:
    """Return why a pilot does not run; None if it runs, or has ended as it was to."""
    if pilot['state'] == states.FAILED:
        return Reason('failed', str(pilot.get('exception')), view.now)
    return None
