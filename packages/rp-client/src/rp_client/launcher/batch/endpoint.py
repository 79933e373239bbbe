"""The jobs of one URL: a thread that submits them, asks the batch system about them, and cancels them.

Requests and events are maps of plain data (`process.py` lists them). Files go to the host, and ends of files come back,
in one script for all jobs. The batch system is asked about all jobs at once, often while something may change soon. A
job that cannot be submitted because the batch system cannot be reached is submitted again (`retry.py`).
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from rp_api.errors import PlatformError
from rp_client.launcher.batch.leftovers import copy_there, last_lines, place
from rp_client.launcher.batch.retry import RETRY_TIME, Postponed
from rp_client.launcher.batch.saga.service import SagaService, load_saga
from rp_client.launcher.batch.shell import Result, Shell, ShellTimeoutError
from rp_client.launcher.batch.systems.base import FINAL, GONE, Adapted, Status, Submitting
from rp_client.launcher.batch.systems.registry import batch_system
from rp_client.launcher.batch.systems.request import JobRequest

SOON = 1.0
"""Seconds between questions to the batch system while jobs are young, or have just changed."""

LATER = 3.0
"""The same afterwards."""

YOUNG = 60.0
"""Seconds after which a job that has not changed is asked about less often."""

FORGOTTEN = 5
"""How often in a row a batch system that answers must not know a job for it to count as gone: accounting may lag."""

FORGOTTEN_AT_ONCE = 2
"""The same for a batch system that forgets jobs when they end."""

Event = dict[str, Any]


class _UnreachableError(Exception):
    """The batch system could not be reached; the text is what it, or its program, said."""


class _Job:
    __slots__ = ('changed', 'key', 'missed', 'name', 'sandbox', 'status')

    def __init__(self, key: str, name: str, sandbox: str) -> None:
        self.key = key
        self.name = name
        self.sandbox = sandbox
        self.status = Status('')
        self.missed = 0
        self.changed = time.monotonic()


class Endpoint:
    """Serves one URL; `tell(event)` is called in its thread."""

    def __init__(self, url: str, tell: Callable[[Event], None]) -> None:
        self.url = url
        self.busy_since: float | None = None
        self._tell = tell
        self._shell = Shell(url)
        self._system = batch_system(url)
        self._service: SagaService | None = None
        self._not_open: PlatformError | None = None
        self._jobs: dict[str, _Job] = {}
        self._unsubmitted: set[str] = set()
        self._postponed = Postponed()
        self._cancelled: set[str] = set()
        # not a `SimpleQueue`, which at times waits for ever when it is to wait for a moment (CPython 3.10 to 3.12)
        self._requests: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._handlers: Mapping[str, Callable[..., None]] = {
            'open': self._do_open, 'submit': self._do_submit, 'retry': self._do_retry, 'watch': self._do_watch,
            'cancel': self._do_cancel, 'check': self._do_check, 'poll': self._do_poll}
        self._thread = threading.Thread(target=self._serve, name=url, daemon=True)
        self._thread.start()

    def request(self, request: Mapping[str, Any]) -> None:
        """Have a request carried out, after those before it."""
        if request['op'] == 'submit':
            self._unsubmitted.update(job['key'] for job in request['jobs'])
        if request['op'] == 'cancel':   # what was not submitted yet need not be
            self._cancelled.update(self._unsubmitted.intersection(request['keys']))
        self._requests.put(request)

    def close(self, patience: float) -> None:
        """End the thread and the connection; the jobs go on."""
        self._requests.put(None)
        self._thread.join(patience)
        with suppress(Exception):   # nobody is left to be told
            self._shell.close()

    def _serve(self) -> None:
        asked = 0.0
        while True:
            try:
                request = self._requests.get(timeout=self._pause(asked))
            except queue.Empty:
                self._carry_out({'op': 'retry'})
                self._carry_out({'op': 'poll'})
                asked = time.monotonic()
                continue
            if request is None:
                return
            self._carry_out(request)

    def _pause(self, asked: float) -> float | None:
        """Seconds until something is to be asked, or submitted again; None if there is nothing."""
        now = time.monotonic()
        moments = [] if self._postponed.next is None else [self._postponed.next]
        if self._jobs:
            young = any(now - job.changed < YOUNG for job in self._jobs.values())
            moments.append(asked + (SOON if young else LATER))
        return max(0.0, min(moments) - now) if moments else None

    def _carry_out(self, request: Mapping[str, Any]) -> None:
        self.busy_since = time.monotonic()
        try:
            arguments = {key: value for key, value in request.items() if key not in ('op', 'url')}
            self._handlers[request['op']](**arguments)
        except PlatformError as error:
            self._tell({'event': 'trouble', 'url': self.url, 'reason': str(error)})
        except Exception as error:   # a defect, of which nobody may wait for an answer
            traceback.print_exc()
            reason = f'{request["op"]} failed unexpectedly: {type(error).__name__}: {error}'
            for job in request.get('jobs', ()):
                if job['key'] in self._unsubmitted:
                    self._refuse(job['key'], reason)
            self._tell({'event': 'trouble', 'url': self.url, 'reason': reason})
        finally:
            self.busy_since = None

    def _do_open(self) -> None:
        """Do what takes time with the first jobs; should it fail, they tell, without trying it again."""
        if isinstance(self._system, Adapted):
            threading.Thread(target=load_saga, daemon=True).start()
        try:
            self._shell.run('true')
        except PlatformError as error:
            self._not_open = error

    def _run(self, script: str) -> Result:
        """Run the first script of a request."""
        error, self._not_open = self._not_open, None
        if error is not None:
            raise error
        return self._shell.run(script)

    def _do_submit(self, jobs: list[dict[str, Any]]) -> None:
        try:
            result = self._run(place(self._shell, jobs))
            if result.code:
                raise PlatformError(f'the files of the pilot could not be written: {result.output.strip()[-500:]}')
            copy_there(self._shell, jobs, self._goes_on)
        except PlatformError as error:
            for job in jobs:
                self._refuse(job['key'], str(error))
            return
        self._submit_all(jobs)

    def _do_retry(self) -> None:
        """Submit the jobs again whose time has come."""
        if jobs := self._postponed.due(time.monotonic()):
            self._submit_all(jobs)

    def _goes_on(self) -> None:
        self.busy_since = time.monotonic()

    def _submit_all(self, jobs: Iterable[Mapping[str, Any]]) -> None:
        """Submit jobs; when the batch system could not be reached for one, the rest wait like that one."""
        unreachable = ''
        for job in jobs:
            self._goes_on()
            if job['key'] in self._cancelled:
                self._refuse(job['key'], 'it was cancelled before it was submitted')
                continue
            try:
                if unreachable:
                    raise _UnreachableError(unreachable)
                name = self._submitted(job)
            except _UnreachableError as error:
                unreachable = str(error)
                self._postpone(job, unreachable)
            except PlatformError as error:
                self._refuse(job['key'], str(error))
            else:
                self._accept(job, name)

    def _accept(self, job: Mapping[str, Any], name: str) -> None:
        key = job['key']
        self._jobs[key] = _Job(key, name, job['sandbox'])
        self._unsubmitted.discard(key)
        self._postponed.remove(key)
        self._tell({'event': 'submitted', 'key': key, 'job': name})
        if key in self._cancelled:   # meanwhile
            self._do_cancel([key])

    def _submitted(self, job: Mapping[str, Any]) -> str:
        """Submit a job; gives the batch system's id of it."""
        request = JobRequest(**job['request'])
        system = self._system
        if isinstance(system, Adapted):
            return self._opened().submit(system.description(request), system.amendments(request))
        assert isinstance(system, Submitting)
        if job['key'] in self._postponed and (found := self._submitted_before(system, request)):
            return found
        try:
            result = self._shell.run(system.submit(request))
        except ShellTimeoutError as error:
            if not system.find(request):   # it may be there, and must not be there twice
                raise
            raise _UnreachableError(str(error)) from None
        said = _said(result.output)
        if result.code and system.is_unreachable(said):
            raise _UnreachableError(said)
        name = system.submitted(result.output)
        if result.code or not name:
            raise PlatformError(f'{system.name} on {self._shell.host} did not take the job: '
                                f'{said or f"exit code {result.code}"}')
        return name

    def _submitted_before(self, system: Submitting, request: JobRequest) -> str:
        """The id of a job that was submitted without an answer; empty if there is none."""
        if self._shell.run(system.alive).code:
            raise _UnreachableError(f'{system.alive.split()[0]} says that it does not run')
        script = system.find(request)
        if not script:
            return ''
        result = self._shell.run(script)
        if system.is_unreachable(result.output):
            raise _UnreachableError(_said(result.output))
        return system.submitted(result.output)

    def _postpone(self, job: Mapping[str, Any], said: str) -> None:
        if self._postponed.add(job, time.monotonic()):
            self._tell({'event': 'delayed', 'key': job['key'], 'reason':
                        f'{self._system.name} cannot be reached, the job is submitted again for up to '
                        f'{RETRY_TIME / 60:g} minutes: {said}'})
        else:
            self._refuse(job['key'], f'{self._system.name} could not be reached for {RETRY_TIME / 60:g} minutes, in '
                         f'which the job was submitted again and again: {said}')

    def _refuse(self, key: str, reason: str) -> None:
        self._unsubmitted.discard(key)
        self._postponed.remove(key)
        self._cancelled.discard(key)
        self._tell({'event': 'refused', 'key': key, 'reason': reason})

    def _do_watch(self, jobs: list[dict[str, Any]]) -> None:
        for job in jobs:
            self._jobs[job['key']] = _Job(job['key'], job['job'], job['sandbox'])

    def _do_cancel(self, keys: list[str]) -> None:
        for key in keys:
            if key in self._postponed:
                self._refuse(key, 'it was cancelled before it was submitted')
        names = [self._jobs[key].name for key in keys if key in self._jobs]
        if not names:
            return
        self._shell.run(self._system.cancel(names))   # it fails for those that have ended; the next poll tells

    def _do_check(self, key: str, script: str) -> None:
        """Run a script on the host, for those who want to know something about the platform."""
        result = self._run(script)
        self._tell({'event': 'checked', 'key': key, 'code': result.code, 'output': result.output})

    def _do_poll(self) -> None:
        if not self._jobs:
            return
        found = self._statuses()
        ended = []
        for job in list(self._jobs.values()):
            status = found.get(job.name)
            if status is None:
                continue
            if status != job.status:
                job.changed = time.monotonic()
                job.status = status
                if status.state not in FINAL:
                    self._tell({'event': 'state', 'key': job.key, 'state': status.state, 'words': status.words,
                                'unschedulable': status.unschedulable})
            if status.state in FINAL:
                ended.append(job)
        if ended:
            self._end(ended)

    def _statuses(self) -> dict[str, Status]:
        names = {job.name: job.sandbox for job in self._jobs.values()}
        found = _by_name(self._system.read(self._shell.run(self._system.ask(names)).output), names)
        missing = {name: directory for name, directory in names.items() if name not in found}
        if missing and (script := self._system.ask_history(missing)):
            found |= _by_name(self._system.read_history(self._shell.run(script).output), missing)
        self._count_missing(found)
        return found

    def _count_missing(self, found: dict[str, Status]) -> None:
        missing = [job for job in self._jobs.values() if job.name not in found]
        if missing and self._shell.run(self._system.alive).code:   # it does not answer: that says nothing about jobs
            return
        enough = FORGOTTEN_AT_ONCE if self._system.forgets else FORGOTTEN
        for job in self._jobs.values():
            job.missed = job.missed + 1 if job in missing else 0
            if job.missed >= enough:
                found[job.name] = Status(GONE, f'{self._system.name} does not know job {job.name} any more')

    def _end(self, jobs: Iterable[_Job]) -> None:
        """Tell about the end of jobs, with what they have left; have those deleted that would stay in the queue."""
        jobs = list(jobs)
        if names := [job.name for job in jobs if job.status.stays]:
            with suppress(PlatformError):
                self._shell.run(self._system.cancel(names))
        try:
            files = last_lines(self._shell, [job.sandbox for job in jobs])
        except PlatformError:
            files = {}
        for job in jobs:
            del self._jobs[job.key]
            self._cancelled.discard(job.key)
            status = job.status
            self._tell({'event': 'ended', 'key': job.key, 'state': status.state, 'words': status.words,
                        'exit_code': status.exit_code, 'files': files.get(job.sandbox, {}), 'job': job.name})

    def _opened(self) -> SagaService:
        if self._service is None:
            self._service = SagaService(self.url, self._shell)
        return self._service


def _said(output: str) -> str:
    """The last words of a program in one line, each line of them once."""
    return '; '.join(dict.fromkeys(line.strip() for line in output.splitlines() if line.strip()))[-500:]


def _by_name(found: Mapping[str, Status], names: Iterable[str]) -> dict[str, Status]:
    """The statuses of jobs; some batch systems show a job id with, and some without, the name of the server."""
    short = {name.partition('.')[0]: status for name, status in found.items()}
    statuses = {name: found.get(name, short.get(name.partition('.')[0])) for name in names}
    return {name: status for name, status in statuses.items() if status is not None}
