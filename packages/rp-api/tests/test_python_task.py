"""Packed calls: the function once for each version of it, the same call as text."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from rp_api import pickles
from rp_api.by_value import pickler, versions
from rp_api.description.python_task import PythonTask, pack_arguments, pack_call, pythontask, shown_call, unpacked_call
from rp_api.errors import DeserializationError
from rp_api.functions import deserialize_obj

K = 0


def scripted(code: str) -> dict[str, Any]:
    """The names of a script, whose functions travel by value."""
    names: dict[str, Any] = {'__name__': '__main__'}
    exec(code, names)
    return names


def called(function: bytes, arguments: bytes) -> Any:
    """The value of a packed call."""
    func: Any = deserialize_obj(function)
    found: Any = pickles.restore(arguments, 'the arguments')
    return func(*found['args'], **found['kwargs'])


@pytest.mark.parametrize('length', range(6))
def test_the_text_is_the_same_call(length: int) -> None:
    """Whatever the number of bytes in front of the function."""
    task = PythonTask(max, ('a' * length, ''), {'key': len})
    func, args, kwargs = PythonTask.get_func_attr(str(task))
    assert func(*args, **kwargs) == called(task.function, task.arguments) == 'a' * length


def test_code_of_another_version_is_recognised_in_text_and_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    names = scripted('def f(g): return g(1)')
    tasks = [PythonTask(names['f'], (abs,)), PythonTask(map, (names['f'],)), PythonTask(names['f'], (names['f'],))]
    monkeypatch.setattr(pickles, 'PYTHON', '3.0')
    for task in tasks:
        with pytest.raises(DeserializationError, match='code of Python 3'):
            PythonTask.get_func_attr(str(task))
    with pytest.raises(DeserializationError, match='code of Python 3'):
        called(tasks[0].function, tasks[0].arguments)
    with pytest.raises(DeserializationError, match='code of Python 3'):
        called(tasks[1].function, tasks[1].arguments)


@pytest.mark.parametrize('again', [copy.copy, copy.deepcopy, lambda task: pickle.loads(pickle.dumps(task))])
def test_a_copy_is_the_same_call(again: Callable[[Any], Any]) -> None:
    task = PythonTask(max, (1, 2))
    copied = again(task)
    assert copied == task
    assert (copied.function, copied.arguments) == (task.function, task.arguments)


def test_a_function_is_pickled_once_for_each_version_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled: list[Any] = []

    def noted(func: Any) -> bytes:
        pickled.append(func)
        return pickler.dumps(func)

    monkeypatch.setattr(versions, 'dumps', noted)
    names = scripted('K = 0\ndef helper(): return K\ndef f(x): return x, helper()')
    call = pythontask(names['f'])
    tasks = []
    for names['K'] in (1, 1, 2, 2, 1):
        tasks += [call(number) for number in range(3)]
    assert len(pickled) == 3
    assert [called(task.function, task.arguments)[1] for task in tasks] == [1] * 6 + [2] * 6 + [1] * 3
    assert len({id(task.function) for task in tasks[:6]}) == 1


@pytest.mark.parametrize('code', [
    'def make():\n items = [1]\n return lambda: list(items), lambda: items.append(2)',
    'class Counter:\n n = 1\n def __call__(self): return self.n\n'
    'def make():\n c = Counter()\n return c, lambda: setattr(c, "n", 2)'])
def test_closures_and_objects_travel_as_they_are(code: str) -> None:
    func, change = scripted(code)['make']()
    before = PythonTask(func)
    change()
    after = PythonTask(func)
    assert called(before.function, before.arguments) in (1, [1])
    assert called(after.function, after.arguments) in (2, [1, 2])


def test_functions_that_are_gone_are_forgotten() -> None:
    for _ in range(3000):
        PythonTask(lambda: None)
    names = scripted('def make():\n def again(): return again\n return again')
    for _ in range(3000):
        PythonTask(names['make']())
    assert len(versions._latest) <= versions.MAX_FUNCTIONS


def test_arguments_of_modules_that_are_sent_along() -> None:
    import json.decoder

    cloudpickle.register_pickle_by_value(json.decoder)
    try:
        assert b'CodeType' in pack_arguments((json.decoder.JSONDecodeError,), {})
    finally:
        cloudpickle.unregister_pickle_by_value(json.decoder)


def test_calls_in_descriptions() -> None:
    task = PythonTask(max, (1, 2))
    assert pack_call({'function': task}) == (task.function, task.arguments)
    assert pack_call({'function': max, 'args': (1, 2)}) == (task.function, task.arguments)
    assert pack_call({'function': 'name', 'args': [1]}) is None
    assert pack_call({}) is None
    packed = {'mode': 'm', 'function': task.function, 'args': task.arguments}
    assert shown_call(packed) == {'mode': 'm', 'function': task}
    assert shown_call({'function': 'name', 'args': [1]}) == {'function': 'name', 'args': [1]}
    assert unpacked_call(*pack_call({'function': task})) == task   # type: ignore[misc]
