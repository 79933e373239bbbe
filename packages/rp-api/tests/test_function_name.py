"""Names of pickled functions, without running their code."""

from __future__ import annotations

import functools
import math
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rp_api.by_value import versions
from rp_api.by_value.function_name import function_name
from rp_api.description.python_task import PythonTask


def helper(value: int) -> int:
    return value + 1


def simulate(value: int) -> int:
    def inner(value: int) -> int:
        return helper(value)
    return inner(value)


simulate.__module__ = '__main__'   # by value
helper.__module__ = '__main__'


def decorated(function: Callable[[int], int]) -> Callable[[int], int]:
    @functools.wraps(function)
    def around(value: int) -> int:
        return function(value)
    return around


@pytest.mark.parametrize(('function', 'name'), [
    (simulate, 'simulate'), (decorated(simulate), 'simulate'), (functools.partial(simulate, 3), 'simulate'),
    (math.sin, 'sin'), (os.path.join, 'join'), (lambda: 1, '<lambda>')])
def test_names(function: Callable[..., Any], name: str) -> None:
    assert function_name(versions.pickled(function)) == name
    assert function_name(str(PythonTask(function, (3,)))) == name   # as text, with its arguments


@pytest.mark.parametrize(('described', 'name'), [
    ('simulate', 'simulate'), ('', None), (None, None), (b'no pickle', None), ('x' * 1000, None)])
def test_what_is_no_pickled_function(described: Any, name: str | None) -> None:
    assert function_name(described) == name


class Evil:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


def test_no_code_runs(tmp_path: Path) -> None:
    path = tmp_path / 'made'
    data = pickle.dumps(Evil(path))
    function_name(data)
    assert not path.exists()
    pickle.loads(data)
    assert path.exists()
