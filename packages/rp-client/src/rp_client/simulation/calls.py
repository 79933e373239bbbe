"""Simulation of millions of function calls: RAPTOR's masters and workers are simulated as tasks, calls as arrays.

A call runs on any free rank, and calls differ only in their durations. Each rank of a master therefore draws the
durations of its calls independently; of all calls that could begin, those run that begin first. This needs no event per
call: a master is an array of ranks and calls.

A master hands out calls one after the other, `call_rate` of the model in a second. Its ranks therefore begin their
first calls one after the other, and if they could end more calls than that, each waits so long between two calls that
they do not. Failures are not simulated. A limited runtime of pilots, and lost launchers, are refused.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rp_api.errors import DescriptionError
from rp_api.simulation.model import DEFAULT, EULER, Cost, Model, load_model
from rp_client.simulation.platform import Platform
from rp_client.simulation.result import Result, needs
from rp_client.simulation.simulate import simulate
from rp_client.simulation.workload import Workload, read_duration

FILE = 'calls.csv'
"""File in the session's directory with the numbers of running and completed calls over time."""

_LONG = 1e9   # seconds: longer than all calls together
_MARGIN = 6.0
"""Standard deviations of the number of calls per rank that are drawn in advance."""

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Calls:
    """A number of calls, shared evenly by `masters`, with `workers` per master and `ranks` per worker."""

    count: int
    duration: Cost
    masters: int = 1
    workers: int = 1
    ranks: int = 1
    start: Cost = field(default_factory=Cost)
    """Time from the start of a worker's program until its ranks accept calls."""
    master: Mapping[str, Any] = field(default_factory=dict)
    """The description of a master; default: one core."""

    def __post_init__(self) -> None:
        for name in ('count', 'masters', 'workers', 'ranks'):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise DescriptionError(f'{name} is {getattr(self, name)!r}, allowed are whole numbers from 1 on')
        if not self.duration.constant > 0:
            raise DescriptionError('duration of calls is 0, it must be above 0')

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Calls:
        """Return the calls that plain data from a file describes; `calls` is their number."""
        known = dict(values)
        try:
            return cls(known.pop('calls'), read_duration(known.pop('duration', None)),
                       start=read_duration(known.pop('start', 0.0)), **known)
        except TypeError as error:
            raise DescriptionError(f'calls: {error}') from None

    def tasks(self, durations: Mapping[str, float]) -> Workload:
        """Return masters and workers as a workload with these durations."""
        masters = [{'uid': _master(number), **self.master} for number in range(self.masters)]
        workers = [{'uid': _worker(master, number), 'ranks': self.ranks} for master in range(self.masters)
                   for number in range(self.workers)]
        return Workload([{**task, 'duration': durations.get(task['uid'], _LONG)} for task in (*masters, *workers)])


@dataclass(frozen=True)
class CallsResult:
    """The result of simulated calls; `result` is that of their masters and workers."""

    result: Result
    count: int
    cores: int
    """Cores of all pilots."""
    call_seconds: float
    """Sum of the durations of all calls."""
    interval: float
    """Seconds between entries of the following series."""
    running: Sequence[int]
    """Number of running calls at the end of each interval."""
    done: Sequence[int]
    """Number of calls that ended in each interval."""

    @property
    def utilisation(self) -> float:
        """The share of core-time in which a call ran."""
        return self.call_seconds / self.result.core_seconds

    @property
    def ttx(self) -> float:
        """Seconds from the first master's arrival at the scheduler to the end of the last call."""
        return self.result.ttx

    @property
    def rate(self) -> float:
        """Mean number of calls that end in a second, over the time in which calls run."""
        busy = sum(1 for each in self.running if each)
        return self.count / (busy * self.interval) if busy else 0.0

    @property
    def peak_rate(self) -> float:
        """Largest number of calls that end in a second."""
        return max(self.done, default=0) / self.interval

    @property
    def nodes(self) -> int:
        """Nodes of all pilots."""
        return self.result.nodes

    @property
    def walltime(self) -> float:
        """Seconds from the start of the first pilot to the end of the last one."""
        return self.result.walltime

    @property
    def used(self) -> str:
        """The utilisation, as text."""
        return f'{self.utilisation:.0%} of core-time in calls, {self.rate:,.0f} calls/s'.replace('%', ' %')

    def __str__(self) -> str:
        return f'{needs(self)}, {self.used}'


def simulate_calls(platform: Platform, calls: Calls, model: Model | str = DEFAULT, *,
                   directory: str | Path | None = None, seed: int = 0, interval: float = 10.0) -> CallsResult:
    """Simulate calls on a platform; `interval` is the interval of the series in the result, in seconds.

    If `directory` is given, a session with the traces of masters and workers is written there, and the series as
    `calls.csv`.
    """
    chosen = load_model(model) if isinstance(model, str) else model
    if platform.runtime or chosen.lost_launchers:
        raise DescriptionError('function calls cannot be simulated with a runtime of the pilot, or with lost launchers')
    begun = _begun(simulate(platform, calls.tasks({}), chosen, seed=seed), calls)
    series = _Series(interval)
    ends = _run(calls, begun, chosen, seed, series)
    durations = {uid: ends[uid] - start for uid, start in begun.items()}
    result = simulate(platform, calls.tasks(durations), chosen, directory=directory, seed=seed)
    found = CallsResult(result, calls.count, sum(pilot.cores for pilot in result.pilots), series.seconds,
                        interval, *series.read())
    if result.directory is not None:
        _write(result.directory / FILE, found)
    return found


def _begun(result: Result, calls: Calls) -> dict[str, float]:
    """Return when each master and worker began to run."""
    begun = {uid: run[0] for pilot in result.pilots for uid, run in pilot.runs.items()}
    late = [uid for uid, start in begun.items() if start >= _LONG]
    missing = calls.masters * (1 + calls.workers) - len(begun)
    if late or missing:
        raise DescriptionError(f'the platform is too small for all masters and workers: {len(late) + missing} of '
                               f'{calls.masters} masters with {calls.workers} workers each do not run')
    return begun


def _run(calls: Calls, begun: Mapping[str, float], model: Model, seed: int, series: _Series) -> dict[str, float]:
    """Return when each master and worker has completed its calls."""
    ends: dict[str, float] = {}
    each = 1 / model.call_rate if model.call_rate else 0.0
    gap = max(model.call_gap, calls.workers * calls.ranks * each - calls.duration.mean())
    for number in range(calls.masters):
        count = calls.count // calls.masters + (number < calls.count % calls.masters)
        random = np.random.default_rng([seed, number])
        uids = [_worker(number, worker) for worker in range(calls.workers)]
        start = np.maximum([begun[uid] for uid in uids], begun[_master(number)])
        start += draw(random, calls.start, (calls.workers,))
        first = one_by_one(np.repeat(start, calls.ranks), each)
        starts, ends_of_calls = of_master(random, first, count, calls.duration, gap)
        series.add(starts, ends_of_calls)
        # workers end with their master
        ends |= dict.fromkeys((*uids, _master(number)), float(ends_of_calls.max(initial=start.max())))
    return ends


def one_by_one(wanted: Times, each: float) -> Times:
    """Return when a master that needs so many seconds for each serves ranks which request a call at these times."""
    turns = each * np.arange(1, len(wanted) + 1)
    return np.asarray(turns + np.maximum.accumulate(np.sort(wanted) - turns + each), np.float64)


def of_master(random: np.random.Generator, free: Times, count: int, duration: Cost,
              gap: float = 0.0) -> tuple[Times, Times]:
    """Return the starts and ends of `count` calls, on ranks that are free from these times on.

    After each call, a rank is free again when the gap is over.
    """
    ends = free[:, np.newaxis]   # a rank begins a call when it is free after the one before
    last = -math.inf
    while ends[:, 1:].size < count or ends[:, -1].min() < last:
        each = max(1.0, (count - ends[:, 1:].size) / len(free))
        width = math.ceil(each + _MARGIN * math.sqrt(each) * duration.spread) + 1
        more = draw(random, duration, (len(free), width)) + gap
        ends = np.concatenate([ends, ends[:, -1:] + np.cumsum(more, axis=1)], axis=1)
        if ends[:, 1:].size >= count:
            last = float(np.partition(ends[:, :-1], count - 1, axis=None)[count - 1])
    starts = ends[:, :-1]
    chosen = starts <= last
    return starts[chosen][:count], ends[:, 1:][chosen][:count] - gap


def draw(random: np.random.Generator, cost: Cost, size: tuple[int, ...]) -> Times:
    """Draw durations from the distribution of a cost."""
    mean, deviation = cost.mean(), cost.mean() * cost.spread
    if not deviation:
        return np.full(size, mean)
    if cost.shape == 'lognormal':
        variance = math.log1p(cost.spread ** 2)
        return random.lognormal(math.log(mean) - variance / 2, math.sqrt(variance), size)
    if cost.shape == 'gumbel':
        scale = deviation * math.sqrt(6) / math.pi
        return np.maximum(random.gumbel(mean - scale * EULER, scale, size), 0.0)
    if cost.shape == 'uniform':
        half = deviation * math.sqrt(3)
        return np.maximum(random.uniform(mean - half, mean + half, size), 0.0)
    return np.maximum(random.normal(mean, deviation, size), 0.0)


class _Series:
    """Numbers of calls over time."""

    def __init__(self, interval: float) -> None:
        if not interval > 0:
            raise DescriptionError(f'interval is {interval!r}, allowed are seconds above 0')
        self._interval = interval
        self._begun = self._ended = np.zeros(0, np.int64)
        self.seconds = 0.0

    def add(self, starts: Times, ends: Times) -> None:
        """Add calls with these starts and ends."""
        self.seconds += float((ends - starts).sum())
        self._begun, self._ended = self._counted(self._begun, starts), self._counted(self._ended, ends)

    def read(self) -> tuple[list[int], list[int]]:
        """Return, for each interval, the numbers of calls that run at its end, and that ended in it."""
        length = max(len(self._begun), len(self._ended))
        begun, ended = (np.pad(each, (0, length - len(each))) for each in (self._begun, self._ended))
        return np.cumsum(begun - ended).tolist(), ended.tolist()

    def _counted(self, known: NDArray[np.int64], times: Times) -> NDArray[np.int64]:
        new = np.bincount((times / self._interval).astype(np.int64), minlength=len(known))
        new[:len(known)] += known
        return new


def _write(path: Path, found: CallsResult) -> None:
    with path.open('w', newline='') as stream:
        table = csv.writer(stream)
        table.writerow(('time', 'running', 'done'))
        table.writerows(((number + 1) * found.interval, running, done) for number, (running, done)
                        in enumerate(zip(found.running, found.done, strict=True)))


def _master(number: int) -> str:
    return f'master.{number:04d}'


def _worker(master: int, number: int) -> str:
    return f'worker.{master:04d}.{number:04d}'
