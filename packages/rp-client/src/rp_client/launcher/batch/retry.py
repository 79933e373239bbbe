"""Jobs that could not be submitted because the batch system cannot be reached: the time of their next submission.

No I/O and no clock: times are the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RETRY_TIME = 600.0
"""Seconds for which a job is submitted again and again, counted from the first time."""

FIRST_DELAY = 5.0
"""Seconds between the first and the second submission; each further delay is twice as long as the one before."""

MOST_DELAY = 60.0
"""Seconds that a delay is at most."""


class Postponed:
    """The jobs that are submitted again, by key."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._jobs

    def add(self, job: Mapping[str, Any], now: float) -> bool:
        """Have a job submitted once more, later; False if its time is over."""
        known = self._jobs.setdefault(job['key'], _Job(job, now))
        if now - known.since >= RETRY_TIME:
            return False
        known.due = min(now + known.delay, known.since + RETRY_TIME)
        known.delay = min(2 * known.delay, MOST_DELAY)
        return True

    def remove(self, key: str) -> None:
        """Forget a job, if it is here."""
        self._jobs.pop(key, None)

    @property
    def next(self) -> float | None:
        """The time of the next submission; None if there is none."""
        return min((job.due for job in self._jobs.values()), default=None)

    def due(self, now: float) -> list[Mapping[str, Any]]:
        """The jobs whose time has come."""
        return [job.job for job in self._jobs.values() if job.due <= now]


class _Job:
    __slots__ = ('delay', 'due', 'job', 'since')

    def __init__(self, job: Mapping[str, Any], now: float) -> None:
        self.job = job
        self.since = self.due = now
        self.delay = FIRST_DELAY
