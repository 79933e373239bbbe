"""What has to be run for a task that a launcher starts: its command line, files and environment, without running it.

The launcher starts the exec script of the task for each rank. It is the process of the task, with the output files of
the task, and what it says stands in them. `<uid>.launch.sh` in the sandbox holds the same command, to be read and run
by hand.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from rp_agent.executor import rank_script, script
from rp_agent.executor.environment import TaskEnvironment
from rp_agent.executor.expand import literal
from rp_agent.executor.job import BELONGS, Place, job_of, places, share_of
from rp_agent.executor.launch import Block
from rp_agent.executor.lookup import LaunchRefused
from rp_agent.executor.rank_script import RankShare
from rp_agent.launch_method.base import Command, LaunchMethod
from rp_agent.task import DVM, LAUNCH_INFO, AgentTask

_SHELL = '/bin/sh'
_MB = 2**20


@dataclass(frozen=True, slots=True)
class Launch:
    """How a task is launched: the method's name, the command line, and how to end it.

    `signals` are what the launcher is sent before it is killed, `elsewhere` the positions of the nodes on
    other hosts that have ranks.
    """

    method: str
    argv: tuple[str, ...]
    env: Block
    scripts: dict[str, str]
    ranks: int
    signals: tuple[signal.Signals, ...]
    elsewhere: tuple[int, ...]

    @property
    def line(self) -> str:
        """The command line, as one would type it."""
        return shlex.join(self.argv)


def compose(task: AgentTask, environment: TaskEnvironment, own: dict[str, str], told: dict[str, str],
            stdio: tuple[str, str], *, events: bool) -> Launch:
    """How the task is launched; raises LaunchRefused, with a sentence, if no launch method can do it."""
    launchers = environment.context.launchers
    where = places(task)
    ranks = task.description['ranks']
    if launchers is None or len(where) != ranks:
        raise LaunchRefused(f'ranks={ranks} of {task.uid} need a launch method, and nodes for all of them')
    elsewhere = tuple(dict.fromkeys(place.index for place in where if not launchers.is_here(place.index)))
    job = job_of(task, where, environment, BELONGS if elsewhere else ())
    method = launchers.choose(job)
    execute = f'{task.uid}.exec.sh'
    command = method.command(job, (_SHELL, f'{task.sandbox}/{execute}'))
    rank_text = _rank_script(task, environment, told, where, method, bool(elsewhere), events)
    launch_text = script.launch_script(task, {**told, **method.environment, **command.environment},
                                       _launch(command, stdio), events=events, hidden='')
    task.extra[LAUNCH_INFO] = {'launch_method': method.NAME, 'launch_command': shlex.join(command.argv)}
    return Launch(
        method.NAME, command.argv, launchers.variables(method, environment.base).block({**own, **command.environment}),
        {execute: rank_text, f'{task.uid}.launch.sh': launch_text, **command.files}, ranks,
        tuple(each for each in method.CANCEL if each != signal.SIGKILL), elsewhere)


def _rank_script(task: AgentTask, environment: TaskEnvironment, told: dict[str, str], where: Sequence[Place],
                 method: LaunchMethod, far: bool, events: bool) -> str:
    description = task.description
    shares = [share_of(place, description['gpu_type'], environment) for place in where]
    if method.chooses_devices:
        shares = [RankShare()] * len(shares)
    launchers = environment.context.launchers
    base = launchers.rank_environment(method) if launchers and (far or not method.FORWARDS) else ''
    surroundings = rank_script.started_by_launcher(
        task.uid, task.sandbox, shares, method.rank_variables, launcher=method.NAME, base=base,
        memory=description['mem_per_rank'] * _MB, sync=bool(description['pre_exec_sync']) and len(where) > 1,
        ends=DVM in task.extra)
    return script.exec_script(task, told, surroundings, events=events)


def _launch(command: Command, stdio: tuple[str, str]) -> list[str]:
    """Lines of a launch script that run the launcher."""
    stdout, stderr = map(literal, stdio)
    return [f'{shlex.join(command.argv)} </dev/null >{stdout} 2>{stderr}', 'RP_RET=$?']
