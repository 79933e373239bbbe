"""Functions and objects as text and bytes."""

from __future__ import annotations

import base64
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rp_api import functions
from rp_api.description.python_task import PythonTask, is_python_task, pythontask
from rp_api.errors import DeserializationError, SerializationError


def collect(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


def call(text: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    func, args, kwargs = PythonTask.get_func_attr(text)
    found: tuple[tuple[Any, ...], dict[str, Any]] = func(*args, **kwargs)
    return found


@pytest.mark.parametrize(('text', 'args', 'kwargs'), [
    (lambda: PythonTask(collect), (), {}),
    (lambda: PythonTask(collect, (1, 2)), (1, 2), {}),
    (lambda: PythonTask(collect, [1, 2]), (1, 2), {}),
    (lambda: PythonTask(collect, (1,), {'x': 2}), (1,), {'x': 2}),
    (lambda: PythonTask(collect, (1,), None), (1,), {}),
    (lambda: PythonTask(collect, args=(1,), kwargs={'x': 2}), (1,), {'x': 2}),
    (lambda: PythonTask(collect, kwargs={'x': 2}), (), {'x': 2}),
    (lambda: PythonTask(collect, (1,), kwargs={'x': 2}), (1,), {'x': 2}),
], ids=lambda value: None if callable(value) else str(value))
def test_new_form(text: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert call(text()) == (args, kwargs)


@pytest.mark.parametrize(('text', 'args', 'kwargs'), [
    (lambda: PythonTask(collect, 1), (1,), {}),
    (lambda: PythonTask(collect, 1, 2, x=3), (1, 2), {'x': 3}),
    (lambda: PythonTask(collect, msg='x'), (), {'msg': 'x'}),
    (lambda: PythonTask(collect, (1,), x=3), ((1,),), {'x': 3}),
    (lambda: PythonTask(collect, (1,), (2,)), ((1,), (2,)), {}),
    (lambda: PythonTask(collect, (1,), {}, 3), ((1,), {}, 3), {}),
    (lambda: PythonTask(collect, {'x': 1}), ({'x': 1},), {}),
    (lambda: PythonTask(collect, args=5), (), {'args': 5}),
    (lambda: PythonTask(collect, (1,), args=(2,)), ((1,),), {'args': (2,)}),
], ids=lambda value: None if callable(value) else str(value))
def test_old_form(text: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert call(text()) == (args, kwargs)


def test_what_is_made_is_plain_text() -> None:
    text = PythonTask(collect, (1,))
    assert isinstance(text, str)
    assert text.isascii()
    func, args, kwargs = PythonTask.get_func_attr(text)
    assert (func, args, kwargs) == (collect, [1], {})


def test_decorated_functions_give_text() -> None:
    @PythonTask.pythontask
    def add(first: int, second: int = 2) -> int:
        """Adds."""
        return first + second

    assert add.__name__ == 'add'
    assert add.__doc__ == 'Adds.'
    func, args, kwargs = PythonTask.get_func_attr(add(3, second=4))
    assert func(*args, **kwargs) == 7
    assert pythontask is PythonTask.pythontask


def test_decorated_functions_take_their_arguments_literally() -> None:
    assert call(PythonTask.pythontask(collect)((1, 2))) == (((1, 2),), {})


def test_lambdas_travel_with_what_they_enclose() -> None:
    factor = 3
    func, args, _ = PythonTask.get_func_attr(PythonTask(lambda x: x * factor, (2,)))
    assert func(*args) == 6


@pytest.mark.parametrize('make', [PythonTask, PythonTask.pythontask])
def test_only_callables_are_taken(make: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match='called, not 42'):
        make(42)


@pytest.mark.parametrize(('text', 'error'), [
    (b'bytes', ValueError), (None, ValueError), ('not base64!', DeserializationError), ('hello', DeserializationError),
    (functions.serialize_bson([1, 2]), TypeError), (functions.serialize_bson({'func': b''}), TypeError),
    (functions.serialize_bson({'func': pickle.dumps(3), 'args': [], 'kwargs': {}}), TypeError),
])
def test_other_texts_are_refused(text: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        PythonTask.get_func_attr(text)


@pytest.mark.parametrize('name', ['', 'hello', 'my_function', 'gAAA', 'gASV', 'module.function', 'päth', 'a' * 64])
def test_names_of_functions_are_no_python_tasks(name: str) -> None:
    assert not is_python_task(name)


def test_a_python_task_is_recognised() -> None:
    assert is_python_task(PythonTask(collect, (1, 2)))


plain = st.recursive(st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
                     lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@settings(max_examples=40)
@given(plain)
def test_objects_come_back(obj: Any) -> None:
    assert functions.deserialize_obj(functions.serialize_obj(obj)) == obj
    text = functions.serialize_bson(obj)
    assert isinstance(text, str)
    assert functions.deserialize_bson(text) == obj


@settings(max_examples=40)
@given(st.lists(plain, max_size=3), st.dictionaries(st.text(), plain, max_size=3))
def test_any_arguments_come_back_through_the_decorator(args: list[Any], kwargs: dict[str, Any]) -> None:
    assert call(PythonTask.pythontask(collect)(*args, **kwargs)) == (tuple(args), kwargs)


def test_what_has_no_value_goes_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    import cloudpickle

    def refuse(obj: Any) -> bytes:
        raise TypeError('no')

    monkeypatch.setattr(cloudpickle, 'dumps', refuse)
    assert functions.deserialize_obj(functions.serialize_obj(collect)) is collect


def test_what_cannot_be_serialised_is_named() -> None:
    with pytest.raises(SerializationError, match='lock'):
        functions.serialize_obj(threading.Lock())


@pytest.mark.parametrize('data', [b'', b'garbage', None])
def test_broken_bytes_are_refused_with_the_cause(data: Any) -> None:
    with pytest.raises(DeserializationError) as caught:
        functions.deserialize_obj(data)
    assert isinstance(caught.value.original_exception, Exception)


@pytest.mark.parametrize('text', ['!', 'abc', base64.b64encode(b'garbage').decode(), None])
def test_broken_text_is_refused_with_the_cause(text: Any) -> None:
    with pytest.raises(DeserializationError) as caught:
        functions.deserialize_bson(text)
    assert caught.value.original_exception is not None


def test_objects_go_through_named_files(tmp_path: Path) -> None:
    target = tmp_path / 'obj'
    assert functions.serialize_file({'a': 1}, target) == str(target)
    assert functions.deserialize_file(str(target)) == {'a': 1}


def test_the_default_file_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    name = functions.serialize_file([1])
    assert name == str(tmp_path / 'rp_obj.pkl')
    assert os.stat(name).st_mode & 0o777 == 0o600
    assert functions.deserialize_file() == [1]


def test_the_default_file_does_not_follow_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    (tmp_path / 'rp_obj.pkl').symlink_to(tmp_path / 'elsewhere')
    with pytest.raises(SerializationError, match=r'rp_obj\.pkl'):
        functions.serialize_file([1])
    assert not (tmp_path / 'elsewhere').exists()


def test_the_default_file_of_somebody_else_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    functions.serialize_file([1])
    monkeypatch.setattr('os.geteuid', lambda: os.getuid() + 1)
    with pytest.raises(DeserializationError, match='another user'):
        functions.deserialize_file()


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    missing = tmp_path / 'missing' / 'file'
    with pytest.raises(DeserializationError, match='missing/file'):
        functions.deserialize_file(missing)
    with pytest.raises(SerializationError, match='missing/file'):
        functions.serialize_file(1, missing)
