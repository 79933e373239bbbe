"""The end of a task, for the tasks that are after it."""

from __future__ import annotations

from typing import NamedTuple

from rp_api import states
from rp_api.description.after import DONE, FAILED


class End(NamedTuple):
    """How a task has ended: its final state, and unless that is DONE, the reason (see `reasons.ending`)."""

    state: str
    reason: str = ''

    def meets(self, condition: str) -> bool:
        """Return whether a task may run that is after this one under that condition."""
        if condition == DONE:
            return self.state == states.DONE
        return condition != FAILED or self.state != states.DONE
