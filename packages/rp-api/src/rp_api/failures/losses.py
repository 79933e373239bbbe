"""Lost attempts: those that ended with the job, the agent or a node, whatever the task itself did.

The history of a task has them besides its failed attempts. They do not count for `retries`. A loss is the announced
`END` of a job, or the `DEATH` of a node or agent. A task that was running at several deaths may be their cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rp_api.failures.retry_rules import RESTARTS

LOST = 'lost'
"""The key of a loss in an entry of the history, and in the record of a failure; its value is `END` or `DEATH`."""

END = 'end'
DEATH = 'death'


def losses(history: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of lost attempts in a history."""
    return sum(LOST in entry for entry in history)


def is_suspect(history: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether one more death is that at which a task with this history is suspected of being the cause."""
    deaths = [entry for entry in history if entry.get(LOST) == DEATH]
    return len(deaths) >= RESTARTS - 1


def suspicion(uid: str, history: Sequence[Mapping[str, Any]], reason: str) -> str:
    """Return why a task does not run again after one more death, for the reason given."""
    reasons = [str(entry.get('reason', '')) for entry in history if entry.get(LOST) == DEATH]
    return (f'{uid} is suspected of causing the loss of its nodes or agents: it was running at {len(reasons) + 1} such '
            f'losses ({"; ".join([*reasons, reason])})')
