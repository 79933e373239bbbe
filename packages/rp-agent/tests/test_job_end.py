"""What becomes of tasks at the end of their pilot's job, and which failures wait for a sign of it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from rp_agent.pipeline.job_end import DUE, PilotEnd, TaskRun, Verdict, exited, verdict
from rp_agent.task import EXITED, HISTORY, UNSTARTED, AgentTask
from rp_api import states
from rp_api.failures.retry_rules import RESTARTS

FLAGS = [False, True]
RUNS = [TaskRun(state, *flags) for state in (states.DONE, states.FAILED, states.CANCELED)
        for flags in product(FLAGS, repeat=6)]


def test_all_runs_after_the_first_sign_of_the_end() -> None:
    for run in RUNS:
        found = verdict(run, ending=True, left=1000.0)
        if run.cancelled:
            assert found is Verdict.OWN, run
        elif not run.started:
            assert found is (Verdict.RETURNED if run.movable else Verdict.ENDED), run
        elif run.restartable:   # whatever its exit code is
            assert found is (Verdict.LOST if run.movable else Verdict.ENDED), run
        else:
            assert found is (Verdict.OWN if run.state == states.DONE else Verdict.ENDED), run


@pytest.mark.parametrize('left', [0.0, DUE, DUE + 1, 1e6])
def test_all_runs_before_a_sign_of_the_end(left: float) -> None:
    for run in RUNS:
        late = (run.restartable and run.state == states.FAILED and not run.cancelled
                and (left <= DUE or run.killed or run.last))
        assert verdict(run, ending=False, left=left) is (Verdict.LATE if late else Verdict.OWN), run


def an_end(state: str = states.FAILED, **values: Any) -> PilotEnd:
    return PilotEnd('pilot.1', state, 'was told to end by a signal', **values)


def a_task(state: str = states.AGENT_EXECUTING, end: str | None = states.CANCELED, code: int | None = None,
           mark: str = EXITED, **description: Any) -> AgentTask:
    task = AgentTask('task.1', description, 'pilot.1', '/sandbox')
    task.state, task.exit_code = state, code
    if end == states.FAILED:
        task.fail('RuntimeError()', f'exit code: {code}', 'exit', sentence=f'exit code: {code}')
    else:
        task.target_state = end
    if mark:
        task.extra[mark] = True
    return task


@pytest.mark.parametrize('description', [{'restartable': True}, {'retries': 2}])
@pytest.mark.parametrize(('end', 'code'), [
    (states.DONE, 0), (states.FAILED, 9), (states.FAILED, -15), (states.CANCELED, None)])
@pytest.mark.parametrize('state', [states.FAILED, states.DONE, states.CANCELED])
def test_every_exit_of_a_restartable_task_is_lost(description: dict[str, Any], end: str, code: int | None,
                                                  state: str) -> None:
    task = a_task(end=end, code=code, **description)
    assert exited(task)
    own, returned = an_end(state).settle([task])
    assert (own, returned) == ([], [task])
    (entry,) = task.extra[HISTORY]
    assert (entry['kind'], entry['lost'], entry['reason'], entry['attempt']) == (
        'pilot', 'end', 'pilot.1 was told to end by a signal', 1)


@pytest.mark.parametrize(('end', 'code'), [(states.FAILED, 9), (states.CANCELED, None)])
def test_other_tasks_fail_with_the_reason_of_the_end(end: str, code: int | None) -> None:
    """A failure in answer to the end is no failure of its own; `retry_on` can leave losses out."""
    descriptions: list[dict[str, Any]] = [{}, {'retries': 1, 'retry_on': ['exit']}]
    for description in descriptions:
        task = a_task(end=end, code=code, **description)
        assert not exited(task)   # what it has written is read
        assert an_end(states.DONE).settle([task]) == ([task], [])
        assert (task.target_state, task.error, task.exit_code) == (
            states.FAILED, {'kind': 'pilot', 'sentence': 'pilot.1 was told to end by a signal'}, code)


def test_results_that_came_before_count() -> None:
    done, failed, staged = (a_task(end=states.DONE, code=0), a_task(states.AGENT_STAGING_OUTPUT, states.FAILED, 3, ''),
                            a_task(states.AGENT_STAGING_OUTPUT, states.DONE, 0, '', restartable=True))
    assert not exited(done)
    assert an_end().settle([done, failed, staged]) == ([done, failed, staged], [])
    assert [task.target_state for task in (done, failed, staged)] == [states.DONE, states.FAILED, states.DONE]
    assert failed.error == {'kind': 'exit', 'sentence': 'exit code: 3'}


def test_what_has_not_started_is_returned_without_an_attempt() -> None:
    tasks = [a_task(states.AGENT_SCHEDULING, mark=''), a_task(states.AGENT_STAGING_INPUT, mark=''),
             a_task(states.AGENT_EXECUTING, mark=UNSTARTED)]
    assert an_end().settle(tasks) == ([], tasks)
    assert not any(HISTORY in task.extra for task in tasks)


def test_a_task_for_this_pilot_ends_with_it() -> None:
    tasks = [a_task(states.AGENT_SCHEDULING, mark='', pilot='pilot.1'), a_task(restartable=True, pilot='pilot.1')]
    assert an_end().settle(tasks) == (tasks, [])
    assert {task.target_state for task in tasks} == {states.FAILED}


@pytest.mark.parametrize('state', [states.CANCELED, states.FAILED])
def test_a_user_who_ends_the_pilot_ends_its_tasks(state: str) -> None:
    task = a_task(restartable=True)
    assert an_end(state, by_user=True).settle([task]) == ([task], [])
    assert (task.target_state, HISTORY in task.extra) == (state, False)


def test_a_task_that_a_user_has_cancelled() -> None:
    task = a_task(restartable=True)
    assert an_end(cancelled=['task.1']).settle([task]) == ([task], [])
    assert task.target_state == states.CANCELED


def test_the_job_may_be_started_again() -> None:
    """What it may run again stays with it, also if it is for this pilot alone."""
    tasks = [a_task(restartable=True, pilot='pilot.1'), a_task(mode='task.service'),
             a_task(states.AGENT_SCHEDULING, mark='', pilot='pilot.1')]
    assert an_end(again=True).settle(tasks) == ([], tasks)


def test_the_last_node_is_lost() -> None:
    """Tasks that were running there may be the reason, which those of other ends are not."""
    task = a_task(restartable=True, end=None)
    task.fail('RuntimeError()', 'node n1 is lost', 'node', sentence='node n1 is lost')
    for number in range(RESTARTS - 1):
        assert an_end(by_death=True).settle([task]) == ([], [task])
        assert (task.extra[HISTORY][number]['kind'], task.extra[HISTORY][number]['lost']) == ('node', 'death')
        task.clear()
        task.extra[EXITED] = True
        task.fail('RuntimeError()', 'node n1 is lost', 'node', sentence='node n1 is lost')
    assert an_end(by_death=True).settle([task]) == ([task], [])
    assert (task.target_state, task.error and task.error['lost']) == (states.FAILED, 'death')
    assert 'task.1 is suspected of causing the loss' in str(task.exception)
