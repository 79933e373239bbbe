"""Functions that workers call in place of those of the application."""

from __future__ import annotations

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
