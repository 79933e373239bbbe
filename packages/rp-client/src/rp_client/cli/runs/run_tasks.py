"""Runs the tasks of `rp run` as a sweep, and shows their outputs as they end.

The session is in a temporary directory. On this machine, tasks run in the working directory.
"""

from __future__ import annotations

import codecs
import json
import math
import os
import queue
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from rp_api import states
from rp_api.coordination.sessions import CLOSED, RESTING, state_of
from rp_api.description.task import TaskDescription
from rp_api.errors import PilotError
from rp_api.failures.kinds import CANCELED, EXIT, PILOT
from rp_client.cli.runs.run_inputs import Job
from rp_client.handles.pilot import Pilot
from rp_client.handles.pilot_manager import PilotManager
from rp_client.handles.session import Session
from rp_client.handles.task_manager import TaskManager
from rp_client.ids import session_uid
from rp_client.report import Report
from rp_client.service.owner import engine_of, owner_of
from rp_client.service.tasks import states_of

if TYPE_CHECKING:
    from rp_api.description.pilot import PilotDescription
    from rp_client.cli.runs.joblog import Joblog
    from rp_client.cli.runs.run_file import RunFile
    from rp_client.engine.waiting import Show
    from rp_client.handles.task import Task

_COMMAND_CHARS = 200
"""Characters of a command that a message shows."""

_REFRESH = 0.5
"""Seconds after which the progress is shown again."""

_BLOCK = 1 << 18
"""Bytes of an output that are passed on together."""

_SETTLE_TIMEOUT = 10.0
"""Seconds that the results of a pilot that has ended may take to arrive."""

_NOT_BY_ITSELF = (CANCELED, PILOT)
"""Kinds of failures of tasks that did not end by themselves."""


def run_tasks(pilot: PilotDescription, jobs: Iterator[Job], positions: Sequence[int], attributes: Mapping[str, Any],
              log: Joblog, file: RunFile, *, keep_order: bool,
              as_json: bool) -> int:
    """Run tasks, whose commands differ in the words at these positions; return the number of those that failed.

    Tasks that run in the session that the file names are waited for, and not run again.
    """
    failed = _finish_earlier(file, log, keep_order=keep_order, as_json=as_json) if file.base else 0
    local = pilot.resource.startswith('local.')
    todo = (_resolved(job) if local else job for job in jobs)
    todo = (job for job in todo if not log.has(job))
    first = next(todo, None)
    if first is None:
        return failed
    with _new_session(file) as session:
        if local:
            pilot.sandbox = session.base
            attributes = {**attributes, **_here(session.base, attributes.get('ranks', 1))}
        pmgr, tmgr = PilotManager(session), TaskManager(session)
        submitted = pmgr.submit_pilots(pilot)
        tmgr.add_pilots(submitted)
        with Report(owner_of(session).pilots).waiting('tasks', lambda: states_of(tmgr)) as show:
            return failed + _Run(submitted, tmgr, log, keep_order=keep_order, as_json=as_json).run(
                _described(first, positions, attributes), chain([first], todo), positions, show)


@contextmanager
def _new_session(file: RunFile) -> Iterator[Session]:
    """Open a session in a temporary directory, which the file names until its end."""
    file.write(tempfile.mkdtemp(prefix='rp-run.'), session_uid())
    try:
        with Session(uid=file.uid, cfg={'base': file.base}, progress=False) as session:   # see `Report` below
            yield session
    finally:
        _remove(file)


def goes_on(file: RunFile) -> bool:
    """Return whether the session of an earlier run, which was killed, may still run its tasks."""
    return os.path.isdir(_directory(file)) and state_of(_directory(file)) not in (CLOSED, RESTING)


def end_earlier(file: RunFile) -> None:
    """End the session of an earlier run, and remove what is left of it."""
    if goes_on(file):
        Session(uid=file.uid, cfg={'base': file.base}, progress=False).close()
    _remove(file)


def _finish_earlier(file: RunFile, log: Joblog, *, keep_order: bool, as_json: bool) -> int:
    """Show and note the tasks of an earlier run that it has not noted, as they end; return how many of them failed."""
    failed = 0
    if os.path.isdir(_directory(file)) and state_of(_directory(file)) != CLOSED:
        with Session(uid=file.uid, cfg={'base': file.base}, progress=False) as session:
            pilots = [pilot for pmgr in session.get_pilot_managers() for pilot in pmgr.get_pilots()]
            for tmgr in session.get_task_managers() if pilots else ():
                with Report(owner_of(session).pilots).waiting('tasks', partial(states_of, tmgr)) as show:
                    failed += _Run(pilots[0], tmgr, log, keep_order=keep_order, as_json=as_json).finish(show)
    _remove(file)
    return failed


def _directory(file: RunFile) -> str:
    return os.path.join(file.base, file.uid) if file.base else ''


def _remove(file: RunFile) -> None:
    """Remove the directory that the file names, and the note."""
    if file.base:
        shutil.rmtree(file.base, ignore_errors=True)
    file.write('', '')


class _Run:
    """The tasks of a command, and what is shown of them."""

    def __init__(self, pilot: Pilot, tmgr: TaskManager, log: Joblog, *, keep_order: bool,
                 as_json: bool = False) -> None:
        self._pilot = pilot
        self._tmgr = tmgr
        self._log = log
        self._keep_order = keep_order
        self._as_json = as_json
        self._seen = bytearray()   # of the rows
        self._ended: queue.SimpleQueue[Task | Pilot | BaseException] = queue.SimpleQueue()
        self._waiting: dict[int, Task | None] = {}   # None: there is nothing to show
        self._next = 0
        self._count = 0   # of the rows that were seen
        self._failed = 0
        self._finishing = False   # whether the tasks are those of an earlier run
        self._shown = -math.inf   # when the progress was shown last

    def run(self, description: TaskDescription, jobs: Iterator[Job], positions: Sequence[int],
            show: Show | None) -> int:
        """Run the jobs, and return the number of those that failed.

        Raises:
            PilotError: The pilot has ended before, or the session has failed.
        """
        engine_of(self._tmgr).on_broken.append(self._ended.put)   # no task ends any more
        self._tmgr.register_callback(self._changed)
        try:
            return self._run(description, jobs, positions, show)
        finally:   # what ends with the session is not shown
            self._tmgr.unregister_callback(self._changed)

    def finish(self, show: Show | None) -> int:
        """Follow the tasks of an earlier run, as `run` does.

        Those that did not end by themselves, and those that wait when the pilot ends, are left out, as they run again.
        """
        self._finishing = True
        self._seen = bytearray(len(self._tmgr.list_tasks()))
        self._tmgr.register_callback(self._changed)
        self._pilot.register_callback(self._changed)
        self._see_all()
        try:
            self._follow(show)
        except PilotError:
            if self._pilot.state not in states.FINAL:
                raise
            self._tmgr.wait_tasks(timeout=_SETTLE_TIMEOUT)
            self._see_all()
        return self._failed

    def _see_all(self) -> None:
        """See the tasks that have ended, which may have been told to an earlier process."""
        for uid in self._tmgr.list_tasks():
            task = self._tmgr.get_tasks(uid)
            if task.state in states.FINAL:
                self._see(task)

    def _run(self, description: TaskDescription, jobs: Iterator[Job], positions: Sequence[int],
             show: Show | None) -> int:
        sweep = self._tmgr.submit_sweep(description, (
            (*(job.words[position] for position in positions), job.number) for job in jobs))
        self._seen = bytearray(len(sweep))
        self._pilot.register_callback(self._changed)
        self._follow(show)
        return self._failed

    def _follow(self, show: Show | None) -> None:
        """Show and note all tasks as they end."""
        try:
            while self._count < len(self._seen):
                self._see(self._take(self._count, len(self._seen), show))
        except (KeyboardInterrupt, SystemExit, PilotError):
            for row in sorted(self._waiting):   # their tasks are not run again
                self._show(self._waiting.pop(row))
            raise

    def _see(self, task: Task) -> None:
        """Show and note a task that has ended, once, or when those before it have ended."""
        row = int(task.uid.rpartition('.')[2])
        if self._seen[row]:   # its state was corrected
            return
        self._seen[row] = 1
        self._count += 1
        shown = None if self._finishing and self._is_over(task) else task
        if not self._keep_order:
            self._show(shown)
            return
        self._waiting[row] = shown
        while self._next in self._waiting:
            self._show(self._waiting.pop(self._next))
            self._next += 1

    def _is_over(self, task: Task) -> bool:
        """Return whether a task of an earlier run has been noted, or runs again."""
        failure = task.error
        return self._log.knew(_job(task)) or (failure is not None and failure.kind in _NOT_BY_ITSELF)

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

    def _show(self, task: Task | None) -> None:
        """Show the outputs of a task, and then note its end: a task whose output was not seen is run again."""
        if task is None:
            return
        shown = _print(task, as_json=self._as_json)
        done = task.state == states.DONE
        self._failed += not (done and shown)
        if shown:
            code = task.exit_code
            self._log.add(_job(task), code if done or code else None)


def _job(task: Task) -> Job:
    """Return the job of a task, whose name is its number."""
    description = task.description
    return Job(int(description.name), [description.executable, *description.arguments])


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
    return TaskDescription({'name': f'{{{len(positions) + 1}}}', 'executable': words[0], 'arguments': words[1:],
                            'literal_arguments': True, **attributes})


def _pass(file: BinaryIO, stream: TextIO) -> None:
    """Write an output, which may be larger than the memory, to a stream."""
    decode = codecs.getincrementaldecoder('utf-8')('surrogateescape').decode
    while data := file.read(_BLOCK):
        stream.write(decode(data))
    stream.write(decode(b'', True))
    stream.flush()


def _print(task: Task, *, as_json: bool) -> bool:
    """Show the outputs of a task, and why it failed if its program has not ended by itself.

    Returns False if the outputs cannot be fetched.
    """
    shown, texts = True, {'stdout': '', 'stderr': ''}
    description, failure = task.description, task.error
    words = [description.executable, *description.arguments]
    for opened, name, stream in ((task.open_stdout, 'stdout', sys.stdout), (task.open_stderr, 'stderr', sys.stderr)):
        try:
            file = opened()
        except (OSError, RuntimeError):   # it was not started
            continue
        except PilotError as error:   # its host cannot be reached, which need not last
            print(f'rp run: {error}', file=sys.stderr)
            shown = False
            break
        with file:
            if as_json:
                texts[name] = file.read().decode(errors='replace')
            else:
                _pass(file, stream)
    if as_json and shown:
        print(json.dumps({'number': int(description.name), 'command': words, 'state': task.state,
                          'exit_code': task.exit_code, 'error': failure.sentence if failure else None, **texts}),
              flush=True)
    elif failure is not None and failure.kind != EXIT:
        command = shorten(shlex.join(words), _COMMAND_CHARS, placeholder=' ...')
        print(f'rp run: {command}: {failure.sentence}', file=sys.stderr)
    for path in (description.stdout, description.stderr):
        if os.path.isabs(path):
            Path(path).unlink(missing_ok=True)
    return shown
