"""The executors SIMULATED and NOOP start no process; each task is a timer of the event loop.

They test everything but the tasks, with any number of tasks and nodes. The description of a task sets

- its duration: `metadata['duration']` in seconds; otherwise the arguments of an executable named `sleep`, in the form
  of that program (`sleep 1.5`, `sleep 1m 30`); otherwise 0
- its exit code: `metadata['exit_code']`, by default 0; a negative one is the number of a signal

Time limits and cancellation work as for real tasks. No sandbox is created.

A model sets the time between the launch and the run of a task. It computes the start time from the current time; it
reads no clock, and the same seed gives the same times. It has two parts. The *latency* is the time from the moment at
which the launcher accepts a task until it runs; latencies of several tasks overlap. The *rate* limits the number of
tasks that the launcher accepts per second. Plain data describes both:

    {}                                                                        no latency, no limit
    {'distribution': 'constant', 'seconds': 0.1}
    {'distribution': 'normal', 'mean': 0.1, 'deviation': 0.02, 'seed': 1}      values below 0 count as 0
    {'distribution': 'lognormal', 'median': 0.1, 'sigma': 0.5, 'seed': 1}      sigma is that of the logarithm
    {'distribution': 'table', 'seconds': [[1, 0.05], [1024, 2.5]]}             by number of ranks, interpolated
    {'distribution': 'constant', 'seconds': 0.1, 'rate': 300}                  any of them, at most 300 tasks per second
"""

from __future__ import annotations

import math
import os
import signal
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from rp_agent.executor.base import BaseExecutor, Ending, TimedRun, TimeLimits
from rp_agent.executor.launching.environment import PilotContext
from rp_agent.lookup import LaunchRefused
from rp_agent.task import AgentTask
from rp_api.errors import PlatformError
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer

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


_UNITS = {'s': 1, 'm': 60, 'h': 3600, 'd': 86400}


class _Run(TimedRun):
    """A simulated task; the timer is that of its next event."""

    __slots__ = ('executes', 'exit_code', 'ranks', 'run_time', 'started')

    def __init__(self, task: AgentTask) -> None:
        super().__init__(task)
        description = task.description
        self.run_time = duration(description)
        self.exit_code = _exit_code(description)
        self.ranks = range(description['ranks'])
        self.executes = False
        self.started = 0.0


class SimulatedExecutor(BaseExecutor):
    """Simulates tasks; `model` sets their launch times, 0 by default."""

    def __init__(self, uid: str, tracer: Tracer, loop: Loop, model: LaunchModel | None = None) -> None:
        super().__init__(uid, tracer, loop)
        self._model = model or launch_model({})
        self._limits = TimeLimits(loop, tracer, self._end)
        self._runs: dict[str, _Run] = {}

    def check(self) -> None:
        """Verify all invariants; raise AssertionError."""
        super().check()
        for uid, run in self._runs.items():
            assert run.task.uid == uid, f'{run.task.uid} runs as {uid}'
            assert run.timer is not None, f'{uid} has no timer'
            assert run.timer.callback is not None, f'the timer of {uid} has expired'

    def __contains__(self, uid: object) -> bool:
        return uid in self._runs

    def _uids(self) -> list[str]:
        return list(self._runs)

    def _begin(self, tasks: list[AgentTask]) -> None:
        now = time.monotonic()
        for task in tasks:
            self._record(task.uid, 'task_start', 'task_run_start')
            try:
                run = _Run(task)
            except Exception as error:   # fails only this task
                self._refuse(task, error)
                continue
            self._record(task.uid, 'task_run_ok', 'launch_start', 'launch_pre', 'launch_submit')
            self._launch(run, now)

    def _launch(self, run: _Run, now: float) -> None:
        self._runs[run.task.uid] = run
        runs_at = self._model.runs_at(now, len(run.ranks))
        if 0 < run.start_limit < runs_at - now:
            self._limits.start(run)
        elif runs_at > now:
            run.timer = self._loop.call_at(runs_at, self._execute, run)
        else:
            self._execute(run)

    def _execute(self, run: _Run) -> None:
        """Start the run of a task, with its next timer."""
        run.executes = True
        run.started = time.time()
        for _ in run.ranks:
            self._record(run.task.uid, 'exec_start', 'exec_pre', 'rank_start')
        if 0 < run.limit < run.run_time:
            self._limits.limit(run)
        else:
            run.timer = self._loop.call_later(run.run_time, self._finish, run)

    def _finish(self, run: _Run, ending: Ending | None = None) -> None:
        """Hand on a task; all its ranks end with the same exit code."""
        uid = run.task.uid
        del self._runs[uid]
        for _ in run.ranks if run.executes else ():
            self._record(uid, 'rank_stop', 'exec_post', 'exec_stop')
        if run.executes:
            run.task.note_run(run.started, time.time())
        self._record(uid, 'launch_collect', 'launch_post', 'launch_stop')
        self._leave(run.task, dict.fromkeys(run.ranks, run.exit_code), ending, shell=False)

    def _end(self, uids: list[str], ending: Ending) -> None:
        for uid in uids:
            run = self._runs[uid]
            run.stop_timer()
            self._record(uid, 'task_run_cancel_start')
            run.exit_code = -signal.SIGTERM
            self._finish(run, ending)


def simulated(uid: str, tracer: Tracer, loop: Loop, context: PilotContext,
              options: Mapping[str, Any]) -> SimulatedExecutor:
    """Create an executor without processes; the option `launch_model` describes its simulated launcher."""
    return SimulatedExecutor(uid, tracer, loop, launch_model(options.get('launch_model', {})))


def noop(uid: str, tracer: Tracer, loop: Loop, context: PilotContext, options: Mapping[str, Any]) -> SimulatedExecutor:
    """Create an executor without processes and without launch times."""
    return SimulatedExecutor(uid, tracer, loop)


def duration(description: Mapping[str, Any]) -> float:
    """Return the duration of a task in seconds; raise LaunchRefused if the description has an invalid one."""
    metadata = description['metadata']
    if 'duration' in metadata:
        value = metadata['duration']
        if not isinstance(value, int | float) or not value >= 0:
            raise LaunchRefused(f"metadata['duration'] is {value!r}, allowed: a number of seconds, at least 0")
        return float(value)
    words = [*description['executable'].split(), *description['arguments']]
    if not words or os.path.basename(words[0]) != 'sleep':
        return 0.0
    return sum(map(_seconds, words[1:]), 0.0)


def _seconds(text: str) -> float:
    unit = _UNITS.get(text[-1:])
    try:
        seconds = float(text if unit is None else text[:-1]) * (unit or 1)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise LaunchRefused(f'{text!r} is not a time for sleep: use a number, optionally followed by s, m, h or d')
    return seconds


def _exit_code(description: Mapping[str, Any]) -> int:
    code = description['metadata'].get('exit_code', 0)
    if not isinstance(code, int):
        raise LaunchRefused(f"metadata['exit_code'] is {code!r}, allowed: a whole number")
    return code
