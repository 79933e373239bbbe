"""bsub, bjobs, bkill, bqueues of LSF.

Formats: IBM Spectrum LSF 10.1 command reference (bjobs, bsub, bkill, bqueues) and its page on environment variables of
jobs. The machine is called as Lassen.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from stand_ins import jobs
from stand_ins.jobs import CORES, ENDED, QUEUES, RUNNING, Job

VERSION = ('IBM Spectrum LSF Standard 10.1.0.9, Oct 16 2019\nCopyright International Business Machines Corp. 1992, '
           '2016.\n\n  binary type: linux3.10-glibc2.17-ppc64le')
LOGIN = 'lassen708'


def environ(job: Job, system: str) -> dict[str, str]:
    """What a job finds in its environment; the first line of the host file is the node that runs its script."""
    lines = [LOGIN, *(host for host in job.hosts for _ in range(CORES))]
    counts = ' '.join(f'{host} {CORES}' for host in job.hosts)
    return {'LSB_JOBID': str(job.id), 'LSB_JOBNAME': job.name, 'LSB_QUEUE': job.queue,
            'LSB_DJOB_HOSTFILE': jobs.node_file(job, lines), 'LSB_MCPU_HOSTS': f'{LOGIN} 1 {counts}',
            'LSB_HOSTS': ' '.join(lines), 'LSB_DJOB_NUMPROC': str(len(lines))}


def bsub(arguments: list[str], system: str) -> int:
    """Submit the script that comes on standard input: lines with #BSUB are not read in files that are named."""
    if _version(arguments):
        return 0
    if not jobs.reachable():
        print('LSF is down. Please wait ...\nFailed in an LSF library call: LIM is down; try later. Job not submitted.',
              file=sys.stderr)
        return 255
    text = Path(arguments[-1]).read_text() if arguments else sys.stdin.read()
    job = Job()
    if arguments:
        print(f'Job <{jobs.submit(job, text).id}> is submitted to default queue <{job.queue}>.')
        return 0
    for name, value in re.findall(r'^#BSUB -(\w+) *(.*?) *$', text, re.MULTILINE):
        if name == 'J':
            job.name = value
        elif name == 'o':
            job.stdout = value
        elif name == 'e':
            job.stderr = value
        elif name == 'q':
            job.queue = value
        elif name == 'P':
            job.project = value
        elif name == 'cwd':
            job.directory = value
        elif name == 'W':
            job.walltime = jobs.seconds(value)
        elif name == 'nnodes':
            job.nodes = int(value)
        elif name in ('r', 'rn'):
            job.rerunable = name == 'r'
        elif name == 'n':
            job.nodes = -(-int(value) // CORES)
    if job.queue not in QUEUES:
        raise jobs.RefusedError(f'{job.queue}: No such queue. Job not submitted.')
    print(f'Job <{jobs.submit(job, text).id}> is submitted to queue <{job.queue}>.')
    return 0


def bjobs(arguments: list[str], system: str) -> int:
    """Tell about one job, or list all of them."""
    if _version(arguments):
        return 0
    names = [text for text in arguments if text.isdigit()]
    found = [job for job in jobs.everything()
             if (str(job.id) in names if names else job.state != ENDED or '-a' in arguments)]
    form = arguments[arguments.index('-o') + 1] if '-o' in arguments else ''
    if '-noheader' not in arguments:
        print(f'{"JOBID":<7} {"USER":<7} STAT  {"QUEUE":<10} FROM_HOST   EXEC_HOST   {"JOB_NAME":<10} SUBMIT_TIME')
    for job in found:
        print(_fields(job, form) if form else _line(job))
    for name in {*names} - {str(job.id) for job in found}:
        print(f'Job <{name}> is not found', file=sys.stderr)
    return 0 if found else 255


def _fields(job: Job, form: str) -> str:
    """The fields that are asked for; those that a job does not have are a dash."""
    names, _, delimiter = form.partition('delimiter=')
    reason = 'TERM_OWNER: job killed by owner;' if job.cancelled else ''
    values = {'jobid': job.id, 'stat': _state(job), 'exit_code': job.exit_code, 'exit_reason': reason,
              'output_file': job.stdout, 'exec_host': ':'.join(job.hosts), 'job_name': job.name,
              'pend_reason': '' if job.started else _pending(job)}
    return (delimiter.strip('\'"') or ' ').join(str(values.get(name) or '-') for name in names.split())


def _pending(job: Job) -> str:
    if jobs.is_stopped(job.queue):
        return 'The queue has been inactivated by administrator;'
    return 'New job is waiting for scheduling;'


def _line(job: Job) -> str:
    host = job.hosts[0] if job.started else '-'
    return (f'{job.id:<7} {job.owner:<7} {_state(job):<5} {job.queue:<10} {LOGIN:<11} {host:<11} {job.name:<10} '
            f'{jobs.clock(job.submitted, "%b %d %H:%M")}')


def _state(job: Job) -> str:
    if job.state == ENDED:
        return 'DONE' if job.exit_code == 0 else 'EXIT'
    return 'RUN' if job.state == RUNNING else 'PEND'


def bkill(arguments: list[str], system: str) -> int:
    """End jobs."""
    return 0 if _version(arguments) else max(map(_bkill, arguments))


def _bkill(name: str) -> int:
    if jobs.cancel(int(name)):
        print(f'Job <{name}> is being terminated')
        return 0
    known = jobs.load(int(name))
    print(f'Job <{name}>: {"Job has already finished" if known else "No matching job found"}', file=sys.stderr)
    return 255


def bqueues(arguments: list[str], system: str) -> int:
    """List the queues."""
    if not _version(arguments):
        print('QUEUE_NAME      PRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP')
        for name in QUEUES:
            print(f'{name:<15}  30  Open:Active       -    -    -    -     0     0     0     0')
    return 0


def hostname(arguments: list[str], system: str) -> int:
    """The name of the login node."""
    print(f'{LOGIN}.llnl.gov' if '-f' in arguments else LOGIN)
    return 0


def _version(arguments: list[str]) -> bool:
    if '-V' in arguments:
        print(VERSION)
    return '-V' in arguments


def lsid(arguments: list[str], system: str) -> int:
    """The name of the cluster."""
    if not jobs.reachable():
        print('lsid: ls_getclustername failed: LIM is down; try later', file=sys.stderr)
        return 1
    print(f'{VERSION}\n\nMy cluster name is lassen\nMy master name is lassen1')
    return 0


PROGRAMS = {'lsid': lsid, 'bsub': bsub, 'bjobs': bjobs, 'bkill': bkill, 'bqueues': bqueues, 'hostname': hostname}
