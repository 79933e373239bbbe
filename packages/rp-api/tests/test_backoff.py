"""Tests of the delays between attempts."""

from __future__ import annotations

import pytest

from rp_api.backoff import Restarts, backoff


@pytest.mark.parametrize(('first', 'longest', 'factor', 'expected'), [
    (1.0, 5.0, 2.0, [1, 2, 4, 5, 5]),
    (2.0, 20.0, 1.5, [2, 3, 4.5, 6.75, 10.125]),
    (7.0, 5.0, 2.0, [7, 7, 7, 7, 7]),
    (0.0, 5.0, 2.0, [0, 0, 0, 0, 0]),
    (1.0, 5.0, 1.0, [1, 1, 1, 1, 1]),
    (1.0, 5.0, 1e300, [1, 5, 5, 5, 5])])
def test_delays_grow_up_to_a_limit(first: float, longest: float, factor: float, expected: list[float]) -> None:
    assert [backoff(failures, first, longest, factor) for failures in range(1, 6)] == expected


def test_many_failures() -> None:
    assert backoff(10 ** 6, 0.1, 60.0) == 60


def test_a_steady_run_ends_the_row_of_restarts() -> None:
    restarts = Restarts(2, 10.0, 0.5, 0.75)
    assert [restarts.next(ran) for ran in (0, 1, 10, 9, 0)] == [0.5, 0.75, 0.5, 0.75, None]
    assert (restarts.count, restarts.most) == (2, 2)
