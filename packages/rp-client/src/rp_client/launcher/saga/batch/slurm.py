"""Slurm: `scontrol show job`, and `sacct` for jobs that the controller has forgotten."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rp_client.launcher.saga.batch.base import CANCELED, DONE, FAILED, QUEUED, RUNNING, BatchSystem, Status, each

_QUEUED = {'PENDING', 'CONFIGURING', 'REQUEUED', 'REQUEUE_HOLD', 'REQUEUE_FED', 'SPECIAL_EXIT', 'RESV_DEL_HOLD'}
_RUNNING = {'RUNNING', 'COMPLETING', 'SUSPENDED', 'STOPPED', 'SIGNALING', 'RESIZING', 'STAGE_OUT'}
_MEANINGLESS = ('', 'None', '(null)')


class Slurm(BatchSystem):
    """Slurm, any version since 17."""

    name = 'Slurm'
    alive = 'scontrol ping | grep -q "is UP"'
    canceller = 'scancel'

    def ask(self, jobs: Mapping[str, str]) -> str:
        return each(jobs, 'scontrol -o show job')

    def read(self, output: str) -> Mapping[str, Status]:
        return dict(_shown(line) for line in output.splitlines() if line.startswith('JobId='))

    def ask_history(self, jobs: Mapping[str, str]) -> str:
        return f'sacct -X -n -P -o JobIDRaw,State,ExitCode -j {",".join(jobs)} 2>/dev/null; true'

    def read_history(self, output: str) -> Mapping[str, Status]:
        rows = (line.split('|') for line in output.splitlines() if line.count('|') == 2)
        return {job: _status(state.split()[0], '', code, f'State={state}') for job, state, code in rows if state}


def _shown(line: str) -> tuple[str, Status]:
    """The job of a line of `scontrol -o show job`, and its status."""
    found = {name: _value(name, line) for name in ('JobId', 'JobState', 'Reason', 'ExitCode')}
    return found['JobId'], _status(found['JobState'], found['Reason'], found['ExitCode'],
                                   f'JobState={found["JobState"]}')


def _status(state: str, reason: str, exit_code: str, said: str) -> Status:
    state = state.rstrip('+')
    code, _, sig = exit_code.partition(':')
    said += f' Reason={reason}' if reason not in _MEANINGLESS else ''
    if state in _QUEUED:
        return Status(QUEUED, said)
    if state in _RUNNING:
        return Status(RUNNING, said)
    said += f' ExitCode={exit_code}'
    number = int(code or 0) or (128 + int(sig) if sig.isdigit() and int(sig) else 0)
    if state == 'COMPLETED':
        return Status(DONE, said, number)
    return Status(CANCELED if state == 'CANCELLED' else FAILED, said, number)


def _value(name: str, line: str) -> str:
    match = re.search(rf'(?:^|\s){name}=(\S*)', line)
    return match[1] if match else ''
