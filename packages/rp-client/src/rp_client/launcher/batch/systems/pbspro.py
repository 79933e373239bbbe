"""PBS Pro and OpenPBS: `qsub`, and `qstat -f`, with the job history if the server keeps one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

from rp_client.launcher.batch.systems import base
from rp_client.launcher.batch.systems.base import Scripted, Status, clock, each, value
from rp_client.launcher.batch.systems.request import JobRequest

_RUNNING = set('RBEST')
_ENDED = set('FCX')
_OVER = _ENDED | {'E'}
_CANCELLED = 256 + 15
"""The exit code of a job that SIGTERM, as sent by `qdel`, has ended."""

_HEAD = re.compile(r'(Job Id|Queue): *(\S+)')

FIND = ('qstat -u "$(id -un)" | awk \'$1 ~ /^[0-9]/ {print $1}\' | while read -r job; do '
        'qstat -f "$job" 2>/dev/null || qstat -f "${job%%.*}" 2>/dev/null; done')
"""A script that describes the jobs of the user that wait or run; `qstat -u` may cut off the name of the server."""


class PBSPro(Scripted):
    """PBS Pro; a server without job history does not know jobs that have ended."""

    name = 'PBS Pro'
    alive = 'qstat -B >/dev/null'
    submitter = 'qsub'
    canceller = 'qdel'
    queue_command = 'qstat -Q -f {}'
    queue_stopped = '(started|enabled) = False'
    lacks = frozenset({'qos', 'reservation'})
    directive = '#PBS'
    overriding: ClassVar[Mapping[str, str]] = {'': 'PBS_DPREFIX'}   # the beginning of directives
    job_id = r'^(\d+(?:\.\S+)?)$'
    never: ClassVar[Mapping[str, str]] = {
        r'comment = Can Never Run': 'no nodes have what the job asks for',
        r'comment = .*(Queue not started|queue is not started)': 'the queue does not start jobs',
        r'started = False': 'the queue does not start jobs',
        r'comment = .*violates (queue|server) (resource )?limits': 'the job is outside of the limits of the queue',
        r'Hold_Types = \w*[osp]': 'the job is held by an operator, or by PBS after failed starts',
    }
    full: ClassVar[Mapping[str, str]] = {
        r'[Ww]ould exceed .*(limit|max_queued)|Maximum number of jobs already in queue':
            'the user or group has as many jobs as it may have at once',
    }
    unreachable: ClassVar[Mapping[str, str]] = {
        r'[Cc]annot connect to server': 'the server does not run, or cannot be reached',
        r'Connection (refused|timed out)|Communication failure': 'the server does not run, or cannot be reached',
        r'No route to host|Host is down': 'the server cannot be reached',
        r'pbs_iff: (error|cannot)': 'the server could not check the identity of the user',
    }

    def options(self, request: JobRequest) -> Iterator[str]:
        yield '-S /bin/sh'
        yield f'-N {value(request.name)}'
        yield f'-o {value(request.output)}'
        yield f'-e {value(request.error)}'
        yield f'-l walltime={clock(request.minutes)}'
        if request.queue:
            yield f'-q {value(request.queue)}'
        if request.account:
            yield f'-A {value(request.account)}'
        yield f'-l select={"+".join(_chunks(request))}'
        if request.exclusive:
            yield '-l place=scatter:excl'
        yield from (f'-l {value(option)}' for option in request.options)
        yield f'-r {"y" if request.requeue else "n"}'

    def find(self, request: JobRequest) -> str:
        return FIND

    def found(self, output: str, request: JobRequest) -> str:
        return found_job(output, request)

    def ask(self, jobs: Mapping[str, str]) -> str:
        return f'qstat -Q -f 2>/dev/null; {each(jobs, "qstat -x -f")}'

    def read(self, output: str) -> Mapping[str, Status]:
        return read_jobs(output, self.is_never)


def _chunks(request: JobRequest) -> Iterator[str]:
    """Yield the chunks of a job: nodes, or, if their size is unknown, chunks of one GPU with its cores, or one core."""
    gpus = 0 if request.gpu_request == 'none' else request.gpus
    if request.nodes:
        yield _chunk(request.nodes, 0 if request.nodes_only else request.cores_per_node,
                     request.gpus_per_node if gpus else 0, request.memory_per_node)
        return
    with_gpu = max(1, request.cores // gpus) if gpus else 0
    alone = max(0, request.cores - gpus * with_gpu)
    memory = math.ceil(request.memory / max(1, request.cores))
    if gpus:
        yield _chunk(gpus, with_gpu, 1, with_gpu * memory)
    if alone:
        yield _chunk(alone, 1, 0, memory)


def _chunk(count: int, cores: int, gpus: int, memory: int) -> str:
    parts = [f'ncpus={cores}' if cores else '', f'ngpus={gpus}' if gpus else '', f'mem={memory}mb' if memory else '']
    return ':'.join([str(count), *filter(None, parts)])


def read_jobs(output: str, is_never: Callable[[str], bool]) -> dict[str, Status]:
    """Return the statuses of jobs in the output of `qstat -f` about jobs and, optionally, queues."""
    queues, jobs = _blocks(output)
    return {job: _status(fields, queues.get(fields.get('queue', ''), {}), is_never) for job, fields in jobs.items()}


def found_job(output: str, request: JobRequest) -> str:
    """Return the id of the job in the output of `FIND` that has the output file of a request; empty without one."""
    return next((job for job, fields in _blocks(output)[1].items() if fields.get('job_state') not in _OVER
                 and fields.get('Output_Path', '').partition(':')[2] == request.output), '')


def _blocks(output: str) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """Return the attributes of queues and jobs; a line that begins with a tab continues the one before."""
    queues: dict[str, dict[str, str]] = {}
    jobs: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    last = ''
    for line in output.splitlines():
        found = _HEAD.match(line)
        if found:
            fields = (jobs if found[1] == 'Job Id' else queues).setdefault(found[2], {})
        elif line.startswith('\t') and last:
            fields[last] += line.strip()
        elif ' = ' in line:
            last, _, text = line.strip().partition(' = ')
            fields[last] = text
    return queues, jobs


def _status(fields: Mapping[str, str], queue: Mapping[str, str], is_never: Callable[[str], bool]) -> Status:
    state = fields.get('job_state', '')
    said = f'job_state = {state}'
    if fields.get('comment'):
        said += f', comment = {fields["comment"]}'
    if state in _RUNNING:
        return Status(base.RUNNING, said)
    if state not in _ENDED:
        if state == 'H' and fields.get('Hold_Types'):
            said += f', Hold_Types = {fields["Hold_Types"]}'
        if queue.get('started') == 'False':
            said += f', queue {fields["queue"]}: started = False'
        return Status(base.QUEUED, said, unschedulable=is_never(said), start=fields.get('estimated.start_time', ''))
    code = fields.get('Exit_status', fields.get('exit_status', ''))
    if not code:   # it never ran
        return Status(base.CANCELED, said)
    said += f', exit_status = {code}'
    if int(code) == 0:
        return Status(base.DONE, said, 0)
    return Status(base.CANCELED if int(code) == _CANCELLED else base.FAILED, said, int(code))
