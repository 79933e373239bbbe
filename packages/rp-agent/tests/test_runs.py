"""Which tasks of a pilot whose job is started again may run in the next run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rp_agent.pipeline.runs import Runs
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.coordination.contract import Update
from rp_api.coordination.spool_file import SpoolFile


def config(path: Path, **values: Any) -> dict[str, Any]:
    return {'pilot': 'pilot.0000', 'pilot_sandbox': str(path), 'agent_uid': 'agent_0', **values}


def again(path: Path) -> Runs:
    return Runs(config(path, earlier={'host': 'n1', 'time': 1.0}))


def task(uid: str, **description: Any) -> AgentTask:
    return AgentTask(uid, {'executable': '/bin/true', **description}, 'pilot.0000', f'/sandbox/{uid}')


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """The sandbox of a pilot that has started two tasks in its first run."""
    runs = Runs(config(tmp_path))
    runs.note([task('a'), task('b', restartable=True)])
    runs.close()
    return tmp_path


def test_what_had_started_does_not_run_twice(first: Path) -> None:
    runs = again(first)
    tasks = [task('a'), task('b', restartable=True), task('c')]
    for each in tasks:
        runs.take(each)
    assert [each.target_state for each in tasks] == [states.FAILED, None, None]
    assert 'the job of pilot.0000 was started again after a had started' in str(tasks[0].exception)
    assert 'its agent was on n1 before' in str(tasks[0].exception_detail)
    runs.close()


def test_retries_for_lost_pilots_let_a_task_run_again(first: Path) -> None:
    runs = again(first)
    for description, expected in (({'retries': 1}, None), ({'retries': 1, 'retry_on': ['exit']}, states.FAILED)):
        one = task('a', **description)
        runs.take(one)
        assert one.target_state == expected
    runs.close()


def test_tasks_that_were_not_noted_completely_had_not_started(first: Path) -> None:
    with open(first / 'agent_0.started', 'ab') as file:
        file.write(b'["c", "d')
    runs = again(first)
    late = task('c')
    runs.take(late)
    assert [late.target_state] == [None]
    runs.note([late])
    runs.close()
    third = again(first)
    third.take(late)
    assert late.target_state == states.FAILED
    third.close()


def test_another_pilot_in_the_same_directory_has_started_nothing(first: Path) -> None:
    runs = Runs(config(first))
    fresh = task('a')
    runs.take(fresh)
    assert fresh.target_state is None
    runs.close()


def test_results_that_were_not_delivered(first: Path) -> None:
    file = SpoolFile(first / 'agent_0.updates')
    file.append([Update('a', states.TMGR_STAGING_OUTPUT_PENDING, {'exit_code': 0})])
    file.close()
    runs = again(first)
    assert [(update.uid, update.state) for update in runs.results] == [('a', states.TMGR_STAGING_OUTPUT_PENDING)]
    runs.close()
