"""llsubmit, llq, llcancel of LoadLeveler.

Formats: IBM LoadLeveler 5.1, Using and Administering (job command files, llq -r, run-time environment variables), and
the samples in SAGA's adaptor.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from stand_ins import jobs
from stand_ins.jobs import CORES, ENDED, NODES, QUEUES, RUNNING, Job


def environ(job: Job, system: str) -> dict[str, str]:
    """What a job finds in its environment."""
    lines = [host for host in job.hosts for _ in range(CORES)]
    return {'LOADL_JOB_NAME': _name(job), 'LOADL_STEP_ID': f'{_name(job)}.0', 'LOADL_STEP_CLASS': job.queue,
            'LOADL_HOSTFILE': jobs.node_file(job, lines), 'LOADL_TOTAL_TASKS': str(len(lines)),
            'LOADL_PROCESSOR_LIST': ' '.join(lines), 'LOADLBATCH': 'yes'}


def _name(job: Job) -> str:
    return f'{NODES[0]}.{job.id}'


def llsubmit(arguments: list[str], system: str) -> int:
    """Submit the job command file that is named last."""
    if _version(arguments, 'llsubmit'):
        return 0
    text = Path(arguments[-1]).read_text()
    job = Job()
    for name, value in re.findall(r'^# *@ *(\w+) *= *(.*?) *$', text, re.MULTILINE):
        if name == 'job_name':
            job.name = value
        elif name == 'output':
            job.stdout = value
        elif name == 'error':
            job.stderr = value
        elif name == 'class':
            job.queue = value
        elif name == 'initialdir':
            job.directory = value
        elif name == 'wall_clock_limit':
            job.walltime = jobs.seconds(value)
        elif name == 'total_tasks':
            job.nodes = -(-int(value) // CORES)
        elif name == 'environment':
            job.environ = dict(pair.split('=', 1) for pair in value.split(';') if '=' in pair)
    job.stdout, job.stderr = (str(Path(job.directory) / path) if path else '' for path in (job.stdout, job.stderr))
    if job.queue not in QUEUES:
        raise jobs.RefusedError(f'llsubmit: 2512-051 This job has not been submitted to LoadLeveler: class '
                                f'"{job.queue}" is not defined')
    print(f'llsubmit: The job "{_name(jobs.submit(job, text))}" has been submitted.')
    return 0


def llq(arguments: list[str], system: str) -> int:
    """Tell about a job that has not ended, or list them; one that has ended is not known any more."""
    if _version(arguments, 'llq'):
        return 0
    names = [text for text in arguments if text.startswith(f'{NODES[0]}.')]
    alive = [job for job in jobs.everything() if job.state != ENDED and (not names or _name(job) in names)]
    if not alive:
        print('llq: There is currently no job status to report.')
    for job in alive:
        state = 'R' if job.state == RUNNING else 'I'
        if '-l' in arguments:
            print(f'===== Job Step {_name(job)}.0 =====\n        Job Step Id: {_name(job)}.0\n'
                  f'           Job Name: {job.name}\nInitial Working Dir: {job.directory}\n')
        elif '%id' in arguments:
            print(f'{_name(job)}.0!{state}')
        elif '-r' in arguments:
            started = jobs.clock(job.started, '%m/%d/%Y %H:%M') if job.started else ''
            print(f'{state}!{started}!!Serial!{job.queue}!{job.owner}')
        else:
            print(f'{_name(job)}.0  {job.owner}  {jobs.clock(job.submitted, "%m/%d %H:%M")} {state}  50  {job.queue}')
    return 0


def llcancel(arguments: list[str], system: str) -> int:
    """End a job."""
    if _version(arguments, 'llcancel'):
        return 0
    name = arguments[-1]
    if jobs.cancel(int(name.rpartition('.')[2])):
        print('llcancel: Cancel command has been sent to the central manager.')
        return 0
    print(f'llcancel: Could not find {name} to cancel.', file=sys.stderr)
    return 1


def _version(arguments: list[str], name: str) -> bool:
    if '-v' in arguments:
        print(f'{name} 5.1.0.13 rkat1315a 2013/04/10 RHEL 6.0 81')
    return '-v' in arguments


PROGRAMS = {'llsubmit': llsubmit, 'llq': llq, 'llcancel': llcancel}
