"""Runs the tasks of `rp run` as a sweep, and shows their outputs as they end.

The session is in a temporary directory. On this machine, tasks run in the working directory.
"""

from __future__ import annotations

import math
import os
import queue
import shlex
import shutil
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.description.task import TaskDescription
from rp_api.errors import PilotError
from rp_api.failures.kinds import EXIT
from rp_client.cli.run_inputs import Job
from rp_client.pilot import Pilot
from rp_client.pilot_manager import PilotManager
from rp_client.report import Report
from rp_client.session import Session
from rp_client.task_manager import TaskManager

if TYPE_CHECKING:
    from rp_api.description.pilot import PilotDescription
    from rp_client.cli.joblog import Joblog
    from rp_client.engine.waiting import Show
    from rp_client.sweep import Sweep
    from rp_client.task import Task

_SHOWN = 200
"""Characters of a command that a message shows."""

_REFRESH = 0.5
"""Seconds after which the progress is shown again."""


def run_tasks(pilot: PilotDescription, jobs: Iterator[Job], positions: Sequence[int], attributes: Mapping[str, Any],
              log: Joblog, *, keep_order: bool) -> int:
    """Run tasks, whose commands differ in the words at these positions; return the number of those that failed."""
    local = pilot.resource.startswith('local.')
    todo = (_resolved(job) if local else job for job in jobs)
    todo = (job for job in todo if not log.has(job))
    first = next(todo, None)
    if first is None:
        return 0
    base = tempfile.mkdtemp(prefix='rp-run.')
    try:
        with Session(cfg={'base': base}) as session:
            if local:
                pilot.sandbox = base
                attributes = {**attributes, **_here(base, attributes.get('ranks', 1))}
            pmgr, tmgr = PilotManager(session), TaskManager(session)
            submitted = pmgr.submit_pilots(pilot)
            tmgr.add_pilots(submitted)
            with Report(pmgr.get_pilots).waiting('tasks') as show:
                return _Run(submitted, tmgr, log, keep_order=keep_order).run(
                    _described(first, positions, attributes), chain([first], todo), positions, show)
    finally:
        shutil.rmtree(base, ignore_errors=True)


class _Run:
    """The tasks of a command, and what is shown of them."""

    def __init__(self, pilot: Pilot, tmgr: TaskManager, log: Joblog, *, keep_order: bool) -> None:
        self._pilot = pilot
        self._tmgr = tmgr
        self._log = log
        self._keep_order = keep_order
        self._numbers = array('q')   # of the jobs, by the rows of the sweep
        self._ended: queue.SimpleQueue[Task | Pilot | BaseException] = queue.SimpleQueue()
        self._waiting: dict[int, Task] = {}
        self._next = 0
        self._failed = 0
        self._shown = -math.inf   # when the progress was shown last

    def run(self, description: TaskDescription, jobs: Iterator[Job], positions: Sequence[int],
            show: Show | None) -> int:
        """Run the jobs, and return the number of those that failed.

        Raises:
            PilotError: The pilot has ended before, or the session has failed.
        """
        self._tmgr._engine.on_broken.append(self._ended.put)   # no task ends any more
        self._tmgr.register_callback(self._changed)
        try:
            return self._run(description, jobs, positions, show)
        finally:   # what ends with the session is not shown
            self._tmgr.unregister_callback(self._changed)

    def _run(self, description: TaskDescription, jobs: Iterator[Job], positions: Sequence[int],
             show: Show | None) -> int:
        sweep = self._tmgr.submit_sweep(description, self._rows(jobs, positions))
        self._pilot.register_callback(self._changed)
        try:
            self._follow(sweep, show)
        except (KeyboardInterrupt, SystemExit, PilotError):
            for row in sorted(self._waiting):   # their tasks are not run again
                self._show(self._waiting[row], row)
            raise
        return self._failed

    def _follow(self, sweep: Sweep, show: Show | None) -> None:
        """Show and note all tasks as they end."""
        total = len(sweep)
        seen = bytearray(total)
        count = 0   # of the rows that were seen
        while count < total:
            task = self._take(count, total, show)
            row = int(task.uid.rpartition('.')[2])
            if seen[row]:   # its state was corrected
                continue
            seen[row] = 1
            count += 1
            if not self._keep_order:
                self._show(task, row)
                continue
            self._waiting[row] = task
            while self._next in self._waiting:
                self._show(self._waiting.pop(self._next), self._next)
                self._next += 1

    def _rows(self, jobs: Iterator[Job], positions: Sequence[int]) -> Iterator[tuple[str, ...]]:
        for job in jobs:
            self._numbers.append(job.number)
            yield tuple(job.words[position] for position in positions)

    def _changed(self, ended: Task | Pilot, state: str) -> None:
        if state in states.FINAL:
            self._ended.put(ended)

    def _take(self, count: int, total: int, show: Show | None) -> Task:
        """Return the next task that has ended."""
        while True:
            if show is not None and time.monotonic() >= self._shown + _REFRESH:
                show(count, total)
                self._shown = time.monotonic()
            with suppress(queue.Empty):
                ended = self._ended.get(timeout=_REFRESH if show is not None else None)
                if isinstance(ended, Pilot):
                    raise PilotError(f'{ended.uid} is {ended.state}: {ended.exception or "its runtime is over"}; '
                                     'the same command with --resume goes on')
                if isinstance(ended, BaseException):
                    raise PilotError(f'the session cannot go on: {ended}; the same command with --resume goes on')
                return ended

    def _show(self, task: Task, row: int) -> None:
        """Show the outputs of a task, and then note its end: a task whose output was not seen is run again."""
        shown = _print(task)
        done = task.state == states.DONE
        self._failed += not (done and shown)
        if not shown:
            return
        description = task.description
        code = task.exit_code
        self._log.add(Job(self._numbers[row], [description.executable, *description.arguments]),
                      code if done or code else None)


def _resolved(job: Job) -> Job:
    """Return a job whose program, if it is named by a path, is found in any directory."""
    program, *arguments = job.words
    return Job(job.number, [os.path.abspath(program), *arguments]) if '/' in program else job


def _here(base: str, ranks: int) -> dict[str, Any]:
    """Return the attributes of tasks that run in the working directory and keep their own files in another."""
    base, here = _braced(base), _braced(os.getcwd())
    found: dict[str, Any] = {'stdout': f'{base}/{{i}}.out', 'stderr': f'{base}/{{i}}.err'}
    if ranks == 1:
        return {**found, 'sandbox': here}
    return {**found, 'sandbox': f'{base}/{{i}}',   # launchers leave scripts there
            'pre_exec': [f'cd {shlex.quote(os.getcwd())}']}


def _braced(text: str) -> str:
    """Return a text in which braces stand for themselves."""
    return text.replace('{', '{{').replace('}', '}}')


def _described(job: Job, positions: Sequence[int], attributes: Mapping[str, Any]) -> TaskDescription:
    """Return the description of a sweep whose columns are the words at these positions."""
    words = [_braced(word) for word in job.words]
    for column, position in enumerate(positions, 1):
        words[position] = f'{{{column}}}'
    return TaskDescription({'executable': words[0], 'arguments': words[1:], 'literal_arguments': True, **attributes})


def _print(task: Task) -> bool:
    """Show the outputs of a task, and why it failed if its program has not ended by itself.

    Returns False if the outputs cannot be fetched.
    """
    shown = True
    for opened, stream in ((task.open_stdout, sys.stdout), (task.open_stderr, sys.stderr)):
        text = ''
        try:
            with suppress(OSError, RuntimeError), opened() as file:   # it was not started
                text = file.read().decode('utf-8', 'surrogateescape')
        except PilotError as error:   # its host cannot be reached, which need not last
            print(f'rp run: {error}', file=sys.stderr)
            shown = False
            break
        if text and stream is not None:
            stream.write(text)
            stream.flush()
    if (failure := task.error) is not None and failure.kind != EXIT:
        description = task.description
        command = shorten(shlex.join([description.executable, *description.arguments]), _SHOWN, placeholder=' ...')
        print(f'rp run: {command}: {failure.sentence}', file=sys.stderr)
    for path in (task.description.stdout, task.description.stderr):
        if os.path.isabs(path):
            Path(path).unlink(missing_ok=True)
    return shown
