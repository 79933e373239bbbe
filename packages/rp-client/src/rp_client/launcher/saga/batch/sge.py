"""Grid Engine: `qstat` for the queue, `qacct` for what has ended."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rp_client.launcher.saga.batch.base import CANCELED, DONE, FAILED, QUEUED, RUNNING, BatchSystem, Status, each, words

_RUNNING = re.compile(r'[rtRSTsN]+')
_ROW = re.compile(r'^\s*(\d+)\s+[\d.]+\s+\S+\s+\S+\s+(\S+)\s', re.MULTILINE)
_ERROR = re.compile(r'^(\d+): error reason\s+\d+:\s*(.*)$', re.MULTILINE)


class GridEngine(BatchSystem):
    """Sun, Son of, Univa and Altair Grid Engine."""

    name = 'Grid Engine'
    alive = 'qconf -sh >/dev/null'
    canceller = 'qdel'

    def ask(self, jobs: Mapping[str, str]) -> str:
        return ('qstat -u "$(id -un)" 2>&1\n'
                f'for job in {words(jobs)}; do\n'
                'qstat -j "$job" 2>/dev/null | sed -n "s/^error reason/$job: &/p"; done; true')

    def read(self, output: str) -> Mapping[str, Status]:
        errors = dict(_ERROR.findall(output))
        return {job: _queued(state, errors.get(job, '')) for job, state in _ROW.findall(output)}

    def ask_history(self, jobs: Mapping[str, str]) -> str:
        return each(jobs, 'qacct -j')

    def read_history(self, output: str) -> Mapping[str, Status]:
        records = re.split(r'^=+\s*$', output, flags=re.MULTILINE)
        fields = [dict(re.findall(r'^(\w+)\s+(.*?)\s*$', record, re.MULTILINE)) for record in records]
        return {record['jobnumber']: _ended(record) for record in fields if 'jobnumber' in record}


def _queued(state: str, error: str) -> Status:
    """The status of a job that `qstat` shows."""
    said = f'state {state}' + (f', error reason: {error}' if error else '')
    if 'E' in state:
        return Status(FAILED, said, stays=True)
    return Status(RUNNING if _RUNNING.fullmatch(state.lstrip('dh')) else QUEUED, said)


def _ended(record: Mapping[str, str]) -> Status:
    failed, code = record.get('failed', '0'), record.get('exit_status', '0').split()[0]
    said = f'failed {failed}, exit_status {code}'
    if record.get('deleted_by') not in (None, 'NONE'):
        return Status(CANCELED, f'{said}, deleted by {record["deleted_by"]}', int(code))
    if failed.split()[0] == '0' and code == '0':
        return Status(DONE, said, 0)
    return Status(FAILED, said, int(code))
