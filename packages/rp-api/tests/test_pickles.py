"""Errors of pickles that need what this Python does not have."""

from __future__ import annotations

import json
import pickle
import sys
import traceback
from typing import Any

import cloudpickle
import pytest

from rp_api import pickles
from rp_api.description.python_task import PythonTask, is_python_task
from rp_api.errors import DeserializationError
from rp_api.functions import serialize_obj
from rp_api.values import as_json, dump, from_plain, to_plain

OTHER = b'\0python3.8'
HERE = f'in Python {pickles.PYTHON} ({sys.executable} on '


class Local:
    """A class that is pickled by value if its module is."""

    def method(self) -> None:
        """Do nothing."""


@pytest.fixture
def by_value() -> Any:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def of_other_version(data: bytes) -> bytes:
    """A pickle with code as another version of Python would have stamped it."""
    own = b'\0python' + pickles.PYTHON.encode()
    assert data.endswith(own)
    return data.removesuffix(own) + OTHER


@pytest.mark.parametrize('obj', [abs, 3, pickle.loads, [b'\0python', 'CodeType']])
def test_objects_by_reference_have_no_stamp(obj: Any) -> None:
    data = serialize_obj(obj)
    assert data.endswith(b'.')
    assert pickles.is_pickle(data)
    assert pickles.restore(data, 'it') == obj


def test_code_has_a_stamp_that_pickle_ignores(by_value: None) -> None:
    for made in (serialize_obj(lambda: 5), dump(lambda: 5)):
        assert pickles.is_pickle(made)
        assert not made.endswith(b'.')
        assert pickle.loads(made)() == 5
        assert pickles.restore(made, 'it')() == 5   # type: ignore[operator]
    assert not serialize_obj(Local).endswith(b'.')
    assert is_python_task(PythonTask(abs, (lambda: 5,)))


def test_code_of_another_version_is_refused() -> None:
    """With both versions and this interpreter, and before anything is unpickled."""
    data = of_other_version(serialize_obj(lambda: 5))
    for each in (data, memoryview(data)):
        with pytest.raises(DeserializationError) as caught:
            pickles.restore(each, 'a function')
        assert str(caught.value).startswith('a function contains code of Python 3.8, which cannot run ' + HERE)
    value = to_plain({'f': lambda: 5}, '', '')
    (key, data), = value.items()
    with pytest.raises(DeserializationError, match=r'^a value contains code of Python 3\.8,'):
        from_plain({key: of_other_version(data)})
    assert pickles.restore(pickle.dumps(4) + OTHER[:3], 'it') == 4   # this is no stamp


def test_a_missing_module_is_one_sentence() -> None:
    """It names the module, this interpreter, and remedies; other failures show their cause."""
    for name in ('no_such_module', 'xml.no_such_module'):
        with pytest.raises(DeserializationError) as caught:
            pickles.restore(b'c' + name.encode() + b'\nfunction\n.', 'a function')
        text = str(caught.value)
        assert text.startswith(f"cannot restore a function: there is no module '{name}' {HERE}")
        assert text.endswith(f'cloudpickle.register_pickle_by_value({name})')
        assert isinstance(caught.value.original_exception, ModuleNotFoundError)
        assert ''.join(traceback.format_exception(caught.value)).count('Traceback') == 1
    with pytest.raises(DeserializationError, match='cannot restore it: AttributeError') as caught:
        pickles.restore(b'cpickle\nno_such_function\n.', 'it')
    assert isinstance(caught.value.__cause__, AttributeError)


def test_what_json_has_no_form_for_is_text() -> None:
    record = {'a': {(1, 2): b'x', 'b': (1, {2})}, 'c': {None: 1.5}}
    assert json.loads(as_json(record)) == {'a': {'(1, 2)': '78', 'b': [1, '{2}']}, 'c': {'None': 1.5}}
    assert json.loads(as_json({'a': b'x'})) == {'a': '78'}
