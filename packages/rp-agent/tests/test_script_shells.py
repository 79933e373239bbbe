"""The shell that runs the commands of tasks, in all kinds of launches."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from executor_support import Harness, a_context, a_task
from launcher_support import launchers

from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.executor.launching.plan import plan, variables_of
from rp_agent.executor.shell import ShellExecutor
from rp_agent.lookup import LaunchRefused
from rp_agent.task import AgentTask
from rp_api import states
from rp_profiling.write.tracer import Tracer

needs_bash = pytest.mark.skipif('CI' not in os.environ and shutil.which('bash') is None, reason='there is no bash')

SETUP = 'export FROM_SETUP=yes; words=(one two); [[ $FROM_SETUP == y* ]] || return 3'

TELL = 'echo ${words[1]} $FROM_SETUP ${KSH_VERSION:+ksh} >>$RP_TASK_SANDBOX/'

SCRIPTED: dict[str, dict[str, Any]] = {
    'exec': {'pre_exec': ['source ../setup.sh', f'{TELL}told'], 'post_exec': [f'[[ -n $FROM_SETUP ]] && {TELL}told']},
    'launch': {'pre_launch': ['source ../setup.sh', f'{TELL}told'], 'pre_exec': [f'[[ 1 == 1 ]] && {TELL}told'],
               'post_launch': [f'[[ -n $FROM_SETUP ]] && {TELL}told'],
               'environment': {'words': '', 'FROM_SETUP': 'no'}},
    'argument': {'executable': 'bash', 'arguments': ['-c', r'echo two \$0 >told', '$([[ a == a* ]] && echo yes)']},
}
SCRIPTED_TELLS = {'exec': ['two yes', 'two yes'], 'launch': ['two yes', 'no', 'two yes'], 'argument': ['two yes']}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def a_harness(stack: ExitStack, path: Path, **arguments: Any) -> Harness:
    (path / 'setup.sh').write_text(SETUP)
    harness = Harness(path, **arguments)
    stack.callback(harness.close)
    return harness


def told(task: AgentTask) -> list[str]:
    return [line.strip() for line in Path(task.sandbox, 'told').read_text().splitlines()]


@needs_bash
@pytest.mark.parametrize('kind', SCRIPTED)
def test_commands_may_be_those_of_bash(stack: ExitStack, tmp_path: Path, kind: str) -> None:
    task = a_harness(stack, tmp_path).run_one(**SCRIPTED[kind])
    assert (task.target_state, task.exception) == (states.DONE, None)
    assert told(task) == SCRIPTED_TELLS[kind]


@needs_bash
def test_the_executor_shell_runs_scripts_in_bash(stack: ExitStack, tmp_path: Path) -> None:
    harness = a_harness(stack, tmp_path)
    harness.executor.close()
    made = ShellExecutor('agent_executing.0000', Tracer(None, 'x'), harness.loop, harness.context)
    made.output, made.advanced = harness._take, lambda tasks, state: None
    harness.executor = made
    harness.run(*(harness.task(kind, **description) for kind, description in SCRIPTED.items()))
    assert {task.uid: told(task) for task in harness.out} == SCRIPTED_TELLS


@needs_bash
@pytest.mark.parametrize('program', [True, False])
def test_ranks_of_a_launcher_run_scripts_in_bash(stack: ExitStack, tmp_path: Path, program: bool) -> None:
    if not program:   # a directory takes the place of `rp-rank`
        (tmp_path / 'rp-rank').mkdir()
    harness = a_harness(stack, tmp_path, launchers=stack.enter_context(launchers(tmp_path)))
    task = harness.run_one(**SCRIPTED['exec'], ranks=2, pre_launch=['[[ 1 == 1 ]]'])
    assert (task.target_state, task.exception) == (states.DONE, None)
    assert told(task) == ['two yes'] * 4


def test_commands_run_in_sh_on_a_host_without_bash(stack: ExitStack, tmp_path: Path) -> None:
    (tmp_path / 'bin').mkdir()
    harness = a_harness(stack, tmp_path, PATH=str(tmp_path / 'bin'))
    task = harness.run_one(pre_exec=['echo "${BASH_VERSION:-sh}" >told'])
    sh = os.path.basename(os.path.realpath('/bin/sh'))
    assert (task.target_state, task.exception) == (states.DONE, None)
    assert told(task) == ['sh'] or sh == 'bash'
    assert Path(task.sandbox, 'task.000000.exec.sh').read_text().startswith('#!/bin/sh\n')


@pytest.mark.parametrize(('name', 'program'), [('ksh', 'ksh'), ('ash', 'busybox')])
def test_a_platform_names_another_shell(stack: ExitStack, tmp_path: Path, name: str, program: str) -> None:
    found = shutil.which(program)
    if found is None:
        (pytest.fail if 'CI' in os.environ else pytest.skip)(f'there is no {program}')
    (tmp_path / 'bin').mkdir()
    (tmp_path / 'bin' / name).symlink_to(found)
    harness = a_harness(stack, tmp_path, PATH=f'{tmp_path}/bin:/usr/bin:/bin', changes={'shell': name},
                        launchers=stack.enter_context(launchers(tmp_path)))
    tell = 'readlink /proc/$$/exe >>$RP_TASK_SANDBOX/told'
    commands = {'pre_launch': [tell], 'pre_exec': [tell], 'post_exec': [tell], 'post_launch': [tell]}
    harness.run(harness.task('plain'), harness.task('script', **commands),
                harness.task('ranks', ranks=2, pre_exec_sync=True, **commands))
    assert {task.target_state for task in harness.out} == {states.DONE}
    counts = {task.uid: told(task) for task in harness.out if task.uid != 'plain'}
    shell = os.path.realpath(found)
    assert counts == {'script': [shell] * 4, 'ranks': [shell] * 6}


def test_tasks_with_commands_need_the_shell_of_the_platform(stack: ExitStack, tmp_path: Path) -> None:
    harness = a_harness(stack, tmp_path, changes={'shell': 'none-such'},
                        launchers=stack.enter_context(launchers(tmp_path)))
    harness.run(harness.task('plain'), harness.task('ranks', ranks=2), harness.task('script', pre_exec=['true']))
    ended = {task.uid: (task.target_state, task.exception or '') for task in harness.out}
    assert ended['plain'] == ended['ranks'] == (states.DONE, '')
    assert ended['script'][0] == states.FAILED
    assert f"shell 'none-such' of the platform definition is not on {os.uname().nodename}" in ended['script'][1]


def test_the_shell_is_looked_for_once(tmp_path: Path) -> None:
    shell = tmp_path / 'bash'
    shell.symlink_to('/bin/sh')
    environment = TaskEnvironment(a_context(PATH=str(tmp_path)))
    task = a_task(pre_exec=['true'])
    assert plan(task, environment).processes[0].path == str(shell)
    shell.unlink()
    assert plan(task, environment).processes[0].path == str(shell)
    with pytest.raises(LaunchRefused):
        plan(task, TaskEnvironment(a_context()._replace(shell='none-such')))


def test_workers_learn_the_shell_of_the_platform() -> None:
    worker = a_task(mode='raptor.worker')
    assert variables_of(worker, TaskEnvironment(a_context()._replace(shell='mine')))['RP_SHELL'] == 'mine'
    assert 'RP_SHELL' not in variables_of(worker, TaskEnvironment(a_context()))
