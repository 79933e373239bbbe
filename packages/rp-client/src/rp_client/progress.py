"""How far a set of tasks is: a live bar in a terminal, plain lines elsewhere, nothing when asked to be quiet."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rp_api import states

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from rp_client.task import Task
    from rp_client.task_manager import TaskManager

LINE_EVERY = 2.0
"""Seconds between two plain lines."""


class TaskProgress:
    """Shows how many tasks of a manager are running and how many have ended, while its context is open.

    `total` is the number of tasks to come. `quiet` shows nothing. The bar is drawn where standard error is a terminal.
    """

    def __init__(self, tmgr: TaskManager, total: int, *, quiet: bool = False) -> None:
        self._tmgr = tmgr
        self._total = total
        self._quiet = quiet
        self._counts: Counter[str] = Counter()
        self._running: set[str] = set()
        self._progress: Progress | None = None
        self._bar: TaskID | None = None
        self._next_line = 0.0
        self._lock = threading.Lock()

    def __enter__(self) -> TaskProgress:
        if not self._quiet:
            if sys.stderr.isatty():
                self._open_bar()
            self._tmgr.register_callback(self._changed)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._quiet:
            return
        self._tmgr.unregister_callback(self._changed)
        self._count_final(self._tmgr.get_tasks())
        self._show(last=True)
        if self._progress is not None:
            self._progress.stop()

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(TextColumn('tasks'), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                                  TextColumn('{task.description}'), console=Console(stderr=True))
        self._bar = self._progress.add_task('', total=self._total)
        self._progress.start()

    def _changed(self, changed: Any, state: str | None = None) -> None:
        """A callback for one task, or for a bulk of them."""
        with self._lock:
            for task in changed if state is None else [changed]:
                self._note(task, state or task.state)
        self._show()

    def _note(self, task: Task, state: str) -> None:
        if state == states.AGENT_EXECUTING:
            self._running.add(task.uid)
        elif states.TASK.value(state) > states.TASK.value(states.AGENT_EXECUTING):
            self._running.discard(task.uid)
        if state in states.FINAL:
            self._counts[state] += 1

    def _count_final(self, tasks: Iterable[Task]) -> None:
        """What callbacks may not have told yet."""
        with self._lock:
            self._running.clear()
            self._counts = Counter(task.state for task in tasks if task.state in states.FINAL)

    def _show(self, *, last: bool = False) -> None:
        with self._lock:
            ended = sum(self._counts.values())
            text = ', '.join([f'{len(self._running)} running'] + [
                f'{count} {state}' for state, count in sorted(self._counts.items()) if state != states.DONE])
        if self._progress is not None and self._bar is not None:
            self._progress.update(self._bar, completed=ended, description=text)
        elif last or time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY
            print(f'tasks: {ended}/{self._total} ended, {text}', file=sys.stderr, flush=True)
