"""The retry schedule of jobs that could not be submitted because the batch system cannot be reached, or is full.

No I/O and no clocks: the caller passes the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_api.backoff import backoff

RETRY_TIMEOUT_S = 600.0
"""Seconds after the first submission in which it is retried if the batch system cannot be reached."""

BACKOFF_S = 5.0, 60.0
"""The first and the longest delay before a retry."""


class Postponed:
    """The postponed jobs, by key."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._jobs

    def add(self, job: Mapping[str, Any], now: float, *, full: bool = False) -> bool:
        """Schedule the next retry of a job; return False if its time is over.

        If the batch system takes no more jobs for now (`full`), there is no limit: others may take days to end.
        """
        known = self._jobs.setdefault(job['key'], _Job(job, now))
        if full:
            known.since = now
        if now - known.since >= RETRY_TIMEOUT_S:
            return False
        known.failures += 1
        known.due = min(now + backoff(known.failures, *BACKOFF_S), known.since + RETRY_TIMEOUT_S)
        return True

    def remove(self, key: str) -> None:
        """Remove a job, if it is postponed."""
        self._jobs.pop(key, None)

    @property
    def next(self) -> float | None:
        """The time of the next retry; None without one."""
        return min((job.due for job in self._jobs.values()), default=None)

    def due(self, now: float) -> list[Mapping[str, Any]]:
        """Return the jobs that are due."""
        return [job.job for job in self._jobs.values() if job.due <= now]


class _Job:
    __slots__ = ('due', 'failures', 'job', 'since')

    def __init__(self, job: Mapping[str, Any], now: float) -> None:
        self.job = job
        self.since = self.due = now
        self.failures = 0
