"""RAPTOR workers: the variables of their managers, and the commands that start the MPI jobs of one that spans nodes."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.executor.launching.launched import TaskLaunch, compose, cpus_of, places
from rp_agent.lookup import LaunchRefused
from rp_agent.task import JOB_SLOTS, PART, AgentTask, Description
from rp_api import raptor_link
from rp_api.constants import TASK_EXECUTABLE, TRANSPORT_MPI
from rp_api.system.gpus import VISIBLE_GPUS


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
    """Return the files of the MPI jobs for the manager that leads them; without a launch method, they name the reason.

    The ranks are such a job if the class of the worker is an `MPIWorker`; the carriers, if they are the transport.
    """
    worker, slots = task.extra[PART]['worker'], task.extra[JOB_SLOTS]
    nodes: dict[int, list[dict[str, Any]]] = {}   # in the order of the parts
    for slot in slots:
        nodes.setdefault(slot['node_index'], []).append(slot)
    of_node = {node: part for part, node in enumerate(nodes)}
    jobs = {raptor_link.job_file('', worker): _Job(
        f'{worker}.mpi', slots, {}, raptor_link.RUN,
        [raptor_link.run_file(task.sandbox, worker, of_node[slot['node_index']]) for slot in slots])}
    if own.get(raptor_link.TRANSPORT) == TRANSPORT_MPI:
        jobs[raptor_link.carriers_file('', worker)] = _Job(
            f'{worker}.carriers', [_of_carrier(there) for there in nodes.values()], _CARRIERS, raptor_link.CARRIER,
            [raptor_link.carrier_file(task.sandbox, worker, part) for part in of_node.values()])
    found: dict[str, str] = {}
    for name, job in jobs.items():
        try:
            if task.description['container']:
                raise LaunchRefused('an MPI job of a worker on several nodes cannot run in a container')
            launch = _compose(job, task, environment, own, told)
        except LaunchRefused as error:
            found[name] = json.dumps({'refused': str(error)})
        else:
            found |= {**launch.scripts, name: json.dumps({
                'argv': launch.argv, 'set': dict(launch.sets), 'unset': launch.unsets,
                'notes': f'{task.sandbox}/{job.uid}.ranks', 'signals': [int(number) for number in launch.signals]})}
    return found


_CARRIERS = {'cores_per_rank': 1, 'gpus_per_rank': 0.0, 'mem_per_rank': 0, 'ranks_per_node': 1}


class _Job(NamedTuple):
    """An MPI job over the nodes of a worker: `variable` gets the path in `paths` of each rank."""

    uid: str
    slots: list[dict[str, Any]]
    attributes: dict[str, Any]   # by which its description differs from that of the worker
    variable: str
    paths: list[str]


def _of_carrier(slots: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the slot of a carrier: the cores of all ranks on its node."""
    cores = {core['index']: core for slot in slots for core in slot['cores']}
    return {**slots[0], 'cores': list(cores.values()), 'gpus': []}


def _compose(job: _Job, task: AgentTask, environment: TaskEnvironment, own: dict[str, str],
             told: dict[str, str]) -> TaskLaunch:
    size = len(job.slots)
    description = Description({**task.description, 'mode': TASK_EXECUTABLE, 'use_mpi': True, 'ranks': size,
                               'pre_launch': [], 'post_launch': [], **job.attributes})
    ranks = AgentTask(job.uid, description, task.pilot, task.sandbox)
    ranks.slots = job.slots
    dropped = ('RP_PROF_TGT', raptor_link.SLOTS, raptor_link.PART)
    own, told = ({name: value for name, value in each.items() if name not in dropped} | {'RP_RANKS': str(size)}
                 for each in (own, told))
    stdio = (f'{task.sandbox}/{job.uid}.out', f'{task.sandbox}/{job.uid}.err')
    return compose(ranks, environment, own, told, stdio, detail=environment.context.in_scripts, ends=True,
                   each=[((job.variable, path),) for path in job.paths])
