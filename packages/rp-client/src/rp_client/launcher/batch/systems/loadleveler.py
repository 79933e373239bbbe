"""LoadLeveler: `llq` with a custom format; it does not know jobs that have ended a while ago."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from rp_client.launcher.batch.systems import base
from rp_client.launcher.batch.systems.base import Adapted, Status, after, words
from rp_client.launcher.batch.systems.request import JobRequest

_STATES = {**dict.fromkeys(('R', 'ST', 'CK', 'E', 'RP', 'CP', 'VP', 'XP'), base.RUNNING), 'C': base.DONE,
           **dict.fromkeys(('TX', 'NR', 'X'), base.FAILED), **dict.fromkeys(('CA', 'RM'), base.CANCELED)}
"""States by their letters; jobs in all other states wait."""


class LoadLeveler(Adapted):
    """LoadLeveler, version 3.1 or later, which has `llq -r`."""

    name = 'LoadLeveler'
    alive = 'llq >/dev/null'
    submitter = 'llsubmit'
    canceller = 'llcancel'
    queue_command = 'llclass {}'
    lacks = frozenset({'qos', 'reservation', 'gpus'})
    skips = frozenset({'total_gpu_count', 'system_architecture'})
    never: ClassVar[Mapping[str, str]] = {
        r'^state (S|HS)$': 'the job is held by an administrator',
    }
    forgets = True

    def amendments(self, request: JobRequest) -> list[tuple[str, str]]:
        lines = [f'#@ account_no = {request.account}'] if request.account else []
        lines += [f'#@ node = {request.nodes}'] if request.nodes else []
        lines += [f'#@ restart = {"yes" if request.requeue else "no"}']
        return [*after('#@ job_name', lines), (r'#@ class = edison\n', '')]   # the adaptor's default queue

    def find(self, request: JobRequest) -> str:
        return r'''llq -l -u "$(id -un)" 2>/dev/null | sed -n -e 's/^ *Job Step Id: *\(.*\)\.[0-9]*$/\1/p' \
-e 's/^ *Initial Working Dir: */ /p' | awk '/^ / {print job $0; next} {job = $1}' '''

    def ask(self, jobs: Mapping[str, str]) -> str:
        return f'llq -r %id %st {words(jobs)} 2>/dev/null; true'

    def read(self, output: str) -> Mapping[str, Status]:
        rows = re.findall(r'^(\S+)\.\d+!(\w+)\s*$', output, re.MULTILINE)   # jobs of pilots have one step
        return {job: Status(_STATES.get(state, base.QUEUED), f'state {state}',
                            unschedulable=self.is_never(f'state {state}')) for job, state in rows}
