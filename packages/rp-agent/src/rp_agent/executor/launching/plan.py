"""Launch plans: the processes that run a task, without starting them.

There are four kinds of plan. `DIRECT`: each rank is the task's program, started without a shell; possible if the task
has no commands before or after it, and no text that needs a shell. `EXEC`: each rank is a shell that runs
`<uid>.exec.sh`. `LAUNCH`: one shell runs `<uid>.launch.sh`, which starts the exec script for each rank. `LAUNCHED`: a
launcher starts the exec script, or `rp-rank` (see `rank_program`), for each rank of a task that is MPI or has ranks on
other hosts. With commands before or after the launch, the plan of such a task is a `LAUNCH`, whose script runs the
launcher.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.executor.launching.launchers import is_mpi, leads_job, needs_launcher
from rp_agent.executor.processes.launch import Block
from rp_agent.lookup import LaunchRefused
from rp_agent.task import AgentTask
from rp_api.constants import RAPTOR_WORKER
from rp_api.system.shell_text import expand, has_command, texts_of, values_of
from rp_api.units import MB

if TYPE_CHECKING:
    from rp_agent.executor.launching.launched import TaskLaunch

DIRECT = 'direct'
EXEC = 'exec'
LAUNCH = 'launch'
LAUNCHED = 'launched'


class Process(NamedTuple):   # no dataclass: see decision 0039
    """One process to start: the program's path, its arguments including its name, its environment.

    `cpus` is the CPU mask that it is bound to, or None; `memory` is its limit in bytes, 0 for no limit. If the program
    was found by its `name`, `search_path` lists the directories that were searched.
    """

    path: str
    argv: list[bytes]
    env: Block
    cpus: bytes | None = None
    memory: int = 0
    name: str = ''
    search_path: str = ''


class LaunchPlan(NamedTuple):
    """The processes of a task, in the order of the ranks, with their files.

    `output` are the files of standard output and error. `scripts` maps names in the sandbox to texts. With `sync`, the
    ranks wait for each other before the program starts; with `signals_start`, they signal that they run. `launch` is
    set if a launcher starts the ranks.
    """

    kind: str
    processes: list[Process]
    output: tuple[str, str]
    scripts: dict[str, bytes]
    sync: bool = False
    signals_start: bool = False
    launch: TaskLaunch | None = None

    @property
    def script(self) -> str:
        """Path of the output file of the launch script; empty without one."""
        return self.output[0] if self.kind == LAUNCH else ''


def plan(task: AgentTask, environment: TaskEnvironment) -> LaunchPlan:
    """Return the launch plan of a task; raise LaunchRefused if it cannot be run."""
    check(task)
    if environment.context.launchers is None and is_mpi(task):
        raise LaunchRefused(f'ranks={task.description["ranks"]} needs an MPI launch method, and platform '
                            f'{environment.context.resource} has none: set use_mpi=False to start plain processes')
    if task.description['container']:
        from rp_agent.executor.launching.containers import contained  # few tasks have one

        task = contained(task, environment)
    try:
        return _plan(task, environment)
    except UnicodeEncodeError as error:
        raise LaunchRefused(f'{error.object!r} cannot be passed to a program: {error.reason}') from error
    except ValueError as error:   # a string contains a NUL character
        raise LaunchRefused(str(error)) from error


def _plan(task: AgentTask, environment: TaskEnvironment) -> LaunchPlan:
    own = variables_of(task, environment)
    found = _plan_processes(task, environment, own)
    if leads_job(task):
        from rp_agent.executor.launching.worker import job_scripts  # few agents have workers

        texts = job_scripts(task, environment, own, script_variables(environment, own))
        found.scripts.update((name, os.fsencode(text)) for name, text in texts.items())
    return found


def variables_of(task: AgentTask, environment: TaskEnvironment) -> dict[str, str]:
    """Return the variables that describe a task to all of its ranks, with those of the manager of a RAPTOR worker."""
    own = environment.of_task(task)
    if task.description['mode'] == RAPTOR_WORKER:
        from rp_agent.executor.launching import worker  # few agents have workers

        own = {**worker.variables(task, environment), **own}
    return own


def _plan_processes(task: AgentTask, environment: TaskEnvironment, own: dict[str, str]) -> LaunchPlan:
    description = task.description
    if needs_launcher(task, environment.context.launchers):
        return _launched(task, environment, own)
    if description['pre_launch'] or description['post_launch']:
        return _launch_script(task, environment, own)
    if not (description['pre_exec'] or description['post_exec'] or description['named_env']):
        processes = _programs(task, environment, own)
        if processes is not None:
            return LaunchPlan(DIRECT, processes, stdio(task), {})
    return _exec_scripts(task, environment, own)


def check(task: AgentTask) -> None:
    """Verify that the description has an executable and valid names; raise LaunchRefused."""
    description = task.description
    if not description['executable']:
        raise LaunchRefused(f'{task.uid} has no executable: tasks of mode {description["mode"]} are run by a RAPTOR '
                            f'master, set raptor_id')
    for name in ('stdout', 'stderr'):
        if '\0' in description[name]:
            raise LaunchRefused(f'{name} is {description[name]!r}: file names cannot contain a NUL character')
    for name, value in description['environment'].items():
        if not name or '=' in name or '\0' in name:
            raise LaunchRefused(f'environment has the variable {name!r}: names cannot be empty or contain "=" or NUL')
        if '\0' in value:
            raise LaunchRefused(f'environment variable {name} contains a NUL character')


def _programs(task: AgentTask, environment: TaskEnvironment, own: dict[str, str]) -> list[Process] | None:
    """Return a process with the task's program for each rank; None if a text needs a shell."""
    description = task.description
    if has_command(description, task.sandbox):
        return None
    own_environment = values_of(description)
    memory = description['mem_per_rank'] * MB
    texts = texts_of(description)
    active = bool(own_environment) or any('$' in text or '`' in text for text in texts)
    processes = []
    for rank in range(task.processes):
        variables = {**own, **environment.of_rank(task, rank)}
        # later assignments see earlier ones
        scope = environment.scope(task, variables) if active else variables
        for name, text in own_environment.items():
            value = expand(text, scope)
            if value is None:
                return None
            variables[name] = value
        words = [word for text in texts if (word := expand(text, scope)) is not None]
        if len(words) < len(texts):
            return None
        argv = [_argument(word) for word in words]
        search_path = variables.get('PATH', environment.search_path)
        path = environment.programs.find(words[0], search_path, task.sandbox)
        processes.append(Process(path, argv, environment.block(task, variables),
                                 environment.bindings[_cores(task, rank)], memory, words[0], search_path))
    return processes


def _argument(word: str) -> bytes:
    if '\0' in word:
        raise LaunchRefused(f'argument {word!r} contains a NUL character, which cannot be passed to a program')
    return os.fsencode(word)


def _exec_scripts(task: AgentTask, environment: TaskEnvironment, own: dict[str, str]) -> LaunchPlan:
    """Plan a shell with the exec script for each rank."""
    from rp_agent.executor.launching import script  # most tasks need none

    name = f'{task.uid}.exec.sh'
    sync = _synchronised(task)
    processes = [_shell(name, task, environment, {**own, **environment.of_rank(task, rank)}, _cores(task, rank))
                 for rank in range(task.processes)]
    context = script.started_by_agent(environment.shell, sync=sync)
    text = script.exec_script(task, script_variables(environment, own), context, detail=environment.context.in_scripts)
    return LaunchPlan(EXEC, processes, stdio(task), {name: os.fsencode(text)}, sync)


def _launch_script(task: AgentTask, environment: TaskEnvironment, own: dict[str, str]) -> LaunchPlan:
    """Plan one shell with the launch script, which starts the exec scripts."""
    from rp_agent.executor.launching import script

    launch, execute = f'{task.uid}.launch.sh', f'{task.uid}.exec.sh'
    ranks = [environment.of_rank(task, rank) for rank in range(task.processes)]
    sync = _synchronised(task)
    starts = task.description['startup_timeout'] > 0
    told = script_variables(environment, own)
    detail = environment.context.in_scripts
    context = script.started_by_agent(environment.shell, sync=sync, signals_start=starts, launched=True)
    texts = {execute: script.exec_script(task, told, context, detail=detail),
             launch: script.launch_script(
                 task, told, script.start_ranks(ranks, environment.shell, execute, stdio(task), sync=sync),
                 environment.shell, detail=detail)}
    scripts = {name: os.fsencode(text) for name, text in texts.items()}
    cores = _all_cores(task)
    return LaunchPlan(LAUNCH, [_shell(launch, task, environment, own, cores)], _launch_output(task), scripts, sync,
                      starts)


def _launched(task: AgentTask, environment: TaskEnvironment, own: dict[str, str]) -> LaunchPlan:
    """Plan a launcher that starts the exec scripts, in the launch script if the task has commands for it."""
    from rp_agent.executor.launching.launched import compose  # most agents never need it

    launch = compose(task, environment, own, script_variables(environment, own), stdio(task),
                     detail=environment.context.in_scripts)
    description = task.description
    scripts = {name: os.fsencode(text) for name, text in launch.scripts.items()}
    kind, words, output = LAUNCHED, launch.argv, stdio(task)
    if description['pre_launch'] or description['post_launch']:
        kind, words, output = LAUNCH, (environment.shell, f'./{task.uid}.launch.sh'), _launch_output(task)
    process = Process(words[0], [_argument(word) for word in words], launch.env)
    return LaunchPlan(kind, [process], output, scripts, launch=launch)


def _shell(name: str, task: AgentTask, environment: TaskEnvironment, variables: dict[str, str],
           cores: tuple[int, ...]) -> Process:
    shell = environment.shell
    return Process(shell, [os.fsencode(shell), os.fsencode(f'./{name}')], environment.block(task, variables),
                   environment.bindings[cores], task.description['mem_per_rank'] * MB)


def _cores(task: AgentTask, rank: int) -> tuple[int, ...]:
    """Return the cores of a process: those of its rank, or of all ranks if it starts them."""
    return task.cores(rank) if task.processes == task.description['ranks'] else _all_cores(task)


def _all_cores(task: AgentTask) -> tuple[int, ...]:
    return tuple({core: None for rank in range(task.description['ranks']) for core in task.cores(rank)})


def script_variables(environment: TaskEnvironment, own: dict[str, str]) -> dict[str, str]:
    """Return the variables that a script sets, so that users can also run it by hand."""
    return {**environment.context.variables(), **{key: own[key] for key in own if key != 'PWD'}}


def _synchronised(task: AgentTask) -> bool:
    return bool(task.description['pre_exec_sync']) and task.processes > 1


def _launch_output(task: AgentTask) -> tuple[str, str]:
    output = os.path.join(task.sandbox, f'{task.uid}.launch.out')
    return output, output


def stdio(task: AgentTask) -> tuple[str, str]:
    """Return the paths of the files of standard output and error."""
    description = task.description
    return (os.path.join(task.sandbox, description['stdout'] or f'{task.uid}.out'),
            os.path.join(task.sandbox, description['stderr'] or f'{task.uid}.err'))
