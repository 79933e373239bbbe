"""Cobalt: `qstat` shows jobs that wait or run, their `.cobaltlog` those that have ended."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import ClassVar

from rp_client.launcher.batch.systems.base import DONE, FAILED, QUEUED, RUNNING, Adapted, Status, each
from rp_client.launcher.batch.systems.request import JobRequest

_RUNNING = ('starting', 'running', 'exiting', 'killing', 'preempted')
_FIELD = re.compile(r'^\s*(\w+)\s*: (.*?)\s*$', re.MULTILINE)
_EXIT = re.compile(r'exit code of (-?\d+)')


class Cobalt(Adapted):
    """Cobalt, which does not know jobs that have ended."""

    name = 'Cobalt'
    alive = 'qstat >/dev/null'
    submitter = 'qsub'
    queue_command = 'qstat -Q {}'
    forgets = True
    lacks = frozenset({'qos', 'reservation', 'memory', 'requeue'})
    never: ClassVar[Mapping[str, str]] = {
        r'State (admin|maxrun|dep_fail)\w*hold': 'the job is held by an administrator, or by Cobalt',
    }

    def find(self, request: JobRequest) -> str:
        return r'''qstat -u "$(id -un)" --full --long |
sed -n -e 's/^ *JobID *: *//p' -e 's/^ *OutputPath *: */ /p' | awk '/^ / {print job $0; next} {job = $1}' '''

    def ask(self, jobs: Mapping[str, str]) -> str:
        return each(jobs, 'qstat --full --long')

    def read(self, output: str) -> Mapping[str, Status]:
        found: dict[str, Status] = {}
        job = ''
        for name, value in _FIELD.findall(output):
            if name == 'JobID':
                job = value
            elif name == 'State' and job:
                said = f'State {value}'
                found[job] = (Status(RUNNING, said) if value in _RUNNING else
                              Status(QUEUED, said, unschedulable=self.is_never(said)))
        return found

    def ask_history(self, jobs: Mapping[str, str]) -> str:
        logs = (f'echo "JobID {job}"; tail -n 5 {shlex.quote(f"{directory}/{job}.cobaltlog")} 2>/dev/null'
                for job, directory in jobs.items())
        return '\n'.join([*logs, 'true'])

    def read_history(self, output: str) -> Mapping[str, Status]:
        found = {}
        for part in re.split(r'^JobID ', output, flags=re.MULTILINE)[1:]:
            job, _, text = part.partition('\n')
            if match := _EXIT.search(text):
                code = int(match[1])
                found[job] = Status(FAILED if code else DONE, f'exit code {code}', code)
        return found

    def cancel(self, ids: Iterable[str]) -> str:
        return each(ids, 'qdel')
