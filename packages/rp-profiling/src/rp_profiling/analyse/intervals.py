"""Intervals of time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Number = TypeVar('Number', int, float)


def union(intervals: Iterable[tuple[Number, Number]]) -> list[tuple[Number, Number]]:
    """Return the union of intervals (start, stop) as intervals without overlap, in order."""
    found: list[tuple[Number, Number]] = []
    for start, stop in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], stop)
        else:
            found.append((start, stop))
    return found
