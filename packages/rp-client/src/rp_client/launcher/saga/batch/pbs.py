"""PBS Pro (OpenPBS) and Torque: `qstat -f`, with the history where there is one."""

from __future__ import annotations

from collections.abc import Mapping

from rp_client.launcher.saga.batch.base import CANCELED, DONE, FAILED, QUEUED, RUNNING, BatchSystem, Status, each

_RUNNING = set('RBEST')
_ENDED = set('FCX')
_CANCELLED = 256 + 15
"""The exit code of a job that was ended by SIGTERM, as `qdel` does it."""


class PBSPro(BatchSystem):
    """PBS Pro; a server that keeps no history forgets jobs at their end."""

    name = 'PBS Pro'
    alive = 'qstat -B >/dev/null'
    canceller = 'qdel'
    _options = '-x -f'

    def ask(self, jobs: Mapping[str, str]) -> str:
        return each(jobs, f'qstat {self._options}')

    def read(self, output: str) -> Mapping[str, Status]:
        return {job: _status(fields) for job, fields in _blocks(output).items()}


class Torque(PBSPro):
    """Torque, which shows ended jobs for a while (`keep_completed`)."""

    name = 'Torque'
    _options = '-f'


def _blocks(output: str) -> dict[str, dict[str, str]]:
    """The attributes of each job; a line that begins with a tab goes on with the one before."""
    jobs: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    last = ''
    for line in output.splitlines():
        if line.startswith('Job Id:'):
            fields = jobs.setdefault(line.partition(':')[2].strip(), {})
        elif line.startswith('\t') and last:
            fields[last] += line.strip()
        elif ' = ' in line:
            last, _, value = line.strip().partition(' = ')
            fields[last] = value
    return jobs


def _status(fields: Mapping[str, str]) -> Status:
    state = fields.get('job_state', '')
    said = f'job_state = {state}'
    if fields.get('comment'):
        said += f', comment = {fields["comment"]}'
    if state in _RUNNING:
        return Status(RUNNING, said)
    if state not in _ENDED:
        return Status(QUEUED, said)
    code = fields.get('Exit_status', fields.get('exit_status', ''))
    if not code:   # it never ran
        return Status(CANCELED, said)
    said += f', exit_status = {code}'
    if int(code) == 0:
        return Status(DONE, said, 0)
    return Status(CANCELED if int(code) == _CANCELLED else FAILED, said, int(code))
