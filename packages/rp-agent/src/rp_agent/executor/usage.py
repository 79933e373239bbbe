"""Usage of running tasks that only samples show: memory, and what their GPUs do.

One timer samples all tasks of an executor that have run for some time. A sample of many processes is divided into steps
between which the loop handles other events, and the interval grows with what samples cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from rp_agent.executor.launching.environment import TaskEnvironment, uses_gpus
from rp_agent.executor.processes.usage import MemorySample
from rp_agent.executor.run import Run, with_sample
from rp_agent.logs import LOG
from rp_api.logger import logger
from rp_api.loop.event_loop import Loop, Timer

if TYPE_CHECKING:
    from rp_agent.executor.gpus import Gpus

SAMPLE_AGE_S = 2.0
"""Seconds after which the usage of a task is sampled; that of shorter ones is not worth it."""

SAMPLE_INTERVAL_S = 2.0
"""Seconds between two samples at least."""

CPU_SHARE = 0.005
"""The share of a core that samples take at most."""

STEP_PROCESSES = 64
"""Processes that one step looks at: it takes about a millisecond."""


def gpus_here() -> Gpus:
    """Return the GPUs of this host."""
    from rp_agent.executor.gpus import Gpus  # loads ctypes, which few agents need

    return Gpus()


class UsageSampler:
    """Samples the usage of those of the `running` tasks whose processes are all on this host.

    `gpus` makes the reader of GPUs when the first task uses some.
    """

    def __init__(self, loop: Loop, running: Mapping[str, Run], environment: TaskEnvironment,
                 gpus: Callable[[], Gpus] = gpus_here) -> None:
        self._loop = loop
        self._running = running
        self._environment = environment
        self._timer: Timer | None = None
        self._make_gpus = gpus

    def watch(self) -> None:
        """Sample again after a while, unless that is going to happen; a task has been started."""
        if self._timer is None:
            self._timer = self._loop.call_later(SAMPLE_INTERVAL_S, self._safely, self._begin)

    @cached_property
    def _gpus(self) -> Gpus:
        return self._make_gpus()

    def close(self) -> None:
        """Sample no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(0, int)   # watches nothing from now on

    def _safely(self, do: Callable[..., object], *arguments: Any) -> None:
        try:
            do(*arguments)
        except Exception as error:   # usage is not worth a failure of the agent
            logger(LOG).warning('the usage of tasks is not sampled: %s', error)
            self._again(SAMPLE_INTERVAL_S)

    def _begin(self) -> None:
        before = time.time() - SAMPLE_AGE_S
        runs = [run for run in takewhile(lambda run: run.started <= before, self._running.values())
                if run.plan.launch is None]
        if not runs:
            self._again(SAMPLE_INTERVAL_S)
            return
        begun = time.thread_time()
        sample = MemorySample(process.pid for run in runs for process in run.leaders.values())
        self._sample_gpus([run for run in runs if uses_gpus(run.task)])
        self._step(sample, runs, time.thread_time() - begun)

    def _step(self, sample: MemorySample, runs: Sequence[Run], cost: float) -> None:
        begun = time.thread_time()
        more = sample.step(STEP_PROCESSES)
        cost += time.thread_time() - begun
        if more:
            self._timer = self._loop.call_later(0, self._safely, self._step, sample, runs, cost)
            return
        found = sample.memory()
        for run in runs:
            for process in run.leaders.values():
                memory = found.get(process.pid, 0)
                process.memory = max(process.memory, memory)
                process.sampled |= memory > 0
        self._again(max(SAMPLE_INTERVAL_S, cost / CPU_SHARE))

    def _again(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._safely, self._begin) if self._running else None

    def _sample_gpus(self, runs: Sequence[Run]) -> None:
        for run in runs:
            own = [gpu for slot in run.task.slots or () for gpu in slot['gpus']]
            if own and all(gpu['occupation'] == 1 for gpu in own):   # else others use them, too
                found = self._gpus.usage(self._environment.gpu_names([gpu['index'] for gpu in own]))
                if found is not None:
                    run.gpus = with_sample(run.gpus, *found)
