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


def edges_of(calls: Calls, intervals: int = INTERVALS) -> NDArray[np.float64]:
    """Return the edges of equal intervals, in ticks, from the start of the first rank to the end of the last one."""
    begun, ended = (np.array([getattr(rank, name) for rank in calls.ranks]) for name in ('begun', 'ended'))
    return np.linspace(begun.min(), max(ended.max(), begun.min() + 1), intervals + 1)


def concurrency(calls: Calls, intervals: int = INTERVALS) -> tuple[Seconds, Seconds]:
    """Return the mean number of calls that run, in equal intervals: (their starts, numbers)."""
    if not calls.ranks:
        return np.zeros(0), np.zeros(0)
    edges = edges_of(calls, intervals)
    chosen = calls.whole
    return _seconds(calls, edges), _mean(calls.start[chosen], calls.stop[chosen], edges)


def rate(calls: Calls, intervals: int = INTERVALS) -> tuple[Seconds, Seconds]:
    """Return the number of calls that end per second, in equal intervals: (their starts, rates)."""
    if not calls.ranks:
        return np.zeros(0), np.zeros(0)
    edges = edges_of(calls, intervals)
    return _seconds(calls, edges), _count(calls.stop[calls.whole], edges) / _width(edges) * TICKS


def use(calls: Calls, intervals: int = INTERVALS) -> Use:
    """Return the use of the ranks; asynchronous calls that run at the same time count as one."""
    if not calls.ranks:
        return Use(np.zeros(0), np.zeros(0), np.zeros(0))
    edges = edges_of(calls, intervals)
    begun, ended = (np.array([getattr(rank, name) for rank in calls.ranks], np.int64) for name in ('begun', 'ended'))
    busy = np.zeros(intervals)
    for first, last in zip(calls.firsts[:-1], calls.firsts[1:], strict=True):
        busy += np.minimum(_mean(calls.start[first:last], calls.stop[first:last], edges), 1.0)
    return Use(_seconds(calls, edges), _mean(begun, ended, edges), busy)


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


def _seconds(calls: Calls, edges: NDArray[np.float64]) -> Seconds:
    return (edges[:-1] - calls.zero) / TICKS


def _width(edges: NDArray[np.float64]) -> float:
    return float(edges[1] - edges[0])


def _index(times: NDArray[np.int64], edges: NDArray[np.float64]) -> NDArray[np.intp]:
    index: NDArray[np.intp] = np.clip((times - edges[0]) / _width(edges), 0, len(edges) - 2).astype(np.intp)
    return index


def _count(times: NDArray[np.int64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.bincount(_index(times, edges), minlength=len(edges) - 1).astype(np.float64)


def _mean(start: NDArray[np.int64], stop: NDArray[np.int64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how many of the spans from start to stop there are in each interval, on average."""
    return np.diff(_passed(start, edges) - _passed(stop, edges)) / _width(edges)


def _passed(times: NDArray[np.int64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each edge the sum of the times that have passed since those before it."""
    index = _index(times, edges)
    # sums of small numbers, within intervals, keep the precision
    rest = np.bincount(index, edges[index + 1] - times, len(edges) - 1)
    counts = np.cumsum(np.bincount(index, minlength=len(edges) - 1))
    added = rest + np.concatenate([[0], counts[:-1]]) * _width(edges)
    return np.concatenate([[0.0], np.cumsum(added)])
