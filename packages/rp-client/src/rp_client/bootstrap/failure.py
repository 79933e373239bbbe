"""The failure report that a bootstrap leaves in the sandbox."""

from __future__ import annotations

import json
from typing import NamedTuple

FAILED = 'bootstrap_0.failed'
"""Name of the report in the pilot's sandbox, written if the bootstrap or the agent has failed."""


class Failure(NamedTuple):
    """Why a pilot failed on its machine: one sentence, the file with details (or ''), and its last lines."""

    stage: int
    exit_code: int
    sentence: str
    file: str
    tail: str


def read_failure(content: bytes) -> Failure | None:
    """Parse the content of the file `FAILED`; return None if it is truncated or not a report."""
    try:
        found = json.loads(content.decode(errors='replace'))
        return Failure(int(found['stage']), int(found['exit_code']),
                       *(str(found[name]).strip() for name in ('sentence', 'file', 'tail')))
    except (ValueError, KeyError, TypeError):
        return None
