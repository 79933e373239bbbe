"""Progress of the tasks of a manager, over their submission and several waits; waits show theirs anyway."""

from __future__ import annotations

import os
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING

from rp_api import states
from rp_client.report import LINE_EVERY_S, Display, Tally, Ticker, is_wanted, tally_of
from rp_client.service.tasks import states_of

if TYPE_CHECKING:
    from rp_client.handles.task_manager import TaskManager


class TaskProgress:
    """A context manager that shows on standard error how many tasks of a manager are running and have ended.

    In a terminal and in a notebook it is a line that changes, elsewhere a line now and then. The last one stays.

    Args:
        tmgr: The manager.
        total: The number of expected tasks, without those that ended before.
        quiet: Show nothing.
        every: Seconds between two lines where there is no terminal.
    """

    def __init__(self, tmgr: TaskManager, total: int, *, quiet: bool = False, every: float = LINE_EVERY_S) -> None:
        self._tmgr = tmgr
        self._total = total
        self._shown = not quiet and is_wanted(os.environ)
        self._every = every
        self._before: Counter[str] = Counter()   # final ones
        self._ticker: Ticker | None = None

    def __enter__(self) -> TaskProgress:
        if self._shown:
            found = states_of(self._tmgr)
            self._before = Counter({state: found[state] for state in states.FINAL})
            self._ticker = Ticker(Display('tasks', every=self._every, keeps=True), self._tally)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._ticker is not None:
            self._ticker.close(self._tally())

    def _tally(self) -> Tally:
        found = states_of(self._tmgr)
        found.subtract(self._before)
        return tally_of(sum(found[state] for state in states.FINAL), self._total, found)
