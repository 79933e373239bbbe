"""The end of a task, for the tasks that are after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rp_api import states
from rp_api.description.after import DONE, FAILED

LINKS = 4
"""Tasks at each end of the chain that are named; those in between are left out."""

MAX_ERROR_CHARS = 300
"""Characters of the error of a task that are repeated."""

_LINK = ', which '
_NOT_RUN = 'was not run: '


class End(NamedTuple):
    """How a task has ended: its final state, and unless that is DONE, the reason (see `ending`)."""

    state: str
    reason: str = ''

    def meets(self, condition: str) -> bool:
        """Return whether a task may run that is after this one under that condition."""
        if condition == DONE:
            return self.state == states.DONE
        return condition != FAILED or self.state != states.DONE


def not_run(uid: str, dependency: str, ending: str) -> str:
    """Return the sentence that a task was not run, as the one before it has ended in that way (see `ending`)."""
    links = f'{_NOT_RUN}it is after {dependency}{_LINK}{ending}'.split(_LINK)
    if len(links) > 2 * LINKS:
        links = [*links[:LINKS], '...', *(link for link in links[-LINKS:] if link != '...')]
    return f'{uid} {_LINK.join(links)}'.replace(f'{_LINK}...', ', ...')


def ending(uid: str, state: str, info: Mapping[str, Any]) -> str:
    """Return how a task has ended, as the end of a sentence about it: `is FAILED: exit code 1`."""
    exception = str(info.get('exception') or '')
    if state == states.CANCELED and exception.startswith(f'{uid} {_NOT_RUN}'):
        return exception[len(uid) + 1:]
    code = info.get('exit_code')
    reason = f'exit code {code}' if code else exception.partition('\n')[0]
    if len(reason) > MAX_ERROR_CHARS:
        reason = f'{reason[:MAX_ERROR_CHARS]} [...]'
    return f'is {state}: {reason}' if reason else f'is {state}'
