"""Stretches of time without overlap."""

from __future__ import annotations

import pytest

from rp_profiling.analyse.intervals import union


@pytest.mark.parametrize(('intervals', 'expected'), [
    ([], []),
    ([(5, 6), (1, 2)], [(1, 2), (5, 6)]),
    ([(1, 4), (2, 3)], [(1, 4)]),
    ([(1, 2), (2, 3), (2.5, 4)], [(1, 4)]),
])
def test_union(intervals: list[tuple[float, float]], expected: list[tuple[float, float]]) -> None:
    assert union(iter(intervals)) == expected
