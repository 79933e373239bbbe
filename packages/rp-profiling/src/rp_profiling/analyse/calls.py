"""Concurrency, rate, use of ranks and durations of the function calls of a session, over time.

All functions take time proportional to the number of calls, and little memory beside them. Times are seconds since the
start of the trace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rp_profiling.read.calls import Calls
from rp_profiling.read.columns import TICKS
from rp_profiling.write.calls import DONE

Seconds = NDArray[np.float64]

INTERVALS = 1000
"""Intervals of time by default."""


@dataclass(frozen=True)
class Use:
    """The use of ranks in equal intervals that start at `times`: on average `there` ranks exist, `busy` run calls."""

    times: Seconds
    there: Seconds
    busy: Seconds

    @property
    def share(self) -> float:
        """The share of the ranks' time in which they run calls, from 0 to 1."""
        there = float(self.there.sum())
        return float(self.busy.sum()) / there if there else 0.0


@dataclass(frozen=True)
class Figures:
    """The main figures; `rate` is that of the best second, `use` the share of the ranks' time in calls (0 to 1)."""

    calls: int
    failed: int
    ranks: int
    rate: float
    use: float
    mean: float
    median: float
    longest: float


def concurrency(calls: Calls, intervals: int = INTERVALS) -> tuple[Seconds, Seconds]:
    """Return the mean number of calls that run, in equal intervals: (their starts, numbers)."""
    if not calls.ranks:
        return np.zeros(0), np.zeros(0)
    grid, chosen = _Grid(calls, intervals), calls.whole
    return grid.times, grid.mean(calls.start[chosen], calls.stop[chosen])


def rate(calls: Calls, intervals: int = INTERVALS) -> tuple[Seconds, Seconds]:
    """Return the number of calls that end per second, in equal intervals: (their starts, rates)."""
    if not calls.ranks:
        return np.zeros(0), np.zeros(0)
    grid = _Grid(calls, intervals)
    return grid.times, grid.count(calls.stop[calls.whole]) / grid.width * TICKS


def use(calls: Calls, intervals: int = INTERVALS) -> Use:
    """Return the use of the ranks; asynchronous calls that run at the same time count as one."""
    if not calls.ranks:
        return Use(np.zeros(0), np.zeros(0), np.zeros(0))
    grid = _Grid(calls, intervals)
    begun, ended = (np.array([getattr(rank, name) for rank in calls.ranks], np.int64) for name in ('begun', 'ended'))
    busy = np.zeros(intervals)
    for first, last in zip(calls.firsts[:-1], calls.firsts[1:], strict=True):
        busy += np.minimum(grid.mean(calls.start[first:last], calls.stop[first:last]), 1.0)
    return Use(grid.times, grid.mean(begun, ended), busy)


def durations(calls: Calls) -> Seconds:
    """Return the seconds that each call took, also of those that have failed."""
    return (calls.stop - calls.start)[calls.whole] / TICKS


def figures(calls: Calls) -> Figures:
    """Return the main figures."""
    took = durations(calls)
    failed = int((calls.outcome[calls.whole] != DONE).sum())
    mean, middle = (float(each(took)) if len(took) else 0.0 for each in (np.mean, np.median))
    return Figures(len(took), failed, len(calls.ranks), _best_rate(calls.stop[calls.whole]), use(calls).share,
                   mean, middle, float(took.max(initial=0.0)))


def _best_rate(stops: NDArray[np.int64]) -> float:
    """Return the largest number of ends in one of the seconds after the first end."""
    return float(np.bincount((stops - stops.min()) // TICKS).max()) if len(stops) else 0.0


class _Grid:
    """Equal intervals of time, from the start of the first rank to the end of the last one.

    Edges are ticks after the first one: numbers of ticks since the epoch would be too large for floats.
    """

    def __init__(self, calls: Calls, intervals: int) -> None:
        self.first = min(rank.begun for rank in calls.ranks)
        last = max(rank.ended for rank in calls.ranks)
        self.intervals = intervals
        self.edges = np.linspace(0.0, max(last - self.first, intervals), intervals + 1)
        self.width = float(self.edges[1])
        self.times: Seconds = (self.edges[:-1] + (self.first - calls.zero)) / TICKS

    def count(self, times: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how many of the times are in each interval."""
        return np.bincount(self._index(times - self.first), minlength=self.intervals).astype(np.float64)

    def mean(self, start: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how many of the spans from start to stop there are in each interval, on average."""
        return np.diff(self._passed(start - self.first) - self._passed(stop - self.first)) / self.width

    def _index(self, times: NDArray[np.int64]) -> NDArray[np.intp]:
        index: NDArray[np.intp] = np.clip(times / self.width, 0, self.intervals - 1).astype(np.intp)
        return index

    def _passed(self, times: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return for each edge the sum of the ticks that have passed since those of the times that are before it."""
        index = self._index(times)
        inside = np.bincount(index, self.edges[index + 1] - times, self.intervals)
        before = np.cumsum(np.bincount(index, minlength=self.intervals))
        added = inside + np.concatenate([[0], before[:-1]]) * self.width
        return np.concatenate([[0.0], np.cumsum(added)])
