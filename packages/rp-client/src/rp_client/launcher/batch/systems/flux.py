"""Flux as the batch system of a machine or an allocation: `flux batch`, `flux jobs` and `flux queue`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from shlex import quote
from typing import ClassVar

from rp_client.launcher.batch.systems.base import CANCELED, DONE, FAILED, QUEUED, RUNNING, Scripted, Status, each
from rp_client.launcher.batch.systems.request import JobRequest

_JOB = '{id.dec}|{queue}|{state}|{result}|{returncode}|{exception.type}|{exception.note}'
_FIND = r'''for job in $(flux jobs -n -o '{id.dec}'); do
echo "$job $(flux job info "$job" jobspec | sed -n 's/.*"cwd": *"\([^"]*\)".*/\1/p')"
done'''
_QUEUE = '{queue}|{scheduling}'
_QUEUED = ('NEW', 'DEPEND', 'PRIORITY', 'SCHED')
_RESULTS = {'COMPLETED': DONE, 'CANCELED': CANCELED}


class Flux(Scripted):
    """Flux, version 0.50 or later; the instance is that of `FLUX_URI`, or the machine's."""

    name = 'Flux'
    alive = 'flux getattr size >/dev/null'
    submitter = 'flux batch'
    queue_command = ('flux queue list -n -o "{{queue}} {{submission}} {{scheduling}}" | '
                     'while read -r name state; do if test "$name" = {}; then echo "$name $state"; fi; done')
    queue_stopped = ' (disabled|stopped|paused)'
    lacks = frozenset({'qos', 'reservation', 'memory', 'requeue'})
    directive = '#flux:'
    job_id = r'^(\d+)$'
    never: ClassVar[Mapping[str, str]] = {
        r'queue \S+ is stopped': 'the queue does not start jobs',
    }
    unreachable: ClassVar[Mapping[str, str]] = {
        r'[Uu]nable to connect to Flux|flux_open': 'the broker of Flux does not run, or cannot be reached',
        r'Connection (refused|timed out|reset)|Host is down|No route to host': 'the broker of Flux cannot be reached',
    }

    def options(self, request: JobRequest) -> Iterator[str]:
        yield f'--job-name={quote(request.name)}'
        yield f'--cwd={quote(request.directory)}'
        yield f'--output={quote(request.output)}'
        yield f'--error={quote(request.error)}'
        yield f'--time-limit={request.minutes}m'
        if request.queue:
            yield f'--queue={quote(request.queue)}'
        if request.account:
            yield f'--bank={quote(request.account)}'
        if request.options:
            yield f'--requires={quote("&".join(request.options))}'
        yield from _size(request)

    def submit(self, request: JobRequest) -> str:
        # a decimal id, as the default form is not ASCII
        return f'job=$(\n{super().submit(request)}) || {{ echo "$job"; exit 1; }}\nflux job id --to=dec "$job"'

    def find(self, request: JobRequest) -> str:
        return _FIND

    def ask(self, jobs: Mapping[str, str]) -> str:
        return (f'flux queue list -n -o {quote(_QUEUE)} 2>/dev/null\n'
                + each(jobs, f'flux jobs -n -o {quote(_JOB)}'))

    def read(self, output: str) -> Mapping[str, Status]:
        rows = [line.strip().split('|', _JOB.count('|')) for line in output.splitlines()]
        stopped = {row[0].strip() for row in rows if len(row) == 2 and row[1].strip().startswith('stopped')}
        return {row[0]: _status(row[1:], stopped) for row in rows if len(row) == 1 + _JOB.count('|')}

    def cancel(self, ids: Iterable[str]) -> str:
        return each(ids, 'flux cancel')


def _size(request: JobRequest) -> Iterator[str]:
    """Yield the size in whole nodes, or, if their size is unknown, in slots of a core, or of a GPU and its cores."""
    if request.nodes:
        yield f'--nodes={request.nodes}'
        yield '--exclusive'
    elif request.gpus:
        yield f'--nslots={request.gpus}'
        yield f'--cores-per-slot={math.ceil(request.cores / request.gpus)}'
        yield '--gpus-per-slot=1'
    else:
        yield f'--nslots={request.cores}'


def _status(fields: list[str], stopped: set[str]) -> Status:
    queue, state, result, code, kind, note = (text.strip() for text in fields)
    said = f'state {state}'
    if state in _QUEUED:
        said += f', queue {queue or "(default)"} is stopped' if queue in stopped else ''
        return Status(QUEUED, said, unschedulable=Flux.is_never(said))
    if state != 'INACTIVE':   # RUN, CLEANUP
        return Status(RUNNING, said)
    said = f'result {result}'
    number = int(code) if code.lstrip('-').isdigit() else None
    said += f', exit code {number}' if number is not None else ''
    said += ''.join((f', {kind}', f': {note}' if note else '')) if kind else ''
    return Status(_RESULTS.get(result, FAILED), said, number)
