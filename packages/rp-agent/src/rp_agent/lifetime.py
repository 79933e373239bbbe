"""The runtime of a pilot, which begins with its job, before the agent starts."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from rp_agent.resource_manager.systems.find import FORK
from rp_api import states
from rp_api.platforms.systems import LOCAL_MANAGERS
from rp_api.system.processes import read_process

MARGIN = 60.0
"""Seconds before the end of the runtime in which a signal of the batch system means that the time is over."""

RESERVE = 15.0
"""Seconds that an agent in a job reserves for ending and reporting its tasks, at most a tenth of the runtime.

The batch job requests exactly the runtime, which has to fit the limits of the queue.
"""


def in_batch(platform: Mapping[str, Any]) -> bool:
    """Return whether pilots of a platform are batch jobs, which the batch system ends when their time is over."""
    return platform.get('resource_manager', FORK) not in LOCAL_MANAGERS


def limit(minutes: int, platform: Mapping[str, Any]) -> float:
    """Return the seconds from the start of a pilot until it ends its tasks, for a runtime in minutes."""
    seconds = 60.0 * minutes
    return seconds - min(RESERVE, 0.1 * seconds) if in_batch(platform) else seconds


class Lifetime:
    """The runtime of a pilot, counted from the start of its job.

    The leader of the process group is the first process of the job. The session may be older: with Flux, it belongs to
    the broker.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._minutes: int = config['runtime']
        self._batch = in_batch(config['platform'])
        seconds = limit(self._minutes, config['platform'])
        if self._batch:
            seconds -= job_age() + config.get('job_age', 0.0)   # before the agent was launched from another host
        self._end: float = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until the pilot has to end, at least 1."""
        return max(1.0, self._end - time.monotonic())

    @property
    def over(self) -> str:
        """The reason that a pilot reports when its time is over."""
        return f'reached its runtime of {self._minutes} minutes'

    def told_to_end(self) -> tuple[str, str]:
        """Return the final state of a pilot whose agent receives a signal to end, and the reason."""
        if not self._batch:
            return states.CANCELED, 'was told to end by a signal'
        if self.left <= MARGIN:
            return states.DONE, self.over
        return states.FAILED, 'was told to end by a signal, before its runtime was over'


def job_age() -> float:
    """Return the seconds since the first process of the job on this host was started; 0 if it has ended."""
    return _age(os.getpgrp())


def _age(pid: int) -> float:
    """Return the seconds since a process was started; 0 if it has ended."""
    process = read_process(pid)
    if process is None:
        return 0.0
    now: float = time.clock_gettime(time.CLOCK_BOOTTIME)
    return now - process.started / os.sysconf('SC_CLK_TCK')
