"""The agent's record of a task: its description with defaults, and what the application gets to see at its end."""

from __future__ import annotations

import pytest

from rp_agent.task import AgentTask, Description, differing
from rp_api import states
from rp_api.description.task import TaskDescription


@pytest.fixture
def task() -> AgentTask:
    return AgentTask('task.000000', {'executable': '/bin/date', 'ranks': 2}, 'pilot.0000', '/sandbox')


def test_what_a_description_does_not_set_has_its_default() -> None:
    description = Description({'executable': '/bin/date', 'ranks': 2})
    for name, value in TaskDescription({'executable': '/bin/date', 'ranks': 2}).as_dict().items():
        assert description[name] == value
        assert description.get(name) == value
        assert description.get(name, 'another default') == value


def test_what_is_set_is_what_it_is() -> None:
    description = Description({'ranks': 2, 'cores_per_rank': 0, 'stdout': None})
    assert description['ranks'] == 2
    assert description['cores_per_rank'] == 0
    assert description['stdout'] is None
    assert description.get('stdout', 'x') is None


def test_what_is_no_attribute_is_a_key_error() -> None:
    description = Description({})
    with pytest.raises(KeyError):
        description['no_such_thing']
    assert description.get('no_such_thing') is None
    assert description.get('no_such_thing', 7) == 7


def test_asking_adds_nothing() -> None:
    description = Description({'ranks': 2})
    assert description['executable'] == ''
    assert description == {'ranks': 2}


def test_a_new_task_waits_to_be_staged(task: AgentTask) -> None:
    assert task.state == states.AGENT_STAGING_INPUT_PENDING
    assert (task.target_state, task.cancelled, task.slots) == (None, False, None)
    assert task.result() == {}


def test_tasks_share_nothing_that_changes() -> None:
    one, other = (AgentTask(uid, {}, 'p', '/') for uid in 'ab')
    one.output_files.append('x')
    one.extra['x'] = 1
    assert other.output_files == []
    assert other.extra == {}


def test_only_the_first_failure_counts(task: AgentTask) -> None:
    task.fail('first', 'detail')
    task.fail('second', 'other detail')
    assert (task.target_state, task.exception, task.exception_detail) == (states.FAILED, 'first', 'detail')


def test_a_cancelled_task_does_not_fail(task: AgentTask) -> None:
    task.target_state = states.CANCELED
    task.fail('late', 'detail')
    assert (task.target_state, task.exception) == (states.CANCELED, None)


def test_a_task_that_ran_well_can_still_fail(task: AgentTask) -> None:
    task.target_state = states.DONE
    task.fail('its output could not be staged', 'detail')
    assert task.target_state == states.FAILED


def test_the_result_has_what_is_not_the_default(task: AgentTask) -> None:
    task.exit_code = 0
    task.stdout = 'out'
    task.slots = [{'node_index': 0}]
    assert task.result() == {'exit_code': 0, 'stdout': 'out', 'slots': [{'node_index': 0}]}
    task.stderr = 'err'
    task.output_files = ['a', 'b']
    task.fail('RuntimeError', 'detail')
    assert task.result() == {'exit_code': 0, 'stdout': 'out', 'slots': [{'node_index': 0}], 'stderr': 'err',
                             'output_files': ['a', 'b'], 'exception': 'RuntimeError', 'exception_detail': 'detail',
                             'error': {'kind': 'internal'}}


def test_a_task_has_no_other_attributes(task: AgentTask) -> None:
    with pytest.raises(AttributeError):
        task.colour = 'red'  # type: ignore[attr-defined]


def test_tasks_that_share_a_description_are_looked_at_once() -> None:
    one, other = (AgentTask(uid, {'executable': uid}, 'pilot', '/sandbox') for uid in ('one', 'other'))
    like_one = AgentTask('like', one.description, 'pilot', '/sandbox')
    assert list(differing([one, like_one, other, like_one, one])) == [one, other, like_one]
    assert list(differing([])) == []
