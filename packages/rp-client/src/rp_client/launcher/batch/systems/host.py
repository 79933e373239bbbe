"""A host without a batch system (`ssh://`, `fork://`): a job is a session of processes, started by a script.

The id of a job is the id of its first process and its start time, which tells reused process ids apart.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from rp_client.launcher.batch.systems.base import DONE, FAILED, RUNNING, Status, Submitting, words
from rp_client.launcher.batch.systems.request import JobRequest

EXIT = 'job.exit_code'
"""The file in the working directory of a job that has ended."""

JOB = 'job.id'
"""The file in the working directory of a job with its id."""

_STARTED = ('started() { set -- $(cat "/proc/$1/stat" 2>/dev/null)\n'
            'test "$3" = Z || echo "${22}"; }\n')
"""A shell function that prints the start time of a process, and nothing for one that has ended, reaped or not."""

_GRACE = 20
"""Tenths of a second after which a cancelled job is killed."""


class Host(Submitting):
    """The processes of a Linux host."""

    name = 'the host'
    alive = 'true'
    lacks = frozenset({'requeue'})
    job_id = r'^(\d+\.\d*)$'

    def submit(self, request: JobRequest) -> str:
        exports = ''.join(f'export {name}={shlex.quote(value)}\n' for name, value in request.environment.items())
        out, err = shlex.quote(request.output), shlex.quote(request.error)
        job = f'{words(request.command)} >{out} 2>{err} </dev/null; echo $? >{EXIT}.new; mv {EXIT}.new {EXIT}'
        return (f'cd {shlex.quote(request.directory)} || exit 1\nrm -f {EXIT} {JOB}\n{exports}'
                f'setsid /bin/sh -c {shlex.quote(job)} >/dev/null 2>&1 </dev/null &\n'
                f'{_STARTED}echo "$!.$(started $!)" >{JOB}\ncat {JOB}')

    def find(self, request: JobRequest) -> str:
        directory = shlex.quote(request.directory)
        return (f'cd {directory} 2>/dev/null && read -r job <{JOB} || exit 0\n{_STARTED}'
                f'test "$(started "${{job%.*}}")" = "${{job#*.}}" && echo "$job" {directory}; true')

    def ask(self, jobs: Mapping[str, str]) -> str:
        files = {job: shlex.quote(f'{directory}/{EXIT}') for job, directory in jobs.items()}
        return _STARTED + '\n'.join(f'if {_runs(job)}; then echo {job} runs; else echo {job} ended $(cat {file}); fi'
                                    for job, file in files.items())

    def read(self, output: str) -> Mapping[str, Status]:
        rows = (line.split() for line in output.splitlines())
        return {row[0]: _status(row[1], row[2:]) for row in rows if row[1:2] and row[1] in ('runs', 'ended')}

    def cancel(self, ids: Iterable[str]) -> str:
        return _STARTED + '\n'.join(
            f'if {_runs(job)}; then\npid={_pid(job)}; kill -s TERM -- -$pid; tries=0\n'
            f'while {_runs(job)} && test $tries -lt {_GRACE}; do sleep 0.1; tries=$((tries + 1)); done\n'
            f'kill -s KILL -- -$pid 2>/dev/null; fi' for job in ids)


def _pid(job: str) -> str:
    return job.partition('.')[0]


def _runs(job: str) -> str:
    """Return the shell command that succeeds if the first process of a job runs."""
    return f'test "$(started {_pid(job)})" = {job.partition(".")[2] or "-"}'


def _status(what: str, rest: list[str]) -> Status:
    if what == 'runs':
        return Status(RUNNING, 'it runs')
    if not rest or not rest[0].isdigit():   # the shell that writes the exit code has ended, too
        return Status(FAILED, 'its processes were killed, or the host was started again')
    code = int(rest[0])
    return Status(FAILED if code else DONE, f'exit code {code}', code)
