"""HTCondor: `condor_q` shows the queue, `condor_history` jobs that have left it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rp_client.launcher.batch.systems.base import CANCELED, DONE, FAILED, QUEUED, RUNNING, Adapted, Status, words
from rp_client.launcher.batch.systems.request import JobRequest

_NAMES = {'1': 'Idle', '2': 'Running', '3': 'Removed', '4': 'Completed', '5': 'Held', '6': 'Transferring output',
          '7': 'Suspended'}
_RUNNING = ('2', '6', '7')


class Condor(Adapted):
    """HTCondor, version 8 or later, whose commands have `-autoformat`."""

    name = 'HTCondor'
    alive = 'condor_q >/dev/null'
    submitter = 'condor_submit'
    canceller = 'condor_rm'
    lacks = frozenset({'qos', 'reservation', 'gpus', 'memory', 'requeue'})
    skips = frozenset({'total_gpu_count', 'system_architecture'})
    never: ClassVar[Mapping[str, str]] = {
        r'\(Held\)': 'the job is held',
    }

    def find(self, request: JobRequest) -> str:
        return r"condor_q -autoformat ClusterId ProcId Iwd 2>/dev/null | sed 's/^\([0-9]*\) /\1./'"

    def ask(self, jobs: Mapping[str, str]) -> str:
        reason = 'ifThenElse(HoldReason =?= undefined, "", HoldReason)'
        return f"condor_q {words(jobs)} -autoformat:, ClusterId ProcId JobStatus '{reason}' 2>/dev/null; true"

    def read(self, output: str) -> Mapping[str, Status]:
        rows = (line.split(',', 3) for line in output.splitlines() if line.count(',') >= 3)
        return {f'{cluster.strip()}.{process.strip()}': _queued(state.strip(), reason.strip())
                for cluster, process, state, reason in rows}

    def ask_history(self, jobs: Mapping[str, str]) -> str:
        return ('for job in ' + words(jobs) + '; do condor_history "$job" -limit 1 -autoformat:, ClusterId ProcId '
                'JobStatus ExitCode 2>/dev/null; done; true')

    def read_history(self, output: str) -> Mapping[str, Status]:
        rows = ([field.strip() for field in line.split(',')] for line in output.splitlines() if line.count(',') == 3)
        return {f'{cluster}.{process}': _ended(state, code) for cluster, process, state, code in rows}


def _queued(state: str, reason: str) -> Status:
    said = f'JobStatus {state} ({_NAMES.get(state, "unknown")})' + (f': {reason}' if reason else '')
    if state in _RUNNING:
        return Status(RUNNING, said)
    if state == '3':
        return Status(CANCELED, said)
    return Status(QUEUED, said, unschedulable=Condor.is_never(said))


def _ended(state: str, code: str) -> Status:
    said = f'JobStatus {state} ({_NAMES.get(state, "unknown")}), ExitCode {code}'
    if state == '3':
        return Status(CANCELED, said)
    number = int(code) if code.isdigit() else None
    return Status(DONE if number == 0 else FAILED, said, number)
