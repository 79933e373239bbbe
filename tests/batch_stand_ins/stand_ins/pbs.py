"""qsub, qstat, qdel, pbsnodes of PBS Pro and of Torque; checkjob of Moab.

Formats: PBS Professional 2021.1 Reference Guide (qstat -f, pbsnodes -a, exit codes of qstat); Torque 6.1 Administrator
Guide (qstat -f1, pbsnodes -a); Moab Workload Manager 9.1 (checkjob).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from stand_ins import jobs
from stand_ins.jobs import CORES, ENDED, NODES, QUEUES, RUNNING, Job

SERVER = 'server1'


def environ(job: Job, system: str) -> dict[str, str]:
    """What a job finds in its environment."""
    slots = [host for host in job.hosts for _ in range(CORES)]
    lines = job.hosts if system == 'pbspro' else slots
    told = {'PBS_JOBID': f'{job.id}.{SERVER}', 'PBS_JOBNAME': job.name, 'PBS_QUEUE': job.queue,
            'PBS_NODEFILE': jobs.node_file(job, lines), 'PBS_ENVIRONMENT': 'PBS_BATCH'}
    if system == 'torque':
        told |= {'PBS_NUM_NODES': str(job.nodes), 'PBS_NUM_PPN': str(CORES), 'PBS_NP': str(len(slots))}
    return told


def qsub(arguments: list[str], system: str) -> int:
    """Submit the script that is named last, or comes on standard input."""
    if not jobs.reachable():
        print(f'Connection refused\nqsub: cannot connect to server {SERVER} (errno=15010)', file=sys.stderr)
        return 1
    text = Path(arguments[-1]).read_text() if arguments else sys.stdin.read()
    job = Job()
    for letter, value in re.findall(r'^#PBS -(\w) *(.*?) *$', text, re.MULTILINE):
        if letter == 'N':
            job.name = value
        elif letter == 'o':
            job.stdout = value
        elif letter == 'e':
            job.stderr = value
        elif letter == 'q':
            job.queue = value
        elif letter in 'AP':
            job.project = value
        elif letter == 'v':
            job.environ = dict(pair.strip('"').split('=', 1) for pair in value.split(','))
        elif letter == 'l':
            _resource(job, value)
        elif letter == 'r':
            job.rerunable = value == 'y'
    if system == 'pbspro' and job.nodes > len(NODES):   # it is accepted, and waits
        job.never = (f'Can Never Run: Insufficient amount of resource: ncpus (R: {job.nodes * CORES} '
                     f'A: {len(NODES) * CORES} T: {len(NODES) * CORES})')
    if job.queue not in QUEUES:
        raise jobs.RefusedError('Unknown queue')
    print(f'{jobs.submit(job, text).id}.{SERVER}')
    return 0


def _resource(job: Job, value: str) -> None:
    if value.startswith('walltime='):
        job.walltime = jobs.seconds(value[9:])
    elif found := re.match(r'(?:select|nodes)=(\d+)(:ncpus=1\b)?', value):
        job.nodes = -(-int(found[1]) // CORES) if found[2] else int(found[1])
    elif found := re.match(r'procs=(\d+)', value):
        job.nodes = -(-int(found[1]) // CORES)


def qstat(arguments: list[str], system: str) -> int:
    """Tell about one job in full, or list those that have not ended."""
    if '--version' in arguments:
        print('pbs_version = 2021.1.3.20220217134230' if system == 'pbspro' else 'Version: 6.1.2\nCommit: 661e092552')
        return 0
    options = ''.join(text for text in arguments if text.startswith('-'))
    names = [text for text in arguments if not text.startswith('-')]
    if not jobs.reachable():
        print(f'Connection refused\nqstat: cannot connect to server {SERVER} (errno=15010)', file=sys.stderr)
        return 111
    if 'B' in options:
        print(f'Server             Max   Tot   Que   Run\n---------------- ----- ----- ----- -----\n{SERVER:<16}     0')
        return 0
    if 'Q' in options:
        _queues()
        return 0
    if 'f' in options:
        return max(_full(name, system, history='x' in options) for name in names)
    for job in jobs.everything():
        if job.state != ENDED:
            print(f'{job.id}.{SERVER:<12} {job.name:<16} {job.owner:<16} 00:00:00 {_letter(job, system)} {job.queue}')
    return 0


def _queues() -> None:
    """What is known of the queues."""
    for name in QUEUES:
        print(f'Queue: {name}\n    queue_type = Execution\n    enabled = True\n'
              f'    started = {not jobs.is_stopped(name)}\n')


def _full(name: str, system: str, history: bool) -> int:
    job = jobs.load(int(name.partition('.')[0]))
    if job is None:
        print(f'qstat: Unknown Job Id {name}', file=sys.stderr)
        return 153
    if system == 'pbspro' and job.state == ENDED and not history:
        print(f'qstat: {name} Job has finished, use -x or -H to obtain historical job information', file=sys.stderr)
        return 35
    values = {'Job_Name': job.name, 'Job_Owner': f'{job.owner}@{NODES[0]}', 'job_state': _letter(job, system),
              'queue': job.queue, 'server': SERVER, 'ctime': jobs.clock(job.submitted),
              'Error_Path': f'{NODES[0]}:{job.stderr}', 'Output_Path': f'{NODES[0]}:{job.stdout}',
              'Rerunable': str(job.rerunable),
              'mtime': jobs.clock(job.ended or job.started or job.submitted)}
    if job.started:
        values |= _places(job, system) | {('stime' if system == 'pbspro' else 'start_time'): jobs.clock(job.started)}
    elif job.never:
        values['comment'] = job.never
    if job.exit_code is not None:
        values['Exit_status' if system == 'pbspro' else 'exit_status'] = str(job.exit_code)
    elif job.state == ENDED and system == 'pbspro':
        values['comment'] = 'job deleted before it has run'
    print(f'Job Id: {job.id}.{SERVER}')
    print(''.join(f'    {key} = {value}\n' for key, value in values.items()))
    return 0


def _places(job: Job, system: str) -> dict[str, str]:
    if system == 'torque':
        return {'exec_host': '+'.join(f'{host}/{core}' for host in job.hosts for core in range(CORES))}
    return {'exec_host': '+'.join(f'{host}/0*{CORES}' for host in job.hosts),
            'exec_vnode': '+'.join(f'({host}:ncpus={CORES})' for host in job.hosts)}


def _letter(job: Job, system: str) -> str:
    ended = 'F' if system == 'pbspro' else 'C'
    return {ENDED: ended, RUNNING: 'R'}.get(job.state, 'Q')


def qdel(arguments: list[str], system: str) -> int:
    """End jobs."""
    return max(_qdel(name, system) for name in arguments)


def _qdel(name: str, system: str) -> int:
    if jobs.cancel(int(name.partition('.')[0])):
        return 0
    if jobs.load(int(name.partition('.')[0])):
        print(f'qdel: Job has finished {name}' if system == 'pbspro' else
              f'qdel: Request invalid for state of job MSG=invalid state for job - COMPLETE {name}', file=sys.stderr)
        return 35
    print(f'qdel: Unknown Job Id {name}', file=sys.stderr)
    return 153


def pbsnodes(arguments: list[str], system: str) -> int:
    """Tell about all nodes."""
    if '--version' in arguments:
        return qstat(arguments, system)
    for node in NODES:
        if system == 'pbspro':
            print(f'{node}\n     Mom = {node}\n     ntype = PBS\n     state = free\n     pcpus = {CORES}\n'
                  f'     resources_available.host = {node}\n     resources_available.ncpus = {CORES}\n')
        else:
            print(f'{node}\n     state = free\n     np = {CORES}\n     ntype = cluster\n')
    return 0


def checkjob(arguments: list[str], system: str) -> int:
    """What Moab tells about a job."""
    job = jobs.load(int(arguments[-1]))
    if job is None:
        print(f'ERROR:  invalid job specified: {arguments[-1]}', file=sys.stderr)
        return 1
    state = {ENDED: 'Removed' if job.cancelled else 'Completed', RUNNING: 'Running'}.get(job.state, 'Idle')
    print(f'job {job.id}\n\nAName: {job.name}\nState: {state}')
    if job.exit_code is not None:
        print(f'Completion Code: {job.exit_code}  Time: {jobs.clock(job.ended)}')
    print(f'Creds:  user:{job.owner}  group:{job.owner}  class:{job.queue}\nSubmitTime: {jobs.clock(job.submitted)}')
    return 0


PROGRAMS = {'qsub': qsub, 'qstat': qstat, 'qdel': qdel, 'pbsnodes': pbsnodes}
