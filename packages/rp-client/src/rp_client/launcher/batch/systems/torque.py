"""Torque, through radical.saga; `qstat -f` shows jobs until a while after their end (`keep_completed`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rp_client.launcher.batch.systems.base import Adapted, Status, after, each
from rp_client.launcher.batch.systems.pbspro import FIND, found_job, read_jobs
from rp_client.launcher.batch.systems.request import JobRequest


class Torque(Adapted):
    """Torque, version 2.5 or later."""

    name = 'Torque'
    alive = 'qstat -B >/dev/null'
    submitter = 'qsub'
    canceller = 'qdel'
    queue_command = 'qstat -Q -f {}'
    queue_stopped = '(started|enabled) = False'
    lacks = frozenset({'qos', 'reservation'})
    skips = frozenset({'total_gpu_count', 'total_physical_memory', 'system_architecture'})
    never: ClassVar[Mapping[str, str]] = {
        r'Hold_Types = \w*[os]': 'the job is held by an operator, or by Torque after failed starts',
        r'started = False': 'the queue does not start jobs',
    }

    def amendments(self, request: JobRequest) -> list[tuple[str, str]]:
        chunk = f':ppn={request.cores_per_node}' if request.cores_per_node else ''
        chunk += f':gpus={request.gpus_per_node or request.gpus}' if request.gpus else ''
        lines = [f'#PBS -l {option}' for option in request.options]
        lines += [f'#PBS -l mem={request.memory}mb'] if request.memory else []
        lines += ['#PBS -n'] if request.exclusive else []
        lines += [f'#PBS -r {"y" if request.requeue else "n"}']
        # if the size of nodes is unknown, cores of any nodes
        size = f'nodes={request.nodes}{chunk}' if request.nodes else f'procs={request.cores}{chunk}'
        # the adaptor appends a command of its own to the line of the pilot's
        return [(r'#PBS -l nodes=\d+(?::ppn=\d+)?', f'#PBS -l {size}'), *after('#PBS -l (?:nodes|procs)=', lines),
                (r' export SAGA_PPN=', '\nexport SAGA_PPN=')]

    def find(self, request: JobRequest) -> str:
        return FIND

    def found(self, output: str, request: JobRequest) -> str:
        return found_job(output, request)

    def ask(self, jobs: Mapping[str, str]) -> str:
        return f'qstat -Q -f 2>/dev/null; {each(jobs, "qstat -f")}'

    def read(self, output: str) -> Mapping[str, Status]:
        return read_jobs(output, self.is_never)
