"""Jobs for launch methods: the ranks of a task, with their places and requirements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.executor.launching.launchers import is_mpi
from rp_agent.executor.launching.rank_script import RankShare
from rp_agent.launch_method.base import Job, Rank
from rp_agent.task import BLOCK, DVM, RANKS_PER_SLOT, AgentTask
from rp_api.system.gpus import NO_GPUS

BELONGS = ('RP_SESSION_ID', 'RP_PILOT_ID', 'RP_REGISTRY_ADDRESS', 'RP_TASK_ID')
"""Variables that identify leftover processes of a task, on all nodes."""


WITHOUT_GPUS = RankShare((), tuple(NO_GPUS.items()))
"""The share of a rank without GPUs that its launcher binds to CPUs."""


def places(task: AgentTask) -> list[Rank]:
    """Return a task's ranks, with indices of cores and GPUs; ranks that share a slot get a part of its cores each."""
    description = task.description
    each = int(task.extra.get(RANKS_PER_SLOT, 1))
    count = description['cores_per_rank']
    found = []
    for slot in task.slots or ():
        cores = tuple(core['index'] for core in slot['cores'])
        gpus = tuple(gpu['index'] for gpu in slot['gpus'])
        parts = [cores] if each == 1 else [cores[part * count:(part + 1) * count] for part in range(each)]
        found += [Rank(slot['node_name'], slot['node_index'], part, gpus) for part in parts]
    return found


def process_places(task: AgentTask) -> list[Rank]:
    """Return the placements of a task's processes: one with those of all ranks for the manager of a RAPTOR worker."""
    found = places(task)
    if task.processes == len(found):
        return found
    cores, gpus = ({each for place in found for each in getattr(place, name)} for name in ('cores', 'gpus'))
    return [replace(found[0], cores=tuple(sorted(cores)), gpus=tuple(sorted(gpus)))]


def job_of(task: AgentTask, where: Sequence[Rank], environment: TaskEnvironment, variables: tuple[str, ...]) -> Job:
    """Return the job of a task with these placements, with CPU numbers of cores if they are known."""
    description = task.description
    launchers = environment.context.launchers
    return Job(
        uid=task.uid, sandbox=task.sandbox,
        ranks=tuple(Rank(place.node, place.index, cpus_of(place, environment) or place.cores, place.gpus)
                    for place in where),
        cores_per_rank=description['cores_per_rank'], gpus_per_rank=description['gpus_per_rank'],
        mem_per_rank=description['mem_per_rank'], gpu_type=description['gpu_type'],
        threading=description['threading_type'], mpi=is_mpi(task), variables=variables,
        linked=launchers.linked(task) if launchers is not None else None,
        skip_gpus=bool(description['metadata'].get('lm_skip_gpus')),
        details={**task.extra.get(BLOCK, {}), **task.extra.get(DVM, {})})


def share_of(place: Rank, gpu_type: str, environment: TaskEnvironment) -> RankShare:
    """Return the CPUs and variables of the rank with this placement."""
    visible = environment.visible_gpus(gpu_type, place.gpus, place.index)
    return RankShare(cpus_of(place, environment), tuple(visible.items()))


def cpus_of(place: Rank, environment: TaskEnvironment) -> tuple[int, ...]:
    """Return the CPU numbers of a rank's cores; empty if they are unknown.

    Nodes with the same numbers of cores and GPUs are assumed to number their CPUs in the same way.
    """
    launchers = environment.context.launchers
    if launchers is not None and not launchers.is_alike(place.index):
        return ()
    cpus = environment.context.cpus
    return tuple(cpus[core] for core in place.cores) if place.cores and max(place.cores) < len(cpus) else ()
