"""Launches of tasks by a launcher: command line, files and environment, without running it.

The launcher starts the exec script of the task for each rank, or `rp-rank` if the task needs no shell. The launcher is
the process of the task, and writes to its output files. `<uid>.launch.sh` in the sandbox has the same command, for
users to read and run by hand.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rp_agent.executor.launching import rank_program, rank_script, script
from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.executor.launching.job import BELONGS, WITHOUT_GPUS, job_of, places, share_of
from rp_agent.executor.launching.rank_script import RankShare
from rp_agent.executor.processes.launch import Block
from rp_agent.launch_method.base import Command, LaunchMethod, Rank
from rp_agent.lookup import LaunchRefused
from rp_agent.task import DVM, LAUNCH_INFO, AgentTask
from rp_api.system.shell import FALLBACK
from rp_api.system.shell_text import literal
from rp_api.units import MB
from rp_profiling.write.detail import Detail

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
    ranks_of = _Ranks(task, environment, told, where, method, bool(elsewhere), detail, ends or DVM in task.extra)
    ranks_of.add(each)
    if launchers.rank_program and rank_program.is_enough(task.description, task.sandbox):
        execute, rank_text = f'{task.uid}.exec.plan', ranks_of.plan()
        program: tuple[str, ...] = launchers.rank_program, f'{task.sandbox}/{execute}'
    else:
        execute, rank_text = f'{task.uid}.exec.sh', ranks_of.script()
        program = rank_program.of_script(launchers.rank_program, f'{task.sandbox}/{execute}')
    command = method.command(job, program)
    commands = task.description['pre_launch'] or task.description['post_launch']
    launch_text = script.launch_script(
        task, {**told, **method.environment, **command.environment}, _launch(command, stdio),
        environment.shell if commands else FALLBACK, detail=detail, hidden='')
    task.extra[LAUNCH_INFO] = {'launch_method': method.NAME, 'launch_command': shlex.join(command.argv)}
    return TaskLaunch(
        method.NAME, command.argv, launchers.variables(method, environment.base).block({**own, **command.environment}),
        {execute: rank_text, f'{task.uid}.launch.sh': launch_text, **command.files}, ranks,
        tuple(number for number in method.CANCEL if number != signal.SIGKILL), elsewhere,
        {**method.environment, **command.environment}, (*method.rank_variables, *method.size_variables))


class _Ranks:
    """Composes the plan or script that the ranks of a task run."""

    def __init__(self, task: AgentTask, environment: TaskEnvironment, told: dict[str, str], where: Sequence[Rank],
                 method: LaunchMethod, far: bool, detail: Detail, ends: bool) -> None:
        self._task = task
        self._told = told
        self._method = method
        self._detail = detail
        self._ends = ends
        self._shares = [share_of(place, task.description['gpu_type'], environment) for place in where]
        if method.chooses_devices:
            self._shares = [RankShare() if place.gpus else WITHOUT_GPUS for place in where]
        self._memory = task.description['mem_per_rank'] * MB
        self._shell = environment.context.shell
        launchers = environment.context.launchers
        self._base = launchers.rank_environment(method) if launchers and (far or not method.FORWARDS) else None

    def add(self, variables: Sequence[Variables]) -> None:
        """Add variables of each rank."""
        if variables:
            self._shares = [share._replace(variables=(*share.variables, *more))
                            for share, more in zip(self._shares, variables, strict=True)]

    def plan(self) -> str:
        """Return the plan for `rp-rank`."""
        task = self._task
        return rank_program.plan(
            task.uid, task.sandbox, task.description, self._told, self._shares, self._method.rank_variables,
            launcher=self._method.NAME, base=self._base.block if self._base else '', memory=self._memory,
            trace=self._told.get('RP_PROF_TGT', ''), detail=self._detail, ends=self._ends)

    def script(self) -> str:
        """Return the exec script for the shell."""
        task = self._task
        context = rank_script.started_by_launcher(
            task.uid, task.sandbox, self._shares, self._method.rank_variables, launcher=self._method.NAME,
            shell=self._shell, base=self._base.script if self._base else '', memory=self._memory,
            sync=bool(task.description['pre_exec_sync']) and len(self._shares) > 1, ends=self._ends)
        return script.exec_script(task, self._told, context, detail=self._detail)


def _launch(command: Command, stdio: tuple[str, str]) -> list[str]:
    """Return the lines of a launch script that run the launcher."""
    stdout, stderr = map(literal, stdio)
    return [f'{shlex.join(command.argv)} </dev/null >{stdout} 2>{stderr}', 'RP_RET=$?']
