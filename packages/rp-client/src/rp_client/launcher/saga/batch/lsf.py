"""IBM Spectrum LSF: `bjobs` with a format of our own."""

from __future__ import annotations

from collections.abc import Mapping

from rp_client.launcher.saga.batch.base import CANCELED, DONE, FAILED, QUEUED, RUNNING, BatchSystem, Status, words

_RUNNING = ('RUN', 'USUSP', 'SSUSP')
_KILLED = ('TERM_OWNER', 'TERM_ADMIN', 'TERM_FORCE_OWNER', 'TERM_FORCE_ADMIN')


class LSF(BatchSystem):
    """LSF since 9.1.3, which has `bjobs -o`."""

    name = 'LSF'
    alive = 'lsid >/dev/null'
    canceller = 'bkill'

    def ask(self, jobs: Mapping[str, str]) -> str:
        fields = "jobid stat exit_code exit_reason pend_reason delimiter='|'"
        return f'bjobs -a -noheader -o "{fields}" {words(jobs)} 2>/dev/null; true'

    def read(self, output: str) -> Mapping[str, Status]:
        rows = (line.strip().split('|', 4) for line in output.splitlines() if line.count('|') >= 4)
        return {row[0]: _status(*row[1:]) for row in rows}


def _status(state: str, code: str, exit_reason: str, pend_reason: str) -> Status:
    said = f'STAT {state}'
    if state == 'DONE':
        return Status(DONE, said, 0)
    if state in ('EXIT', 'ZOMBI'):
        said += ''.join(f', {text}' for text in (f'exit code {code}', exit_reason) if '-' not in text.split()[-1:])
        cancelled = any(word in exit_reason for word in _KILLED)
        return Status(CANCELED if cancelled else FAILED, said, int(code) if code.isdigit() else None)
    if state in _RUNNING:
        return Status(RUNNING, said)
    return Status(QUEUED, said if pend_reason in ('', '-') else f'{said}: {pend_reason}')
