"""What a bootstrap that failed has left in the sandbox."""

from __future__ import annotations

import json
from typing import NamedTuple

FAILED = 'bootstrap_0.failed'
"""The file in the pilot's sandbox that is there when the bootstrap, or the agent, has failed."""


class Failure(NamedTuple):
    """Why a pilot failed on its machine: one sentence, the file that says more (or ''), and its last lines."""

    stage: int
    exit_code: int
    sentence: str
    file: str
    tail: str


def read_failure(content: bytes) -> Failure | None:
    """The failure that the content of the file `FAILED` tells of; None if that is cut off or something else."""
    try:
        found = json.loads(content.decode(errors='replace'))
        return Failure(int(found['stage']), int(found['exit_code']),
                       *(str(found[name]).strip() for name in ('sentence', 'file', 'tail')))
    except (ValueError, KeyError, TypeError):
        return None
