"""Launch models: the time between the launch and the run of a task, for simulated executors.

A model computes the start time of a task from the current time; it reads no clock, and the same seed gives the same
times. It has two parts. The *latency* is the time from the moment at which the launcher accepts a task until it runs;
latencies of several tasks overlap. The *rate* limits the number of tasks that the launcher accepts per second. Plain
data describes both:

    {}                                                                        no latency, no limit
    {'distribution': 'constant', 'seconds': 0.1}
    {'distribution': 'normal', 'mean': 0.1, 'deviation': 0.02, 'seed': 1}      values below 0 count as 0
    {'distribution': 'lognormal', 'median': 0.1, 'sigma': 0.5, 'seed': 1}      sigma is that of the logarithm
    {'distribution': 'table', 'seconds': [[1, 0.05], [1024, 2.5]]}             by number of ranks, interpolated
    {'distribution': 'constant', 'seconds': 0.1, 'rate': 300}                  any of them, at most 300 tasks per second
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from rp_api.errors import PlatformError

Latency = Callable[[int], float]
"""Returns the latency in seconds of a task with that many ranks."""


class LaunchModel:
    """Simulates a launcher; `rate` is in tasks per second, 0 for no limit."""

    def __init__(self, latency: Latency, rate: float = 0.0) -> None:
        self._latency = latency
        self._interval = 1.0 / rate if rate else 0.0
        self._free_at = -math.inf

    def runs_at(self, now: float, ranks: int = 1) -> float:
        """Return the time at which a task that is launched now runs; `now` must not decrease from call to call."""
        taken = max(now, self._free_at)
        self._free_at = taken + self._interval
        return taken + self._latency(ranks)


def launch_model(options: Mapping[str, Any]) -> LaunchModel:
    """Return the model that this data describes; raise PlatformError for invalid data."""
    left = dict(options)
    rate = _number(left, 'rate', 0.0)
    name = left.pop('distribution', 'constant')
    make = _DISTRIBUTIONS.get(name) if isinstance(name, str) else None
    if make is None:
        raise PlatformError(f'launch_model.distribution is {name!r}, allowed: {", ".join(_DISTRIBUTIONS)}')
    latency = make(left)
    if left:
        raise PlatformError(f'launch_model of distribution {name!r} has the unknown options '
                            f'{", ".join(map(repr, sorted(left)))}')
    return LaunchModel(latency, rate)


def _constant(options: dict[str, Any]) -> Latency:
    seconds = _number(options, 'seconds', 0.0)
    return lambda ranks: seconds


def _normal(options: dict[str, Any]) -> Latency:
    mean, deviation, random = _number(options, 'mean'), _number(options, 'deviation'), _random(options)
    return lambda ranks: max(0.0, random.normalvariate(mean, deviation))


def _lognormal(options: dict[str, Any]) -> Latency:
    median, sigma, random = _number(options, 'median'), _number(options, 'sigma'), _random(options)
    return lambda ranks: median * random.lognormvariate(0.0, sigma)


def _table(options: dict[str, Any]) -> Latency:
    rows = options.pop('seconds', None)
    if not isinstance(rows, Sequence) or not rows or not all(_is_row(row) for row in rows):
        raise PlatformError(f'launch_model.seconds is {rows!r}, allowed for distribution "table": a list of pairs '
                            f'[ranks, seconds] of numbers, at least 0')
    points = sorted((float(ranks), float(seconds)) for ranks, seconds in rows)
    known = [ranks for ranks, _ in points]

    def latency(ranks: int) -> float:
        after = bisect_left(known, ranks)
        if after == 0 or after == len(points):
            return points[min(after, len(points) - 1)][1]
        (low, fast), (high, slow) = points[after - 1:after + 1]
        return fast + (slow - fast) * (ranks - low) / (high - low)

    return latency


_DISTRIBUTIONS = {'constant': _constant, 'normal': _normal, 'lognormal': _lognormal, 'table': _table}


def _is_row(row: Any) -> bool:
    return isinstance(row, Sequence) and len(row) == 2 and all(_is_number(value) for value in row)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _number(options: dict[str, Any], name: str, default: float | None = None) -> float:
    value = options.pop(name, default)
    if not _is_number(value):
        raise PlatformError(f'launch_model.{name} is {value!r}, allowed: a number, at least 0')
    return float(value)


def _random(options: dict[str, Any]) -> Random:
    seed = options.pop('seed', 0)
    if not isinstance(seed, int):
        raise PlatformError(f'launch_model.seed is {seed!r}, allowed: a whole number')
    return Random(seed)
