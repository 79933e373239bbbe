"""What a platform definition adds to every task: commands and variables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pipeline_support import Agent

from rp_agent.pipeline.task_commands import TaskCommands
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.platforms.definition import ResourceConfig

PLATFORM: dict[str, Any] = {
    'task_pre_launch': ['export LAUNCHED=yes; echo pre_launch >>log'],
    'task_pre_exec': ['echo pre_exec $LAUNCHED $SITE $OWN >>log', 'export READY=yes'],
    'task_post_exec': ['echo post_exec >>log'],
    'task_post_launch': ['echo post_launch >>log'],
    'task_environment': {'SITE': 'of the platform', 'HOME': '/of the platform'},
}


@pytest.mark.parametrize('place', [{}, {'components': {'agent_executing': {'target': 'process'}}}])
def test_every_task_gets_them(tmp_path: Path, place: dict[str, Any]) -> None:
    agent = Agent(tmp_path, place, **PLATFORM)
    own = agent.task('own', executable='/bin/sh', arguments=['-c', r'echo program \$READY \$HOME >>log'],
                     pre_exec=['echo mine >>log'], post_exec=['echo mine >>log'],
                     environment={'OWN': 'x', 'HOME': '/mine'})
    agent.run(agent.task('plain'), own)
    agent.close()
    assert {task.target_state for task in agent.out} == {states.DONE}
    assert (tmp_path / 'plain' / 'log').read_text().splitlines() == [
        'pre_launch', 'pre_exec yes of the platform', 'post_exec', 'post_launch']
    assert (tmp_path / 'own' / 'log').read_text().splitlines() == [
        'pre_launch', 'mine', 'pre_exec yes of the platform x', 'program yes /mine', 'mine', 'post_exec', 'post_launch']


def test_variables_alone_need_no_script(tmp_path: Path) -> None:
    agent = Agent(tmp_path, task_environment={'SITE': '$HOME; `x`'})
    (task,) = agent.run(agent.task(executable='printenv', arguments=['SITE']))
    agent.close()
    assert task.stdout == '$HOME; `x`\n'
    assert not list((tmp_path / task.uid).glob('*.sh'))


def test_a_failing_command_is_named(tmp_path: Path) -> None:
    agent = Agent(tmp_path, task_pre_exec=['false of the platform'])
    (task,) = agent.run(agent.task())
    agent.close()
    assert task.target_state == states.FAILED
    assert 'pre_exec failed with exit code 1: false of the platform' in str(task.stderr)


def test_usual_platforms_have_no_commands() -> None:
    platforms: list[Mapping[str, Any]] = [ResourceConfig(resource_manager='FORK'), {}]
    assert [TaskCommands(platform).added for platform in platforms] == [{}, {}]


def test_a_nice_task_is_nice_before_its_own_commands() -> None:
    task = AgentTask('t', {'executable': 'x', 'nice': 5, 'pre_exec': ['mine']}, 'pilot.0000', '')
    TaskCommands({'task_pre_exec': ['theirs']}).add(task)
    first, *others = task.description['pre_exec']
    assert 'renice -n 5 -p $$' in first
    assert others == ['mine', 'theirs']


def test_tasks_do_not_share_commands() -> None:
    shared = ['mine']
    tasks = [AgentTask(uid, {'executable': 'x', 'pre_exec': shared}, 'pilot.0000', '') for uid in ('one', 'two')]
    for task in tasks:
        TaskCommands({'task_pre_exec': ['theirs']}).add(task)
    assert [task.description['pre_exec'] for task in tasks] == [['mine', 'theirs']] * 2
    assert shared == ['mine']


def test_tasks_that_run_again_have_the_commands_once() -> None:
    task = AgentTask('t', {'pre_exec': ['mine']}, 'pilot.0000', '/nowhere')
    commands = TaskCommands({'task_pre_exec': ['added']})
    commands.add(task)
    commands.add(task)
    assert task.description['pre_exec'] == ['mine', 'added']
