"""Slurm: `sbatch`, `scontrol show job`, and `sacct` for jobs that the controller does not know any more."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from rp_client.launcher.batch.systems import base
from rp_client.launcher.batch.systems.base import Scripted, Status, clock, each, value
from rp_client.launcher.batch.systems.request import JobRequest

_QUEUED = {'PENDING', 'CONFIGURING', 'REQUEUED', 'REQUEUE_HOLD', 'REQUEUE_FED', 'SPECIAL_EXIT', 'RESV_DEL_HOLD'}
_RUNNING = {'RUNNING', 'COMPLETING', 'SUSPENDED', 'STOPPED', 'SIGNALING', 'RESIZING', 'STAGE_OUT'}
_MEANINGLESS = ('', 'None', '(null)')


class Slurm(Scripted):
    """Slurm, version 17 or later."""

    name = 'Slurm'
    alive = 'scontrol ping | grep -q "is UP"'
    submitter = 'sbatch'
    canceller = 'scancel'
    queue_command = 'sinfo -h -o "%P %a" -p {}'
    queue_stopped = ' (down|drain|inact)'
    qos_command = 'sacctmgr -n -P show qos {} format=name'
    directive = '#SBATCH'
    overriding: ClassVar[Mapping[str, str]] = {
        '': 'SBATCH_JOB_NAME SBATCH_TIMELIMIT SBATCH_OUTPUT SBATCH_ERROR SBATCH_NO_KILL SBATCH_REQUEUE '
            'SBATCH_NO_REQUEUE SBATCH_ARRAY_INX SBATCH_WAIT SBATCH_OVERCOMMIT',   # one job, without waiting
        'queue': 'SBATCH_PARTITION',
        'qos': 'SBATCH_QOS',
        'account': 'SBATCH_ACCOUNT',
        'reservation': 'SBATCH_RESERVATION',
        'options': 'SBATCH_CONSTRAINT',
        'gpus': 'SBATCH_GPUS SBATCH_GPUS_PER_NODE SBATCH_GPUS_PER_TASK SBATCH_GRES SBATCH_TRES_PER_TASK '
                'SBATCH_CPUS_PER_GPU SBATCH_MEM_PER_GPU',
        'memory': 'SBATCH_MEM_PER_CPU SBATCH_MEM_PER_GPU SBATCH_MEM_PER_NODE',
        'exclusive': 'SBATCH_EXCLUSIVE',
        'threads_per_core': 'SBATCH_THREADS_PER_CORE SBATCH_HINT SLURM_HINT',
        'reserved_cores': 'SBATCH_CORE_SPEC SBATCH_THREAD_SPEC',
    }
    job_id = r'^Submitted batch job (\d+)'
    never: ClassVar[Mapping[str, str]] = {
        r'^PartitionTimeLimit$': 'the wall time is more than the partition allows',
        r'^PartitionNodeLimit$': 'the number of nodes is outside of what the partition allows, or they are down',
        r'^Partition(Down|Inactive)$': 'the partition does not start jobs',
        r'^PartitionConfig$': 'the request does not suit the configuration of the partition',
        r'^(Assoc|QOS)Max\w*Per(Job|Node)(Limit)?$': 'the job is larger, or longer, than the account or QOS allows',
        r'^MaxMemPerLimit$': 'the memory is more than the partition allows',
        r'^QOSMin\w+$': 'the job is smaller than the QOS wants it',
        r'^(Assoc|QOS)Grp\w*(?<!Run)Minutes(Limit)?$': 'the allocation of the account or QOS is used up',
        r'^BadConstraints$': 'no nodes have what the constraints ask for',
        r'^(AccountNotAllowed|InvalidAccount)$': 'the account may not use the partition, or does not exist',
        r'^(QOSNotAllowed|InvalidQOS)$': 'the QOS may not be used, or does not exist',
        r'^ReservationDeleted$': 'the reservation does not exist any more',
        r'^(JobHeldAdmin|JobHoldMaxRequeue|launch_failed_requeued_held|job_requeued_in_held_state)$':
            'the job is held by an administrator, or by Slurm after a failed start',
    }
    full: ClassVar[Mapping[str, str]] = {
        r'(Assoc|QOS)\w*Submit\w*Limit': 'the user, account or QOS has as many jobs as it may have at once',
    }
    unreachable: ClassVar[Mapping[str, str]] = {
        r'Unable to contact slurm controller': 'slurmctld does not run, or cannot be reached',
        r'Socket timed out on send/recv': 'slurmctld did not answer in time',
        r'Zero Bytes were transmitted': 'slurmctld ended the connection',
        r'backup controller in standby mode': 'only the backup of slurmctld was reached',
        r'Unable to establish configuration source|failed to fetch remote configs':
            'the configuration could not be fetched from slurmctld',
        r'temporarily unable to accept job': 'slurmctld has too many jobs for the moment',
    }

    def options(self, request: JobRequest) -> Iterator[str]:
        yield f'-J {value(request.name)}'
        yield f'-D {value(request.directory)}'
        yield f'--output={value(_no_pattern(request.output))}'
        yield f'--error={value(_no_pattern(request.error))}'
        yield f'--time={clock(request.minutes)}'
        for name, text in (('partition', request.queue), ('qos', request.qos), ('account', request.account),
                           ('reservation', request.reservation), ('constraint', '&'.join(request.options))):
            if text:
                yield f'--{name}={value(text)}'
        yield from _size(request)
        yield from _gpus(request)
        yield from _memory(request)
        if request.exclusive:
            yield '--exclusive'
        if request.reserved_cores is not None:
            yield f'--core-spec={request.reserved_cores}'
        if request.threads_per_core:
            yield f'--threads-per-core={request.threads_per_core}'
        # a pilot continues without a failed node; a job with this option is not requeued when its first node fails
        yield from ['--requeue'] if request.requeue else ['--no-kill', '--no-requeue']

    def find(self, request: JobRequest) -> str:
        return 'squeue -h -u "$(id -un)" -o "%i %Z"'

    def ask(self, jobs: Mapping[str, str]) -> str:
        return each(jobs, 'scontrol -o show job')

    def read(self, output: str) -> Mapping[str, Status]:
        return dict(_shown(line) for line in output.splitlines() if line.startswith('JobId='))

    def ask_history(self, jobs: Mapping[str, str]) -> str:
        return f'sacct -X -n -P -o JobIDRaw,State,ExitCode -j {",".join(jobs)} 2>/dev/null; true'

    def read_history(self, output: str) -> Mapping[str, Status]:
        rows = (line.split('|') for line in output.splitlines() if line.count('|') == 2)
        return {job: _status(state.split()[0], '', code, f'State={state}') for job, state, code in rows if state}


def _no_pattern(path: str) -> str:
    """Return a path in which Slurm expands no patterns."""
    return path.replace('%', '%%')


def _size(request: JobRequest) -> Iterator[str]:
    if request.nodes:
        yield f'--nodes={request.nodes}'
    if request.nodes and request.nodes_only:
        return
    yield f'--ntasks={request.cores}'
    if request.nodes and not request.threads_per_core:   # sbatch takes only one of these
        yield f'--ntasks-per-node={request.cores_per_node}'


def _gpus(request: JobRequest) -> Iterator[str]:
    if not request.gpus or request.gpu_request == 'none':
        return
    if not request.nodes:
        yield f'--gpus={request.gpus}'
    elif request.gpu_request == 'gres':
        model = f'{request.gpu_model}:' if request.gpu_model else ''
        yield f'--gres=gpu:{model}{request.gpus_per_node}'
    else:
        yield f'--gpus-per-node={request.gpus_per_node}'


def _memory(request: JobRequest) -> Iterator[str]:
    if request.memory and request.nodes:
        yield f'--mem={request.memory_per_node}'
    elif request.memory:
        yield f'--mem-per-cpu={math.ceil(request.memory / request.cores)}'


def _shown(line: str) -> tuple[str, Status]:
    """Return the job of a line of `scontrol -o show job`, and its status."""
    found = {name: _value(name, line) for name in ('JobId', 'JobState', 'Reason', 'ExitCode', 'StartTime')}
    return found['JobId'], _status(found['JobState'], found['Reason'], found['ExitCode'],
                                   f'JobState={found["JobState"]}', found['StartTime'])


def _status(state: str, reason: str, exit_code: str, said: str, start: str = '') -> Status:
    state = state.rstrip('+')
    code, _, sig = exit_code.partition(':')
    said += f' Reason={reason}' if reason not in _MEANINGLESS else ''
    if state in _QUEUED:
        return Status(base.QUEUED, said, unschedulable=Slurm.is_never(reason),
                      start='' if start == 'Unknown' else start)
    if state in _RUNNING:
        return Status(base.RUNNING, said)
    said += f' ExitCode={exit_code}'
    number = int(code or 0) or (128 + int(sig) if sig.isdigit() and int(sig) else 0)
    if state == 'COMPLETED':
        return Status(base.DONE, said, number)
    return Status(base.CANCELED if state == 'CANCELLED' else base.FAILED, said, number)


def _value(name: str, line: str) -> str:
    match = re.search(rf'(?:^|\s){name}=(\S*)', line)
    return match[1] if match else ''
