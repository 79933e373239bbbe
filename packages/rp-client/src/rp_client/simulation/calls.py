"""Function calls by the million: RAPTOR's masters and workers are simulated as tasks, their calls all together.

A call goes to a rank that is free, whichever that is, and calls differ only in how long they take. So the ranks of a
master can draw how long their calls take one after the other, each for itself, until the master has no more: of all
calls that could begin, those run that begin first. That needs no event for each call; a master is an array of ranks
and calls.

What is left out: that a master hands out calls only so fast, which matters when its ranks ask for more than some
thousand in a second, and failures. Pilots whose time is over, and launchers that are lost, are refused.
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
"""In the directory of a session: how many calls run, and have ended, over time."""

_LONG = 1e9   # seconds: longer than all calls together
_MARGIN = 6.0
"""Standard deviations by which a rank may have more calls than others, before more are drawn for all."""

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Calls:
    """So many calls, shared evenly by masters; each has so many workers, with so many ranks each."""

    count: int
    duration: Cost
    masters: int = 1
    workers: int = 1
    ranks: int = 1
    start: Cost = field(default_factory=Cost)
    """From when the program of a worker runs until its ranks take calls."""
    master: Mapping[str, Any] = field(default_factory=dict)
    """What the description of a master says; without that, it is one core."""

    def __post_init__(self) -> None:
        for name in ('count', 'masters', 'workers', 'ranks'):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise DescriptionError(f'{name} is {getattr(self, name)!r}, allowed are whole numbers from 1 on')
        if not self.duration.constant > 0:
            raise DescriptionError('calls that take no time cannot be simulated')

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Calls:
        """What plain data stands for, as it is in a file: `calls` is their number."""
        known = dict(values)
        try:
            return cls(known.pop('calls'), read_duration(known.pop('duration', None)),
                       start=read_duration(known.pop('start', 0.0)), **known)
        except TypeError as error:
            raise DescriptionError(f'calls: {error}') from None

    def tasks(self, durations: Mapping[str, float]) -> Workload:
        """The masters and their workers, and how long each of them runs."""
        masters = [{'uid': _master(number), **self.master} for number in range(self.masters)]
        workers = [{'uid': _worker(master, number), 'ranks': self.ranks} for master in range(self.masters)
                   for number in range(self.workers)]
        return Workload([{**task, 'duration': durations.get(task['uid'], _LONG)} for task in (*masters, *workers)])


@dataclass(frozen=True)
class CallsResult:
    """What became of calls: `result` is that of masters and workers, whose cores are used as long as they run."""

    result: Result
    count: int
    cores: int
    """Of the pilot."""
    call_seconds: float
    """How long all calls ran, one after the other."""
    interval: float
    """Seconds from each entry of the following to the next one."""
    running: Sequence[int]
    """How many calls run at the end of each interval."""
    done: Sequence[int]
    """How many have ended in each interval."""

    @property
    def utilisation(self) -> float:
        """The share of core-time in which a call ran."""
        return self.call_seconds / self.result.core_seconds

    @property
    def ttx(self) -> float:
        """From when the first master is at the scheduler until the last call has ended."""
        return self.result.ttx

    @property
    def rate(self) -> float:
        """Calls that end in a second, in the mean of the time in which some run."""
        busy = sum(1 for each in self.running if each)
        return self.count / (busy * self.interval) if busy else 0.0

    @property
    def peak_rate(self) -> float:
        """Calls that end in a second, at most."""
        return max(self.done, default=0) / self.interval

    @property
    def nodes(self) -> int:
        """Of all pilots together."""
        return self.result.nodes

    @property
    def walltime(self) -> float:
        """From when the first pilot gets its nodes until the last one gives them back."""
        return self.result.walltime

    @property
    def used(self) -> str:
        """How much was used, in words."""
        return f'{self.utilisation:.0%} of core-time in calls, {self.rate:,.0f} calls/s'.replace('%', ' %')

    def __str__(self) -> str:
        return f'{needs(self)}, {self.used}'


def simulate_calls(platform: Platform, calls: Calls, model: Model | str = DEFAULT, *,
                   directory: str | Path | None = None, seed: int = 0, interval: float = 10.0) -> CallsResult:
    """How calls use the platform; `interval` is that of the series of the result, in seconds.

    A session is written to `directory` with the traces of masters and workers, and the series as `calls.csv`.
    """
    chosen = load_model(model) if isinstance(model, str) else model
    if platform.runtime or chosen.lost_launchers:
        raise DescriptionError('function calls are simulated without a runtime of the pilot, and without launchers '
                               'that are lost')
    begun = _begun(simulate(platform, calls.tasks({}), chosen, seed=seed), calls)
    series = _Series(interval)
    ends = _run(calls, begun, seed, series)
    durations = {uid: ends[uid] - start for uid, start in begun.items()}
    result = simulate(platform, calls.tasks(durations), chosen, directory=directory, seed=seed)
    found = CallsResult(result, calls.count, sum(pilot.cores for pilot in result.pilots), series.seconds,
                        interval, *series.read())
    if result.directory is not None:
        _write(result.directory / FILE, found)
    return found


def _begun(result: Result, calls: Calls) -> dict[str, float]:
    """When each master and worker began to run."""
    begun = {uid: run[0] for pilot in result.pilots for uid, run in pilot.runs.items()}
    late = [uid for uid, start in begun.items() if start >= _LONG]
    missing = calls.masters * (1 + calls.workers) - len(begun)
    if late or missing:
        raise DescriptionError(f'there is no room for all masters and workers at a time: {len(late) + missing} of '
                               f'{calls.masters} masters with {calls.workers} workers each do not run')
    return begun


def _run(calls: Calls, begun: Mapping[str, float], seed: int, series: _Series) -> dict[str, float]:
    """When each master and worker has no more to do."""
    ends: dict[str, float] = {}
    for number in range(calls.masters):
        count = calls.count // calls.masters + (number < calls.count % calls.masters)
        random = np.random.default_rng([seed, number])
        uids = [_worker(number, worker) for worker in range(calls.workers)]
        start = np.maximum([begun[uid] for uid in uids], begun[_master(number)])
        start += draw(random, calls.start, (calls.workers,))
        starts, ends_of_calls = of_master(random, np.repeat(start, calls.ranks), count, calls.duration)
        series.add(starts, ends_of_calls)
        # workers end with their master
        ends |= dict.fromkeys((*uids, _master(number)), float(ends_of_calls.max(initial=start.max())))
    return ends


def of_master(random: np.random.Generator, free: Times, count: int, duration: Cost) -> tuple[Times, Times]:
    """When each of `count` calls begins and ends, on ranks that take calls from these times on."""
    ends = free[:, np.newaxis]   # a rank begins a call when it has ended the one before
    last = -math.inf
    while ends[:, 1:].size < count or ends[:, -1].min() < last:
        each = max(1.0, (count - ends[:, 1:].size) / len(free))
        width = math.ceil(each + _MARGIN * math.sqrt(each) * duration.spread) + 1
        more = draw(random, duration, (len(free), width))
        ends = np.concatenate([ends, ends[:, -1:] + np.cumsum(more, axis=1)], axis=1)
        if ends[:, 1:].size >= count:
            last = float(np.partition(ends[:, :-1], count - 1, axis=None)[count - 1])
    starts = ends[:, :-1]
    chosen = starts <= last
    return starts[chosen][:count], ends[:, 1:][chosen][:count]


def draw(random: np.random.Generator, cost: Cost, size: tuple[int, ...]) -> Times:
    """So many times that a cost takes."""
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
    """Counts calls over time."""

    def __init__(self, interval: float) -> None:
        if not interval > 0:
            raise DescriptionError(f'interval is {interval!r}, allowed are seconds above 0')
        self._interval = interval
        self._begun = self._ended = np.zeros(0, np.int64)
        self.seconds = 0.0

    def add(self, starts: Times, ends: Times) -> None:
        """Calls that begin and end at these times."""
        self.seconds += float((ends - starts).sum())
        self._begun, self._ended = self._counted(self._begun, starts), self._counted(self._ended, ends)

    def read(self) -> tuple[list[int], list[int]]:
        """How many run at the end of each interval, and how many have ended in it."""
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
