"""LoadLeveler: `llq` with a format of our own; it forgets jobs soon after their end."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rp_client.launcher.saga.batch.base import CANCELED, DONE, FAILED, QUEUED, RUNNING, BatchSystem, Status, words

_STATES = {'R': RUNNING, 'ST': RUNNING, 'CK': RUNNING, 'E': RUNNING, 'RP': RUNNING, 'CP': RUNNING, 'VP': RUNNING,
           'XP': RUNNING, 'TX': FAILED, 'NR': FAILED, 'X': FAILED, 'CA': CANCELED, 'RM': CANCELED, 'C': DONE}
"""What its letters mean; those of all other states are of jobs that wait."""


class LoadLeveler(BatchSystem):
    """LoadLeveler since 3.1, which has `llq -r`."""

    name = 'LoadLeveler'
    alive = 'llq >/dev/null'
    canceller = 'llcancel'
    forgets = True

    def ask(self, jobs: Mapping[str, str]) -> str:
        return f'llq -r %id %st {words(jobs)} 2>/dev/null; true'

    def read(self, output: str) -> Mapping[str, Status]:
        rows = re.findall(r'^(\S+)\.\d+!(\w+)\s*$', output, re.MULTILINE)   # a job has steps, ours one
        return {job: Status(_STATES.get(state, QUEUED), f'state {state}') for job, state in rows}
