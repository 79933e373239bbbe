"""Progress of a set of tasks: a live bar in a terminal, otherwise plain lines.

Every wait in a terminal has a bar (see `report`); this one also covers the submission of tasks, and several waits.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_client.report import TERMINAL, in_terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from rp_client.handles.task import Task
    from rp_client.handles.task_manager import TaskManager

LINE_EVERY = 2.0
"""Seconds between two plain lines."""


class TaskProgress:
    """A context manager that shows on standard error how many tasks of a manager are running and have ended.

    `total` is the number of expected tasks, without those that ended before; `quiet` shows nothing.
    """

    def __init__(self, tmgr: TaskManager, total: int, *, quiet: bool = False) -> None:
        self._tmgr = tmgr
        self._total = total
        self._quiet = quiet
        self._before: set[str] = set()
        self._running: set[str] = set()
        self._ended: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._open = False
        self._progress: Progress | None = None
        self._bar: TaskID | None = None
        self._next_line = 0.0
        self._lock = threading.Lock()

    def __enter__(self) -> TaskProgress:
        if not self._quiet:
            self._before = {task.uid for task in self._tmgr.get_tasks() if task.state in states.FINAL}
            with self._lock:   # callbacks wait for the bar
                self._tmgr.register_callback(self._changed)
                self._open = True
                if in_terminal() and TERMINAL.acquire(blocking=False):   # else another one is there
                    self._open_bar()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._quiet:
            return
        with contextlib.suppress(ValueError):   # the application may have unregistered all callbacks
            self._tmgr.unregister_callback(self._changed)
        with self._lock:
            self._open = False   # callbacks may still be pending
            self._running.clear()
            for task in self._tmgr.get_tasks():
                self._note(task, task.state)
            self._show(last=True)
        if self._progress is not None:
            self._progress.stop()
            TERMINAL.release()

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(TextColumn('tasks'), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                                  TextColumn('{task.description}'), console=Console(stderr=True),
                                  redirect_stdout=sys.stdout.isatty())   # a file gets what the application prints
        self._bar = self._progress.add_task('', total=self._total)
        self._progress.start()

    def _changed(self, changed: Any, state: str | None = None) -> None:
        """Handle the callback for one task, or for a bulk of tasks."""
        with self._lock:
            if self._open:
                for task in changed if state is None else [changed]:
                    self._note(task, state or task.state)
                self._show()

    def _note(self, task: Task, state: str) -> None:
        if task.uid in self._before:
            return
        if state == states.AGENT_EXECUTING:
            self._running.add(task.uid)
        elif states.TASK.value(state) > states.TASK.value(states.AGENT_EXECUTING):
            self._running.discard(task.uid)
        if state in states.FINAL:   # a final state may be repeated or corrected
            self._counts[state] += 1
            previous = self._ended.get(task.uid)
            if previous:
                self._counts[previous] -= 1
            self._ended[task.uid] = state

    def _show(self, *, last: bool = False) -> None:
        text = ', '.join([f'{len(self._running)} running'] + [
            f'{count} {state}' for state, count in sorted(self._counts.items()) if count and state != states.DONE])
        if self._progress is not None and self._bar is not None:
            self._progress.update(self._bar, completed=len(self._ended), description=text)
        elif last or time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY
            print(f'tasks: {len(self._ended)}/{self._total} ended, {text}', file=sys.stderr, flush=True)
