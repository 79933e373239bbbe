"""Grid Engine: `qsub`, `qstat` for the queue, `qacct` for jobs that have ended."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from rp_api.errors import PlatformError
from rp_client.launcher.batch.systems import base
from rp_client.launcher.batch.systems.base import Scripted, Status, clock, each, value, words
from rp_client.launcher.batch.systems.request import JobRequest

_RUNNING = re.compile(r'[rtRSTsN]+')
_ROW = re.compile(r'^\s*(\d+)\s+[\d.]+\s+\S+\s+\S+\s+(\S+)\s', re.MULTILINE)
_NOTE = re.compile(r'^(\d+): (error reason|verification|instance)\b(?:\s+\d+)?:?\s*(.*?)\s*$', re.MULTILINE)
_STOPPED = re.compile(r'[dDEsSC]')
"""States of a queue instance that starts no jobs until an operator changes it."""

_FIND = r'''for job in $(qstat -u "$(id -un)" | awk '$1 ~ /^[0-9]+$/ {print $1}' | sort -u); do
echo "$job $(qstat -j "$job" 2>/dev/null | sed -n 's/^cwd: *//p')"
done'''

_ASK = r'''rows=$(qstat -u "$(id -un)" 2>&1); echo "$rows"
for job in {jobs}; do
echo "$rows" | awk -v job="$job" '$1 == job && $5 ~ /q/ {{ found = 1 }} END {{ exit !found }}' || continue
about=$(qstat -j "$job" 2>/dev/null)
echo "$about" | sed -n "s/^error reason/$job: &/p"
qalter -w v "$job" 2>/dev/null | sed -n "s/^verification/$job: &/p"
queues=$(echo "$about" | sed -n 's/^hard_queue_list: *//p')
test -z "$queues" || qstat -f -q "$queues" 2>/dev/null | sed -n "s/^[^ ]*@/$job: instance &/p"
done; true'''


class GridEngine(Scripted):
    """Sun, Son of, Univa and Altair Grid Engine."""

    name = 'Grid Engine'
    alive = 'qconf -sh >/dev/null'
    submitter = 'qsub'
    canceller = 'qdel'
    queue_command = 'qconf -sq {}'
    lacks = frozenset({'qos', 'reservation', 'gpus'})
    directive = '#$'
    job_id = r'^Your job (\d+)'
    never: ClassVar[Mapping[str, str]] = {
        r'no suitable queues': 'no queue has what the job asks for, even if it were empty',
        r'all instances of the queue are stopped': 'the queue is disabled, suspended, or in error',
    }
    full: ClassVar[Mapping[str, str]] = {
        r'[Oo]nly \d+ jobs are allowed': 'the user, or the cluster, has as many jobs as it may have at once',
    }
    unreachable: ClassVar[Mapping[str, str]] = {
        r'unable to contact qmaster|unable to send message to qmaster': 'qmaster does not run, or cannot be reached',
        r'got select error|failed receiving gdi request': 'qmaster cannot be reached, or did not answer',
    }

    def options(self, request: JobRequest) -> Iterator[str]:
        yield '-S /bin/sh'
        yield f'-N {value(request.name)}'
        yield '-V'
        yield f'-wd {value(request.directory)}'
        yield f'-o {value(request.output)}'
        yield f'-e {value(request.error)}'
        yield f'-l h_rt={clock(request.minutes)}'
        if request.queue:
            yield f'-q {value(request.queue)}'
        if request.account:
            yield f'-A {value(request.account)}'
        if request.memory:
            yield f'-l {_memory(request)}'
        yield from (f'-l {value(option)}' for option in request.options)
        if request.exclusive:
            yield '-l exclusive=true'
        yield f'-pe {value(request.parallel_environment)} {request.cores}'
        yield f'-r {"y" if request.requeue else "n"}'
        yield '-notify'   # with SIGUSR2, before SIGKILL: the agent ends in order

    def find(self, request: JobRequest) -> str:
        return _FIND

    def ask(self, jobs: Mapping[str, str]) -> str:
        return _ASK.format(jobs=words(jobs))

    def read(self, output: str) -> Mapping[str, Status]:
        notes: dict[str, dict[str, list[str]]] = {}
        for job, kind, text in _NOTE.findall(output):
            notes.setdefault(job, {}).setdefault(kind, []).append(text)
        return {job: _queued(state, notes.get(job, {})) for job, state in _ROW.findall(output)}

    def ask_history(self, jobs: Mapping[str, str]) -> str:
        return each(jobs, 'qacct -j')

    def read_history(self, output: str) -> Mapping[str, Status]:
        records = re.split(r'^=+\s*$', output, flags=re.MULTILINE)
        fields = [dict(re.findall(r'^(\w+)\s+(.*?)\s*$', record, re.MULTILINE)) for record in records]
        return {record['jobnumber']: _ended(record) for record in fields if 'jobnumber' in record}


def _memory(request: JobRequest) -> str:
    """Return the memory per slot, in which Grid Engine counts."""
    if not request.memory_resource:
        raise PlatformError(f'PilotDescription.memory is {request.memory}, but job_manager_endpoint of the platform '
                            'does not say what its Grid Engine calls memory: add, for example, ?memreqs=h_vmem to it')
    parts = re.findall(r'([\d.]*)([^~]+)', request.memory_resource)   # such as `h_vmem~0.5virtual_free`
    each_slot = request.memory / request.cores
    return ','.join(f'{name}={math.ceil(each_slot * float(factor or 1))}M' for factor, name in parts)


def _queued(state: str, notes: Mapping[str, list[str]]) -> Status:
    """Return the status of a job that `qstat` shows."""
    said = f'state {state}'
    if errors := notes.get('error reason'):
        said += f', error reason: {errors[0]}'
    if 'E' in state:
        return Status(base.FAILED, said, stays=True)
    if _RUNNING.fullmatch(state.lstrip('dh')):
        return Status(base.RUNNING, said)
    verified = next((text for text in notes.get('verification', ()) if GridEngine.is_never(text)), '')
    said += f', verification: {verified}' if verified else ''
    instances = [line.split() for line in notes.get('instance', ())]
    if instances and all(len(columns) > 5 and _STOPPED.search(columns[5]) for columns in instances):
        said += ', all instances of the queue are stopped'
    return Status(base.QUEUED, said, unschedulable=GridEngine.is_never(said))


def _ended(record: Mapping[str, str]) -> Status:
    failed, code = record.get('failed', '0'), record.get('exit_status', '0').split()[0]
    said = f'failed {failed}, exit_status {code}'
    if record.get('deleted_by') not in (None, 'NONE'):
        return Status(base.CANCELED, f'{said}, deleted by {record["deleted_by"]}', int(code))
    if failed.split()[0] == '0' and code == '0':
        return Status(base.DONE, said, 0)
    return Status(base.FAILED, said, int(code))
