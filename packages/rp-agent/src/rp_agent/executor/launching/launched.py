"""Launches of tasks by a launcher: command line, files and environment, without running it.

The launcher starts the exec script of the task for each rank, or `rp-rank` if the task needs no shell. The launcher is
the process of the task, and writes to its output files. `<uid>.launch.sh` in the sandbox has the same command, for
users to read and run by hand.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rp_agent.executor.launching import rank_program, rank_script, script
from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.executor.launching.launchers import is_mpi
from rp_agent.executor.launching.rank_script import RankShare
from rp_agent.executor.processes.launch import Block
from rp_agent.launch_method.base import Job, Rank
from rp_agent.lookup import LaunchRefused
from rp_agent.task import BLOCK, DVM, LAUNCH_INFO, RANKS_PER_SLOT, AgentTask
from rp_api.system.gpus import NO_GPUS
from rp_api.system.shell import FALLBACK
from rp_api.system.shell_text import literal
from rp_api.units import MB
from rp_profiling.write.detail import Detail

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


Variables = tuple[tuple[str, str], ...]
"""Names and values of variables."""


@dataclass(frozen=True, slots=True)
class TaskLaunch:
    """The launch of a task by a launcher.

    `method` is the name of the launch method. `signals` are sent to the launcher before it is killed. `elsewhere` are
    the positions of nodes on other hosts that have ranks. `sets` and `unsets` are the variables by which `env` differs
    from the environment of a task.
    """

    method: str
    argv: tuple[str, ...]
    env: Block
    scripts: dict[str, str]
    ranks: int
    signals: tuple[signal.Signals, ...]
    elsewhere: tuple[int, ...]
    sets: Mapping[str, str]
    unsets: tuple[str, ...]

    @property
    def line(self) -> str:
        """The command line, quoted for a shell."""
        return shlex.join(self.argv)


def compose(task: AgentTask, environment: TaskEnvironment, own: dict[str, str], told: dict[str, str],
            stdio: tuple[str, str], *, detail: Detail, ends: bool = False,
            each: Sequence[Variables] = ()) -> TaskLaunch:
    """Return the launch of a task; raise LaunchRefused if no launch method can launch it.

    With `ends`, all ranks note their end. `each` has additional variables of each rank.
    """
    launchers = environment.context.launchers
    where = places(task)
    ranks = task.description['ranks']
    if launchers is None or len(where) != ranks:
        raise LaunchRefused(f'{task.uid} with ranks={ranks} needs a launch method and a slot for each rank')
    elsewhere = tuple(dict.fromkeys(place.index for place in where if not launchers.is_here(place.index)))
    job = job_of(task, where, environment, BELONGS if elsewhere else ())
    method = launchers.choose(job)
    shares = [(RankShare() if place.gpus else WITHOUT_GPUS) if method.chooses_devices
              else share_of(place, task.description['gpu_type'], environment) for place in where]
    if each:
        shares = [share._replace(variables=(*share.variables, *more)) for share, more in zip(shares, each, strict=True)]
    base = launchers.rank_environment(method) if elsewhere or not method.FORWARDS else None
    memory, ends = task.description['mem_per_rank'] * MB, ends or DVM in task.extra
    if launchers.rank_program and rank_program.is_enough(task.description, task.sandbox):
        execute = f'{task.uid}.exec.plan'
        rank_text = rank_program.plan(
            task.uid, task.sandbox, task.description, told, shares, method.rank_variables, launcher=method.NAME,
            base=base.block if base else '', memory=memory, trace=told.get('RP_PROF_TGT', ''), detail=detail, ends=ends)
        program: tuple[str, ...] = launchers.rank_program, f'{task.sandbox}/{execute}'
    else:
        execute = f'{task.uid}.exec.sh'
        context = rank_script.started_by_launcher(
            task.uid, task.sandbox, shares, method.rank_variables, launcher=method.NAME,
            shell=environment.context.shell, base=base.script if base else '', memory=memory,
            sync=bool(task.description['pre_exec_sync']) and ranks > 1, ends=ends)
        rank_text = script.exec_script(task, told, context, detail=detail)
        program = rank_program.of_script(launchers.rank_program, f'{task.sandbox}/{execute}',
                                         f'{task.sandbox}/{task.uid}{rank_script.NOTES}')
    command = method.command(job, program)
    line = shlex.join(command.argv)
    stdout, stderr = map(literal, stdio)
    commands = task.description['pre_launch'] or task.description['post_launch']
    launch_text = script.launch_script(
        task, {**told, **method.environment, **command.environment},
        [f'{line} </dev/null >{stdout} 2>{stderr}', 'RP_RET=$?'],
        environment.shell if commands else FALLBACK, detail=detail, hidden='')
    task.extra[LAUNCH_INFO] = {'launch_method': method.NAME, 'launch_command': line}
    return TaskLaunch(
        method.NAME, command.argv, launchers.variables(method, environment.base).block({**own, **command.environment}),
        {execute: rank_text, f'{task.uid}.launch.sh': launch_text, **command.files}, ranks,
        tuple(number for number in method.CANCEL if number != signal.SIGKILL), elsewhere,
        {**method.environment, **command.environment}, (*method.rank_variables, *method.size_variables))


