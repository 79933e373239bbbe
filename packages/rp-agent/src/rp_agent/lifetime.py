"""How long a pilot has: its runtime begins with its job, which is older than its agent."""

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
"""Seconds before the end of a runtime in which a batch system that ends the job does so because its time is over."""


RESERVE = 15.0
"""Seconds that an agent in a job keeps for ending its tasks and saying so, or a tenth of the runtime if that is less.

The batch system is asked for the runtime and no more, which has to fit the limits of its queues.
"""


def in_batch(platform: Mapping[str, Any]) -> bool:
    """Whether pilots of a platform are jobs that a batch system ends when their time is over."""
    return platform.get('resource_manager', FORK) not in LOCAL_MANAGERS


def limit(minutes: int, platform: Mapping[str, Any]) -> float:
    """Seconds from the start of a pilot until it ends its tasks, by its runtime."""
    seconds = 60.0 * minutes
    return seconds - min(RESERVE, 0.1 * seconds) if in_batch(platform) else seconds


class Lifetime:
    """The runtime of a pilot, in seconds since its job began.

    Its first process leads the process group. The session may be older: that of a job of Flux is its broker's.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._minutes: int = config['runtime']
        self._batch = in_batch(config['platform'])
        seconds = limit(self._minutes, config['platform'])
        if self._batch:
            seconds -= _age(os.getpgrp())
        self._end: float = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until the pilot has to end; never less than one."""
        return max(1.0, self._end - time.monotonic())

    @property
    def over(self) -> str:
        """How a pilot ends whose time is over."""
        return f'reached its runtime of {self._minutes} minutes'

    def told_to_end(self) -> tuple[str, str]:
        """The state of a pilot whose agent was told to end by a signal, and the reason."""
        if not self._batch:
            return states.CANCELED, 'was told to end by a signal'
        if self.left <= MARGIN:
            return states.DONE, self.over
        return states.FAILED, 'was told to end by a signal, before its runtime was over'


def _age(pid: int) -> float:
    """Seconds since a process was started; 0 if it has ended."""
    process = read_process(pid)
    if process is None:
        return 0.0
    now: float = time.clock_gettime(time.CLOCK_BOOTTIME)
    return now - process.started / os.sysconf('SC_CLK_TCK')
