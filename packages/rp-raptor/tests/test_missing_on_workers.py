"""Calls that need a module or a version of Python that their worker does not have: real ranks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rank_support import Manager, a_manager

from rp_api.description.python_task import PythonTask
from rp_api.errors import DeserializationError
from rp_api.pickles import PYTHON
from rp_raptor.definitions import Definitions
from rp_raptor.wire import payload

REMEDIES = (f"there is no module 'of_the_application' in Python {PYTHON} ({sys.executable} on ", '`named_env`',
            'PYTHONPATH', 'register_pickle_by_value(of_the_application)')


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """A manager with one rank of a DefaultWorker."""
    with a_manager(tmp_path) as manager:
        manager.start()
        yield manager


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that exists in this process only."""
    made: Any = ModuleType('of_the_application')
    exec('def double(n): return 2 * n\nclass Item: pass', vars(made))
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def _failed(manager: Manager, call: bytes) -> str:
    """The message of the error; its cause shows no frames of pickle."""
    with pytest.raises(DeserializationError) as caught:
        manager.outcome(manager.give([call])[0])
    assert str(caught.value.__cause__).count('Traceback') <= 1
    assert 'pickle.loads' not in str(caught.value.__cause__)
    return str(caught.value)


def test_a_missing_module(manager: Manager, module: Any) -> None:
    """Of a function by reference, of one by value, of an argument, of a function of an executor, of a task."""
    twice = module.double

    def use(n: int) -> int:
        return int(twice(n))

    def import_it(n: int) -> Any:
        import of_the_application  # type: ignore[import-not-found]
        return of_the_application.double(n)

    told: dict[bytes, bytes] = {}
    _, along = Definitions(told.__setitem__).encode(use, (1,), {})
    for fid, blob in told.items():
        manager.send(0, ['define', fid, blob])
    calls = [payload.encode_call(manager.define(module.double), (1,)), payload.encode_call(manager.define(use), (1,)),
             payload.encode_call(manager.define(abs), (module.Item(),)), along]
    texts = [_failed(manager, call) for call in calls * 2]
    functions = PythonTask(module.double, (1,)), PythonTask(use, (1,)), PythonTask(abs, (module.Item(),))
    texts += [manager.task(mode='task.function', function=function)['exception'] for function in functions]
    with pytest.raises(ModuleNotFoundError) as caught:   # that of the function itself stays what it is
        manager.call(import_it, 1)
    texts.append(str(caught.value.__cause__))
    for text in texts:
        assert all(part in text for part in REMEDIES), text


def test_another_version_of_python(manager: Manager, module: Any) -> None:
    """Code by value is refused, and the rank goes on; functions by reference run."""
    def older(data: bytes) -> bytes:
        return data.replace(b'\0python' + PYTHON.encode(), b'\0python3.8')

    fid, blob = payload.define(lambda n: n)
    manager.send(0, ['define', fid, older(blob)])
    calls = [payload.encode_call(fid, (1,)), older(payload.encode_call(manager.define(callable), (lambda: 1,)))]
    for text in (_failed(manager, call) for call in calls * 2):
        assert f'contains code of Python 3.8, which cannot run in Python {PYTHON} ({sys.executable} on ' in text
    assert manager.call(callable, lambda: 1) is True
    assert manager.call(abs, -1) == 1


def test_a_result_of_another_version_of_python() -> None:
    """It is refused by the application as well."""
    result = payload.encode_value(lambda: 1).replace(PYTHON.encode(), b'3.8')
    with pytest.raises(DeserializationError, match=r'a value contains code of Python 3\.8'):
        payload.decode_result(result)
