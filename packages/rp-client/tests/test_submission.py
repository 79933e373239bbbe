"""What becomes of descriptions when they are submitted: whatever comes before one, the same as if it were alone."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api import constants as c
from rp_api.description.python_task import PythonTask
from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError
from rp_api.wire import codec
from rp_client.core.task import TaskRecord
from rp_client.flow.submission import Packing

FUNCTION = PythonTask(len, ('abc',))


def packed(packing: Packing, description: TaskDescription, uid: str = 'task.000000') -> Any:
    """What the description is taken for, or why it is refused."""
    try:
        found = TaskRecord(uid, *packing.pack(description, uid)).sparse()
    except ValueError as error:
        return str(error)
    # a value that another one has replaced may be the default
    sparse = TaskDescription(found).sparse()
    for directive in sparse.get('input_staging', ()):
        del directive['uid']
    return sparse


VALUES: dict[str, Any] = {
    'mode': st.sampled_from([c.TASK_EXECUTABLE, c.TASK_FUNCTION, c.TASK_EVAL, 'no.mode']),
    'executable': st.sampled_from(['/bin/true', 'date', '', None]),
    'function': st.sampled_from(['f', FUNCTION, PythonTask(len, ('de',)), PythonTask(max, (1, 2)), len, max, '']),
    'args': st.sampled_from([[], [1], [2, 'b'], [{3}], (2,), None]),
    'kwargs': st.sampled_from([{}, {'key': 1}]),
    'code': st.sampled_from(['1 + 1', '2 + 2', '']),
    'arguments': st.sampled_from([[], ['a'], 'b', [1]]),
    'raptor_id': st.sampled_from(['', '*', 'raptor.0000']),
    'ranks': st.sampled_from([1, 2, '3', 0, 'many', 2.0, True]),
    'cpu_processes': st.sampled_from([0, 2]),
    'uid': st.sampled_from(['', 'mine', 'a/b']),
    'input_staging': st.sampled_from([[], ['a > b'], 'a > b']),
    'named_env': st.sampled_from(['', 'env']),
    'no_such_attribute': st.just(1),
}
ALWAYS = ('executable', 'raptor_id')


@st.composite
def descriptions(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Some descriptions, many of which set the same attributes."""
    some = st.lists(st.sampled_from([name for name in VALUES if name != 'no_such_attribute']), max_size=3, unique=True)
    sets = draw(st.lists(some, min_size=1, max_size=2))
    sets += draw(st.lists(st.just(['no_such_attribute']), max_size=1))
    return [{name: draw(VALUES[name]) for name in dict.fromkeys([*ALWAYS, *draw(st.sampled_from(sets))])}
            for _ in range(draw(st.integers(1, 6)))]


@pytest.mark.filterwarnings('ignore:.* is deprecated, use :DeprecationWarning')
@given(descriptions())
def test_as_if_each_were_alone(given: list[dict[str, Any]]) -> None:
    packing = Packing()
    for values in given:
        one, other = TaskDescription(dict(values)), TaskDescription(dict(values))
        assert packed(packing, one) == packed(Packing(), other)
        assert dict(one) == dict(other), 'and is cast in the same way'


def test_like_descriptions_are_packed_once() -> None:
    packing = Packing()
    made = [packing.pack(TaskDescription({'mode': c.TASK_FUNCTION, 'function': FUNCTION, 'raptor_id': '*'}), 'task')
            for _ in range(3)]
    assert len({id(common) for common, _ in made}) == 1
    assert len({own for _, own in made}) == 1


@pytest.mark.parametrize('calls', [
    [{'function': PythonTask(len, ('abc' * number,))} for number in range(3)],
    [{'function': len, 'args': ['abc' * number]} for number in range(3)],
    [{'function': len, 'args': ['abc' * number], 'kwargs': {'key': 1}} for number in range(3)]])
def test_calls_have_their_function_in_common(calls: list[dict[str, Any]]) -> None:
    packing = Packing('raptor.0000')
    made = [packing.pack(TaskDescription({'mode': c.TASK_FUNCTION, **call}), 'task') for call in calls]
    assert len({id(common) for common, _ in made}) == 1
    found = [TaskRecord('task', common, own).sparse() for common, own in made]
    assert [sparse['function'] for sparse in found] == [FUNCTION.function] * 3
    assert [pickle.loads(sparse['args']) for sparse in found] == [
        {'args': ['abc' * number], 'kwargs': calls[0].get('kwargs', {})} for number in range(3)]
    assert [codec.unpack(own).keys() for _, own in made[1:]] == [{'args'}] * 2


def test_only_what_differs_is_packed_for_each() -> None:
    packing = Packing()
    made = [packing.pack(TaskDescription({'executable': 'date', 'arguments': [str(number)], 'uid': f't.{number}'}), 't')
            for number in range(3)]
    assert len({id(common) for common, _ in made}) == 1
    assert [TaskRecord('t', common, own).sparse() for common, own in made] == [
        {'executable': 'date', 'arguments': [str(number)]} for number in range(3)]


def test_size_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('rp_client.flow.submission.DESCRIPTION_MAX_BYTES', 100)
    packing = Packing()
    packing.pack(TaskDescription({'executable': 'a' * 60, 'name': ''}), 'task.1')
    with pytest.raises(DescriptionError, match='at most 100 are allowed'):
        packing.pack(TaskDescription({'executable': 'a' * 60, 'name': 'b' * 60}), 'task.2')


def test_a_default_replaces_what_others_have() -> None:
    packing = Packing()
    packing.pack(TaskDescription({'executable': 'a', 'ranks': 3}), 'task.1')
    task = TaskRecord('task.2', *packing.pack(TaskDescription({'executable': 'a', 'ranks': 1}), 'task.2'))
    assert TaskDescription(task.sparse()).ranks == 1
