"""The requirements of described tasks: run by the agent or by workers, and the resources of their calls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rp_api import constants as c

FOR_AGENT = frozenset({c.TASK_EXECUTABLE, c.TASK_SERVICE, c.AGENT_SERVICE, c.RAPTOR_MASTER, c.RAPTOR_WORKER})
"""Modes that the agent runs. Workers run all other modes, including those that they register."""

# names for a call and for a task, and the default
_NEEDS = (('timeout', 'timeout', 0), ('ranks', 'ranks', 1), ('cores', 'cores_per_rank', 1),
          ('gpus', 'gpus_per_rank', 0))

DECISIVE = frozenset({'mode', *(source for _, source, _ in _NEEDS)})
"""The attributes of a description that decide about requirements."""


def is_for_agent(description: Mapping[str, Any]) -> bool:
    """Return whether the agent, not a worker, runs this task."""
    return description.get('mode', c.TASK_EXECUTABLE) in FOR_AGENT


def needs_of(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of the call that runs the task, see `rp_raptor.wire.protocol`.

    ValueError for one that is not a number, as hooks may set anything.
    """
    found = {}
    for name, source, default in _NEEDS:
        value = description.get(source)
        if value and value != default:
            if type(value) not in (int, float) or not 0 <= value < math.inf:
                raise ValueError(f'{source} must be a number that is not negative, it is {value!r:.80}')
            found[name] = value
    return found
