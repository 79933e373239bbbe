"""Functions that workers call in place of those of the application."""

from __future__ import annotations

from functools import partial
from typing import Any

import cloudpickle
import pytest

from rp_raptor.errors import InitializerFailed
from rp_raptor.functions import call_chunk, call_initialized

DIVMOD, POW = cloudpickle.dumps(divmod), cloudpickle.dumps(pow)

seen: list[str] = []


def note(text: str) -> None:
    seen.append(text)


def fail() -> None:
    raise KeyError('no model')


def test_a_chunk_is_the_calls_of_its_items() -> None:
    assert call_chunk(DIVMOD, 2, 7, 2, 9, 4) == [(3, 1), (2, 1)]
    with pytest.raises(ZeroDivisionError):
        call_chunk(DIVMOD, 2, 7, 2, 9, 0)


def test_an_initializer_is_called_once() -> None:
    pickled = cloudpickle.dumps((note, ('begin',)))
    assert [call_initialized('once', pickled, POW, (2, n), {}) for n in range(3)] == [1, 2, 4]
    assert seen == ['begin']


def test_a_communicator_goes_to_the_function() -> None:
    pickled = cloudpickle.dumps((note, ('mpi',)))
    assert call_initialized('comm', 'mpi', pickled, cloudpickle.dumps(max), ('a',), {}) == 'comm'


@pytest.mark.parametrize('_', [1, 2])
def test_no_call_is_made_after_a_failed_initializer(_: int) -> None:
    with pytest.raises(InitializerFailed, match='no model'):
        call_initialized('failing', cloudpickle.dumps((fail, ())), cloudpickle.dumps(note), ('called',), {})
    assert 'called' not in seen


SCRIPT = '''
model, table, unset = None, {}, 'unset'

def load(value):
    global model
    model = value
    table['loaded'] = value

def predict(n=0):
    return model, table, unset, n

class Model:
    def predict(self):
        return model
'''


@pytest.fixture
def script() -> dict[str, Any]:
    """Names of a script, which travel by value."""
    names: dict[str, Any] = {'__name__': '__main__'}
    exec(SCRIPT, names)
    return names


def test_calls_find_what_an_initializer_of_a_script_has_loaded(script: dict[str, Any]) -> None:
    predict, initializer = script['predict'], cloudpickle.dumps((script['load'], (7,)))
    for fn in (predict, partial(predict)):
        assert call_initialized('script', initializer, cloudpickle.dumps(fn), (), {}) == (7, {'loaded': 7}, 'unset', 0)
    assert call_initialized('script', initializer, cloudpickle.dumps(script['Model']().predict), (), {}) == 7
    chunk = cloudpickle.dumps(call_chunk), (cloudpickle.dumps(predict), 1, 1, 2)
    assert [found[::3] for found in call_initialized('script', initializer, *chunk, {})] == [(7, 1), (7, 2)]


def test_calls_see_variables_that_the_initializer_does_not_use_as_they_are(script: dict[str, Any]) -> None:
    script['unset'] = 'set'
    initializer = cloudpickle.dumps((script['load'], (8,)))
    assert call_initialized('other', initializer, cloudpickle.dumps(script['predict']), (), {})[:3] == (
        8, {'loaded': 8}, 'set')
    assert script['model'] is None
