"""The progress of an executor: a thread shows it, as applications wait in futures, where no thread of ours waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rp_client.executor.calls import ExecutorCalls
from rp_client.failed import FailureCounts
from rp_client.report import Report, Tally, Ticker


class Work(NamedTuple):
    """What an executor has to do: its calls, and the numbers of what waits and runs besides."""

    calls: ExecutorCalls | None
    deferred: int   # calls and programs that wait for others
    programs: int   # that were submitted, or are queued
    running: int   # programs that run
    ranks: int   # of workers that run


class ExecutorProgress:
    """Counts what has ended, and shows that and the work that `work()` returns, in a thread of its own."""

    def __init__(self, work: Callable[[], Work]) -> None:
        self._work = work
        self._ended = self._failed = 0   # programs
        self._repeated = 0   # calls that have failed and are made again
        self._report: Report | None = None
        self._failures = FailureCounts()   # of the session, once it is open
        self._ticker: Ticker | None = None

    def start(self, report: Report) -> None:
        """Show the progress, unless the report is off."""
        self._report, self._failures = report, report.failures
        if report.enabled:
            self._ticker = Ticker(report.display('executor'), self.tally)

    def close(self) -> None:
        """Show nothing any more."""
        if self._ticker is not None:
            self._ticker.close()

    def program_ended(self, *, failed: bool) -> None:
        """Count a program that has ended."""
        self._ended += 1
        self._failed += failed

    def call_failed(self, name: str, error: BaseException) -> None:
        """Count a failed call of a function."""
        self._failures.add_call(name, error)

    def repeats(self, name: str, error: BaseException) -> None:
        """Do not count a failed call, as it is made again."""
        self._repeated += 1
        self._failures.drop_call(name, error)

    def expected(self, record: Any) -> None:
        """Do not count a failed program as a failure, as its exit code is of interest."""
        self._failures.drop_task(record)

    def cancels(self, count: int) -> None:
        """Say how many calls and programs are cancelled at the end."""
        if self._report is not None and count:
            what = 'call is' if count == 1 else 'calls and programs are'
            self._report.say(f'rp.Executor: {count:,} {what} cancelled, as it ends before them\n')

    def tally(self) -> Tally:
        """Return the present numbers."""
        work = self._work()
        calls = work.calls
        finished, failed, unfinished = (0, 0, 0) if calls is None else (calls.finished, calls.failed, calls.unfinished)
        reached = finished - self._repeated + self._ended
        failed += self._failed - self._repeated
        return Tally(reached, reached + unfinished + work.deferred + work.programs, reached - failed, failed,
                     running=work.running + min(unfinished, work.ranks))
