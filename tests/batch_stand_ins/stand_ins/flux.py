"""flux batch, jobs, queue, cancel, job id, getattr, resource R of Flux, as far as clients and agents in jobs use them.

Formats: flux-core manual pages flux-batch(1), flux-jobs(1), flux-queue(1), flux-job(1), and flux-core 0.88 itself.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys

from stand_ins import jobs
from stand_ins.jobs import CORES, ENDED, NODES, QUEUES, RUNNING, Job

_LETTERS = '123456789abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ'


def environ(job: Job, system: str) -> dict[str, str]:
    """The environment of a job, which is an instance of Flux by itself."""
    return {'FLUX_URI': f'local:///tmp/flux-{job.id}/local-0'}


def flux(arguments: list[str], system: str) -> int:
    """Run the command that is named first."""
    command, *rest = arguments
    if not jobs.reachable():
        print(f'flux-{command}: ERROR: Unable to connect to Flux: broker socket /run/flux/local was not found',
              file=sys.stderr)
        return 1
    return {'batch': _batch, 'jobs': _jobs, 'queue': _queue, 'cancel': _cancel, 'job': _job,
            'getattr': _getattr, 'resource': _resource}[command](rest)


def _batch(arguments: list[str]) -> int:
    """Submit the script that comes on standard input."""
    assert not arguments, 'options are in the script'
    text = sys.stdin.read()
    options = shlex.split(' '.join(re.findall(r'^#flux: (.*)$', text, re.MULTILINE)))
    given = dict(option.removeprefix('--').partition('=')[::2] for option in options)
    job = Job(name=given['job-name'], queue=given.get('queue', QUEUES[0]), project=given.get('bank', ''),
              directory=given['cwd'], stdout=given['output'], stderr=given['error'],
              walltime=60 * float(given['time-limit'].removesuffix('m')))
    cores = int(given.get('nslots', 0)) * int(given.get('cores-per-slot', 1))
    job.nodes = int(given.get('nodes', 0)) or -(-cores // CORES)
    if job.queue not in QUEUES:
        raise jobs.RefusedError(f'ERROR: [Errno 22] Invalid queue {job.queue!r} specified')
    if job.nodes > len(NODES):
        raise jobs.RefusedError('ERROR: [Errno 22] unsatisfiable request')
    print(_f58(jobs.submit(job, text).id))
    return 0


def _f58(number: int) -> str:
    """An id as Flux prints it."""
    found = ''
    while number:
        number, rest = divmod(number, 58)
        found = _LETTERS[rest] + found
    return f'ƒ{found}'


def _number(name: str) -> int:
    if not name.startswith('ƒ'):
        return int(name)
    found = 0
    for letter in name[1:]:
        found = 58 * found + _LETTERS.index(letter)
    return found


def _job(arguments: list[str]) -> int:
    """`flux job id --to=dec ID`, or `flux job info ID jobspec`."""
    if arguments[0] == 'info' and (job := jobs.load(_number(arguments[1]))):
        print(json.dumps({'attributes': {'system': {'cwd': job.directory}}}))
        return 0
    assert arguments[:2] == ['id', '--to=dec']
    print(_number(arguments[2]))
    return 0


def _jobs(arguments: list[str]) -> int:
    """Tell about one job, or list the ids of those that have not ended, in the form that is asked for."""
    if arguments[-1] == '{id.dec}':
        print(*(job.id for job in jobs.everything() if job.state != ENDED), sep='\n')
        return 0
    job = jobs.load(_number(arguments[-1]))
    if job is None:
        print(f'flux-jobs: ERROR: JobID {arguments[-1]} unknown', file=sys.stderr)
        return 1
    form = arguments[arguments.index('-o') + 1]
    ended = job.state == ENDED
    result = 'CANCELED' if job.cancelled else 'COMPLETED' if job.exit_code == 0 else 'FAILED'
    state = {ENDED: 'INACTIVE', RUNNING: 'RUN'}.get(job.state, 'SCHED')
    values = {'id.dec': job.id, 'queue': job.queue, 'state': state,
              'result': result if ended else '', 'returncode': job.exit_code if ended and job.started else '',
              'exception.type': 'cancel' if job.cancelled else '', 'exception.note': ''}
    print(re.sub(r'\{([\w.]+)\}', lambda found: str(values[found[1]]), form))
    return 0


def _queue(arguments: list[str]) -> int:
    """`flux queue list`."""
    form = arguments[arguments.index('-o') + 1]
    for name in QUEUES:
        state = 'stopped' if jobs.is_stopped(name) else 'started'
        print(form.replace('{queue}', name).replace('{scheduling}', state))
    return 0


def _cancel(arguments: list[str]) -> int:
    """End jobs."""
    return 0 if all(jobs.cancel(_number(name)) for name in arguments) else 1


def _getattr(arguments: list[str]) -> int:
    """The number of brokers."""
    print(len(_own_nodes()))
    return 0


def _resource(arguments: list[str]) -> int:
    """`flux resource R --states=up`."""
    assert arguments == ['R', '--states=up']
    nodes = _own_nodes()
    print(json.dumps({'version': 1, 'execution': {
        'R_lite': [{'rank': f'0-{len(nodes) - 1}', 'children': {'core': f'0-{CORES - 1}'}}], 'starttime': 0.0,
        'expiration': 0.0, 'nodelist': [','.join(nodes)]}}))
    return 0


def _own_nodes() -> list[str]:
    """The nodes of the job that this runs in, all outside of one."""
    inside = re.search(r'/flux-(\d+)/', os.environ.get('FLUX_URI', ''))
    job = jobs.load(int(inside[1])) if inside else None
    return list(NODES)[:job.nodes if job else None]


PROGRAMS = {'flux': flux}
