"""The cyclic collector rests while very many objects are made, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from rp_api.system import heap


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    was = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was else gc.disable)()


def passes() -> int:
    return sum(generation['collections'] for generation in gc.get_stats())


def test_no_passes_while_objects_are_made() -> None:
    with heap.uncollected():
        before = passes()
        made = [[number] for number in range(100_000)]
        assert passes() == before
    made += [[number] for number in range(100_000)]
    assert passes() > before


def test_it_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError, match='refused'), heap.uncollected():
        raise ValueError('refused')
    assert gc.isenabled()


def test_an_application_that_has_none_stays_without() -> None:
    gc.disable()
    with heap.uncollected():
        pass
    assert not gc.isenabled()


def test_the_first_of_two_threads_enables_it_again() -> None:
    with heap.uncollected():
        with heap.uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
