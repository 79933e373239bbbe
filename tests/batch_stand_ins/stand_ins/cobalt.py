"""qsub, qstat, qdel, nodelist, partlist of Cobalt.

Formats: Cobalt's manual pages (cqsub, cqstat), the user guides of ALCF, and the samples in SAGA's adaptor.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from stand_ins import jobs
from stand_ins.jobs import ENDED, NODES, QUEUES, RUNNING, Job


def environ(job: Job, system: str) -> dict[str, str]:
    """What a job finds in its environment."""
    return {'COBALT_JOBID': str(job.id), 'COBALT_NODEFILE': jobs.node_file(job, job.hosts),
            'COBALT_PARTNAME': f'1-{job.nodes}' if job.nodes > 1 else '1', 'COBALT_PARTSIZE': str(job.nodes),
            'COBALT_JOBSIZE': str(job.nodes), 'COBALT_PROJECT': job.project}


def ended(job: Job) -> None:
    """Write the last lines of the log that users find beside their output."""
    moment = time.strftime('%a %b %d %H:%M:%S %Y +0000 (UTC)', time.gmtime())
    with open(Path(job.directory) / f'{job.id}.cobaltlog', 'a') as file:
        file.write(f'{moment} Info: task completed normally with an exit code of {job.exit_code}; initiating job '
                   'cleanup and removal\n')


def qsub(arguments: list[str], system: str) -> int:
    """Submit the script that is named last."""
    if _version(arguments, 'qsub'):
        return 0
    text = Path(arguments[-1]).read_text()
    job = Job()
    for name, value in re.findall(r'^#COBALT --(\w+) *(.*?) *$', text, re.MULTILINE):
        if name == 'jobname':
            job.name = value
        elif name == 'output':
            job.stdout = value
        elif name == 'error':
            job.stderr = value
        elif name == 'queue':
            job.queue = value
        elif name == 'project':
            job.project = value
        elif name == 'cwd':
            job.directory = value
        elif name == 'time':
            job.walltime = jobs.seconds(value)
        elif name == 'nodecount':
            job.nodes = int(value)
        elif name == 'env':
            pairs = (pair.replace('\\=', '=').replace('\\:', ':').split('=', 1)
                     for pair in re.split(r'(?<!\\):', value))
            job.environ.update(pairs)   # type: ignore[arg-type]
    if job.queue not in QUEUES:
        raise jobs.RefusedError(f"Queue '{job.queue}' does not exist")
    print(jobs.submit(job, text).id)
    return 0


def qstat(arguments: list[str], system: str) -> int:
    """Tell about a job that has not ended, or list them; one that has ended is not known any more."""
    if _version(arguments, 'qstat'):
        return 0
    alive = [job for job in jobs.everything() if job.state != ENDED]
    if '--full' not in arguments:
        for job in alive:
            print(f'{job.id}  {job.name}  {job.owner}  00:10:00  00:00:00  {job.nodes}  {_state(job)}  {_letter(job)}  '
                  f'{job.hosts[0] if job.started else "None"}  {job.queue}')
        return 0
    found = [job for job in alive if str(job.id) == arguments[-1] or '-u' in arguments]
    for job in found:
        values = {'JobID': job.id, 'JobName': job.name, 'User': job.owner, 'Nodes': job.nodes, 'State': _state(job),
                  'Location': ','.join(job.hosts) if job.started else 'None', 'Queue': job.queue,
                  'OutputPath': job.stdout, 'SubmitTime': jobs.clock(job.submitted), 'Procs': job.nodes,
                  'S': _letter(job)}
        print('\n'.join(f'    {key:<18}: {value}' for key, value in values.items()))
    return 0 if found else 1


def _state(job: Job) -> str:
    return 'running' if job.state == RUNNING else 'queued'


def _letter(job: Job) -> str:
    return 'R' if job.state == RUNNING else 'Q'


def qdel(arguments: list[str], system: str) -> int:
    """End a job."""
    if _version(arguments, 'qdel'):
        return 0
    name = arguments[-1]
    if jobs.cancel(int(name)):
        print(f'      Deleted Jobs\nJobID  User\n=============\n{name}    {jobs.Job().owner}')
        return 0
    print(f'No jobs found matching {name}', file=sys.stderr)
    return 1


def nodelist(arguments: list[str], system: str) -> int:
    """List the nodes."""
    if not _version(arguments, 'nodelist'):
        print('Host  Queue  State\n==================')
        print('\n'.join(f'{name}  default  idle' for name in NODES))
    return 0


def _version(arguments: list[str], name: str) -> bool:
    if '--version' in arguments:
        print(f'{name}.py 1.0.30 $Revision: 2164 $')
    return '--version' in arguments


PROGRAMS = {'qsub': qsub, 'qstat': qstat, 'qdel': qdel, 'nodelist': nodelist, 'partlist': nodelist}
