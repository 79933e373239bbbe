"""How long it takes until a task that is launched runs: models for simulated executors.

A model is plain logic: it is told the time and gives one, and with the same seed it gives the same ones again. It has
two parts. A *latency* passes between the moment at which the launcher takes a task and the one at which the task runs;
latencies of several tasks overlap. A *rate* limits the number of tasks that the launcher takes per second, one after
the other, whatever the latency is. Both are described by plain data:

    {}                                                                        no latency, no limit
    {'distribution': 'constant', 'seconds': 0.1}
    {'distribution': 'normal', 'mean': 0.1, 'deviation': 0.02, 'seed': 1}      values below 0 count as 0
    {'distribution': 'lognormal', 'median': 0.1, 'sigma': 0.5, 'seed': 1}      sigma is that of the logarithm
    {'distribution': 'table', 'seconds': [[1, 0.05], [1024, 2.5]]}             by number of ranks, straight in between
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
"""Seconds for a task of that many ranks."""


class LaunchModel:
    """Tells when tasks run; `rate` is in tasks per second, 0 for no limit."""

    def __init__(self, latency: Latency, rate: float = 0.0) -> None:
        self._latency = latency
        self._interval = 1.0 / rate if rate else 0.0
        self._free_at = -math.inf

    def runs_at(self, now: float, ranks: int = 1) -> float:
        """The time at which a task runs that is launched now; `now` does not decrease from call to call."""
        taken = max(now, self._free_at)
        self._free_at = taken + self._interval
        return taken + self._latency(ranks)


def launch_model(options: Mapping[str, Any]) -> LaunchModel:
    """The model that is described by this data; PlatformError for what cannot be understood."""
    left = dict(options)
    rate = _number(left, 'rate', 0.0)
    name = left.pop('distribution', 'constant')
    make = _DISTRIBUTIONS.get(name) if isinstance(name, str) else None
    if make is None:
        raise PlatformError(f'launch_model has the distribution {name!r}, known are {", ".join(_DISTRIBUTIONS)}')
    latency = make(left)
    if left:
        raise PlatformError(f'launch_model of distribution {name!r} has no {", ".join(map(repr, sorted(left)))}')
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
        raise PlatformError(f'launch_model.seconds of distribution "table" is a list of pairs [ranks, seconds], with '
                            f'numbers that are not negative, not {rows!r}')
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
        raise PlatformError(f'launch_model.{name} must be a number that is not negative, not {value!r}')
    return float(value)


def _random(options: dict[str, Any]) -> Random:
    seed = options.pop('seed', 0)
    if not isinstance(seed, int):
        raise PlatformError(f'launch_model.seed must be a whole number, not {seed!r}')
    return Random(seed)
