"""Descriptions on a rank: complete, each with values of its own."""

from __future__ import annotations

import base64
import pickle
from typing import Any

import pytest

from rp_api import constants as c
from rp_api.description.python_task import PythonTask
from rp_api.description.task import TaskDescription
from rp_raptor.rank.modes import packed_call, python_task
from rp_raptor.rank.prepared import Prepared


def test_descriptions_are_complete_and_have_nothing_in_common() -> None:
    prepared = Prepared({'mode': c.TASK_FUNCTION, 'function': 'f', 'args': [[1]], 'metadata': {'a': {}}})
    first, second = prepared.description('task.1', {}), prepared.description('task.2', {'function': 'g'})
    assert first == TaskDescription().as_dict() | {
        'uid': 'task.1', 'mode': c.TASK_FUNCTION, 'function': 'f', 'args': [[1]], 'metadata': {'a': {}}}
    assert second == first | {'uid': 'task.2', 'function': 'g'}
    for value in first.values():
        if isinstance(value, list):
            value.append('changed')
        elif isinstance(value, dict):
            value['changed'] = True
    first['args'][0].append('changed')
    assert prepared.description('task.2', {'function': 'g'}) == second


def test_descriptions_that_are_only_read_have_values_that_functions_may_change() -> None:
    prepared = Prepared({'mode': c.TASK_FUNCTION, 'function': 'f', 'args': [[1]]})
    owns: list[dict[str, Any]] = [{}, {'kwargs': {'a': []}}]
    for own in owns:
        first, second = prepared.readable(own), prepared.readable(own)
        assert first == TaskDescription().as_dict() | {'mode': c.TASK_FUNCTION, 'function': 'f', 'args': [[1]]} | own
        first['args'][0].append('changed')
        assert second['args'] == [[1]]
    assert Prepared({'mode': c.TASK_EVAL}).readable({'code': '1'})['code'] == '1'


def test_users_see_packed_calls_as_text() -> None:
    one, other = PythonTask(keep, ([],)), PythonTask(keep, ([1],), {'a': 2})
    prepared = Prepared({'mode': c.TASK_FUNCTION, 'function': one.function, 'args': one.arguments})
    assert prepared.readable({'args': other.arguments})['args'] == other.arguments
    seen = prepared.description('task.1', {'args': other.arguments})
    assert (seen['function'], seen['args'], seen['kwargs']) == (other, [], {})
    assert prepared.description('task.2', {})['function'] == one


def test_packed_calls() -> None:
    task = PythonTask(keep, ([],), {'b': 2.0})
    for _ in range(2):
        func, args, kwargs = packed_call(task.function, task.arguments)
        assert kwargs == {'b': 2.0}
        assert func(*args) == [0]
    with pytest.raises(TypeError, match='which cannot be called'):
        packed_call(pickle.dumps(1), task.arguments)


@pytest.mark.parametrize(('given', 'in_sandbox', 'output'), [
    ({'mode': c.TASK_FUNCTION}, False, ()), ({'mode': c.TASK_PROC, 'stdout': 'x'}, True, ()),
    ({'mode': c.TASK_EVAL, 'stderr': 'x'}, False, ('', 'x')), ({'mode': c.TASK_EVAL, 'sandbox': 'x'}, True, ()),
    ({'mode': c.TASK_EVAL, 'output_staging': [{'source': 'x'}]}, True, ())])
def test_what_follows_from_a_description(given: dict[str, Any], in_sandbox: bool, output: tuple[str, ...]) -> None:
    prepared = Prepared(given)
    assert (prepared.in_sandbox, tuple(text or '' for text in prepared.output)) == (in_sandbox, output)


def test_environment_is_text() -> None:
    assert Prepared({'mode': c.TASK_EVAL, 'environment': {'A': 1}}).variables == {'A': '1'}


def keep(items: Any, **_: Any) -> Any:
    items.append(len(items))
    return items


def test_arguments_that_can_be_changed_are_restored_for_each_task() -> None:
    text = PythonTask(keep, ([],))
    for _ in range(2):
        found = python_task(text)
        assert found is not None
        func, args, kwargs = found
        assert func(*args, **kwargs) == [0]


def test_arguments_are_ones_own_list() -> None:
    text = PythonTask(keep, (1, 'a'), {'b': 2.0})
    first = python_task(text)
    assert first is not None
    first[1].append('changed')
    first[2]['changed'] = True
    second = python_task(text)
    assert second is not None
    assert second[1:] == ([1, 'a'], {'b': 2.0})


@pytest.mark.parametrize('text', ['keep', base64.b64encode(b'no pickle').decode()])
def test_other_texts_are_no_python_tasks(text: str) -> None:
    assert python_task(text) is None


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match='was not made by PythonTask'):
        python_task(base64.b64encode(pickle.dumps({'func': 1})).decode())
