"""How a task has ended, as agents learn it that follow the task (`AgentConnection.follow_tasks`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_api import states
from rp_api.coordination.contract import Update

FOLLOWED = 'followed'
"""The command by which a coordinator tells an agent how tasks have ended."""

PILOT = 'pilot'
"""Key in the information of an outcome: uid of the pilot that the task was bound to."""

NEVER_SUBMITTED = 'its application ended before it was submitted'

_TOLD = ('exception', 'exit_code', 'error')


def outcome(uid: str, state: str, pilot: str, info: Mapping[str, Any] | None) -> Update:
    """Return the final state of a task that has left its agent, with its pilot and the reason of a failure."""
    info = info or {}
    final = state if state in states.FINAL else info.get('target_state', states.DONE)
    if final == states.DONE:
        return Update(uid, states.DONE, {PILOT: pilot})
    return Update(uid, final if final in states.FINAL else states.FAILED,
                  {PILOT: pilot, **{name: info[name] for name in _TOLD if info.get(name) is not None}})


def lost(uid: str) -> Update:
    """Return the outcome of a task that the coordinator will never get."""
    return Update(uid, states.CANCELED, {'exception': NEVER_SUBMITTED})
