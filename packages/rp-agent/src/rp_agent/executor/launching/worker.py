"""RAPTOR workers: the variables of their managers, and the command that starts the MPI job of one that spans nodes."""

from __future__ import annotations

import json

from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.executor.launching.launched import TaskLaunch, compose, cpus_of, places
from rp_agent.lookup import LaunchRefused
from rp_agent.task import JOB_SLOTS, PART, AgentTask, Description
from rp_api import raptor_link
from rp_api.constants import TASK_EXECUTABLE
from rp_api.system.gpus import VISIBLE_GPUS

_MPI_UID = '{}.mpi'
"""The name of the MPI job of a worker, and of its files."""


def variables(task: AgentTask, environment: TaskEnvironment) -> dict[str, str]:
    """Return the variables of a worker's manager; see `rp_api.raptor_link`."""
    context = environment.context
    slots = [{'node': place.node, 'cores': place.cores, 'cpus': cpus_of(place, environment),
              'gpus': environment.gpu_names(place.gpus, place.index)} for place in places(task)]
    names = list(VISIBLE_GPUS.values())   # of variables for GPUs: that of their type, or the one that is set here
    gpus = VISIBLE_GPUS.get(task.description['gpu_type']) or next(filter(environment.base.get, names), names[0])
    found = {raptor_link.SLOTS: json.dumps(slots), raptor_link.GPUS: gpus}
    if PART in task.extra:
        found[raptor_link.PART] = json.dumps({**task.extra[PART], 'files': task.sandbox})
    if context.shell:
        found[raptor_link.SHELL] = context.shell
    return found


def job_scripts(task: AgentTask, environment: TaskEnvironment, own: dict[str, str],
                told: dict[str, str]) -> dict[str, str]:
    """Return the files of the MPI job for the manager that leads it; without a launch method, they name the reason."""
    worker = task.extra[PART]['worker']
    name = raptor_link.job_file('', worker)
    try:
        if task.description['container']:
            raise LaunchRefused('an MPI worker on several nodes cannot run in a container')
        launch = _compose(task, environment, own, told)
    except LaunchRefused as error:
        return {name: json.dumps({'refused': str(error)})}
    uid = _MPI_UID.format(worker)
    return {**launch.scripts, name: json.dumps({
        'argv': launch.argv, 'set': dict(launch.sets), 'unset': launch.unsets,
        'notes': f'{task.sandbox}/{uid}.ranks', 'signals': [int(number) for number in launch.signals]})}


def _compose(task: AgentTask, environment: TaskEnvironment, own: dict[str, str], told: dict[str, str]) -> TaskLaunch:
    worker = task.extra[PART]['worker']
    slots = task.extra[JOB_SLOTS]
    description = Description({**task.description, 'mode': TASK_EXECUTABLE, 'use_mpi': True, 'ranks': len(slots),
                               'pre_launch': [], 'post_launch': []})
    job = AgentTask(_MPI_UID.format(worker), description, task.pilot, task.sandbox)
    job.slots = slots
    numbers: dict[int, int] = {}   # of the parts, by node
    files = [raptor_link.run_file(task.sandbox, worker, numbers.setdefault(slot['node_index'], len(numbers)))
             for slot in slots]
    dropped = ('RP_PROF_TGT', raptor_link.SLOTS, raptor_link.PART)
    own, told = ({name: value for name, value in each.items() if name not in dropped} for each in (own, told))
    size = {'RP_RANKS': str(len(slots))}
    stdio = (f'{task.sandbox}/{job.uid}.out', f'{task.sandbox}/{job.uid}.err')
    return compose(job, environment, own | size, told | size, stdio, detail=environment.context.in_scripts, ends=True,
                   each=[((raptor_link.RUN, path),) for path in files])
