"""Advanced profiling: what clones are made where, where they end, and that nobody outside hears of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline_support import Agent

from rp_agent.components.layout import read
from rp_agent.components.names import EXECUTING, STAGING_OUTPUT
from rp_agent.pipeline import task_copies as clones
from rp_agent.pipeline.task_copies import TaskCopy
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.errors import DescriptionError
from rp_api.platforms.agent_config import STAGES
from rp_profiling.read.profile import Row, read_profile

DOWN_TO_EXECUTION = {'ExecWorker': 0, 'watch_queue': 0, 'Watcher': 0}


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    made: list[Agent] = []

    def make(settings: dict[str, Any], **options: Any) -> Agent:
        made.append(Agent(tmp_path, settings, **{'profile': True} | options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def run(made: Agent, *tasks: AgentTask, clones: int) -> list[AgentTask]:
    """The tasks, when they are out and so many clones were dropped."""
    inside = made.pipeline._copies
    drop = inside.drop

    def dropping(entering: list[AgentTask]) -> list[AgentTask]:
        left = drop(entering)
        made._left([task for task in entering if isinstance(task, TaskCopy)])
        return left

    inside.drop = dropping   # type: ignore[method-assign,assignment]
    made.wanted = len(tasks) + clones
    made.pipeline.put(list(tasks))
    made.wait()
    assert len(made.out) == made.wanted
    return [task for task in made.out if not isinstance(task, TaskCopy)]


def rows_of(base: Path, component: str) -> list[Row]:
    return [row for path in base.glob(f'{component}.*.prof') for row in read_profile(path)]


def events(base: Path, component: str) -> Counter[str]:
    """How often a component has recorded each event of clones."""
    return Counter(row.event for row in rows_of(base, component) if '.clone.' in row.uid)


@pytest.mark.parametrize('workers', [1, 2])
def test_the_executor_alone_is_under_load(agent: Callable[..., Agent], tmp_path: Path, workers: int) -> None:
    """As the documentation of RADICAL-Pilot has it."""
    made = agent({'number_of_workers': {'ExecWorker': workers}, 'blowup_factor': {'execution_queue': 10},
                  'drop_clones': {'execution_queue': 1} | DOWN_TO_EXECUTION})
    tasks = run(made, *(made.task(f'task.00000{number}', arguments=[f'task.00000{number}']) for number in range(3)),
                clones=27)
    made.close()
    assert [task.target_state for task in tasks] == [states.DONE] * 3
    assert sorted(made.states) == ['task.000000', 'task.000001', 'task.000002'], 'somebody has heard of a clone'
    executed = events(tmp_path, 'agent_executing')
    assert executed['rank_start'] == executed['rank_stop'] == executed['task_run_stop'] == 27
    scheduled = events(tmp_path, 'agent_scheduling')
    assert scheduled == {'add clone': 27, 'drop clone': 27}, 'clones have the slots of their task'
    assert events(tmp_path, 'agent_staging_input') + events(tmp_path, 'agent_staging_output') == {}
    uids = {row.uid for row in rows_of(tmp_path, 'agent_executing')}
    assert {f'task.000001.clone.{number:04}' for number in range(1, 10)} < uids


def test_clones_that_are_scheduled_have_slots_of_their_own(agent: Callable[..., Agent], tmp_path: Path) -> None:
    made = agent({'blowup_factor': {'Scheduler': 4}, 'drop_clones': {'execution_queue': 0} | DOWN_TO_EXECUTION})
    run(made, made.task(), made.task('task.000001'), clones=6)
    made.close()
    scheduled = events(tmp_path, 'agent_scheduling')
    assert {event: count for event, count in scheduled.items() if event != 'schedule_fail'} == {
        'add clone': 6, 'advance': 12, 'schedule_try': 6, 'schedule_ok': 6, 'unschedule_start': 6,
        'unschedule_stop': 6, 'drop clone': 6}
    assert events(tmp_path, 'agent_executing')['rank_start'] == 6


def test_slots_of_clones_that_are_dropped_before_they_run_are_free_again(agent: Callable[..., Agent],
                                                                         tmp_path: Path) -> None:
    made = agent({'blowup_factor': {'Scheduler': 8}}, cores=1)
    tasks = run(made, *(made.task(f'task.00000{number}') for number in range(3)), clones=21)
    made.close()
    assert [task.target_state for task in tasks] == [states.DONE] * 3
    scheduled = events(tmp_path, 'agent_scheduling')
    assert scheduled['schedule_ok'] == scheduled['unschedule_stop'] == scheduled['drop clone'] == 21
    assert events(tmp_path, 'agent_executing') == {}


def test_clones_of_the_first_and_of_the_last_component(agent: Callable[..., Agent], tmp_path: Path) -> None:
    made = agent({'blowup_factor': {'StageinWorker': 3, 'StageoutWorker': 2}})
    run(made, made.task(), made.task('task.000001'), clones=6)
    made.close()
    assert events(tmp_path, 'agent_staging_input')['advance'] == 2 * 4
    assert events(tmp_path, 'agent_staging_output')['advance'] == 2 * 2
    assert events(tmp_path, 'agent_scheduling') == {'add clone': 4 + 2, 'drop clone': 4 + 2}


def test_without_profiles_there_are_none(agent: Callable[..., Agent], tmp_path: Path,
                                         caplog: pytest.LogCaptureFixture) -> None:
    made = agent({'blowup_factor': {'ExecWorker': 3}}, profile=False)
    assert [task.uid for task in made.run(made.task())] == ['task.000000']
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ['task.000000']
    assert 'blowup_factor has no effect' in caplog.text


def test_a_pilot_that_ends_takes_its_clones_along(agent: Callable[..., Agent], tmp_path: Path) -> None:
    made = agent({'blowup_factor': {'ExecWorker': 3}, 'drop_clones': DOWN_TO_EXECUTION})
    made.on_state = lambda task, state: made.loop.call_soon(made.stop) if state == states.AGENT_EXECUTING else None
    (task,) = made.run(made.task(executable='/bin/sleep', arguments=['100']))
    assert task.target_state == states.CANCELED
    made.close()
    assert events(tmp_path, 'agent_executing')['rank_stop'] == 2


@pytest.mark.parametrize(('settings', 'words'), [
    ({'blowup_factor': {'execution': 2}}, 'blowup_factor.execution is not known, allowed are: Agent, stagein_queue'),
    ({'blowup_factor': 2}, 'blowup_factor is 2, allowed: a dict'),
    ({'blowup_factor': {'ExecWorker': 0}}, 'is 0, allowed: a whole number from 1 to 1024; an application would wait'),
    ({'blowup_factor': {'ExecWorker': -1}}, 'is -1, allowed: a whole number from 1'),
    ({'blowup_factor': {'ExecWorker': 2.5}}, 'is 2.5, allowed: a whole number'),
    ({'blowup_factor': {'ExecWorker': 33, 'Scheduler': 33}}, 'makes 1089 tasks of one, allowed: at most 1024'),
    ({'blowup_factor': {'Watcher': 2}}, 'a running task cannot be cloned'),
    ({'blowup_factor': {'UpdateWorker': 2}}, 'clones do not pass this stage'),
    ({'drop_clones': {'update_queue': 0}}, 'clones do not leave the agent'),
    ({'drop_clones': {'ExecWorker': 2}}, 'an application would wait for ever'),
    ({'drop_clones': {'ExecWorker': True}}, 'is True, allowed: a whole number from 0 to 1'),
])
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], words: str) -> None:
    read(settings)   # which leaves it to `clones`
    with pytest.raises(DescriptionError, match='agent configuration') as refused:
        clones.plan(settings)
    assert words in str(refused.value)


def test_the_example_of_the_documentation_is_understood() -> None:
    assert len(STAGES) == 13
    ones = dict.fromkeys(STAGES, 1)
    assert clones.plan({'blowup_factor': ones, 'drop_clones': ones}) == {}
    found = clones.plan({'blowup_factor': ones | {'execution_queue': 10}, 'drop_clones': ones | DOWN_TO_EXECUTION})
    assert found[EXECUTING] == [(1, 10), (0, 1)]
    assert found[STAGING_OUTPUT] == [(1, 1), (1, 1)]
