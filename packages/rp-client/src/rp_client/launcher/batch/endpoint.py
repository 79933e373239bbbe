"""The jobs of one URL: a thread that submits, polls and cancels them.

Requests and events are maps of plain data (`process.py` lists them). One script for all jobs writes their files, or
reads the ends of their files. All jobs are polled at once, more often while changes are likely. While the batch system
cannot be reached, submissions are retried (`retry.py`).
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
from rp_client.launcher.batch.leftovers import copy_there, last_lines, place, replace
from rp_client.launcher.batch.retry import RETRY_TIMEOUT_S, Postponed
from rp_client.launcher.batch.saga.jobs import SagaJobs
from rp_client.launcher.batch.saga.service import SagaService, load_saga
from rp_client.launcher.batch.shell import Shell, ShellResult, ShellTimeoutError
from rp_client.launcher.batch.systems.base import FINAL, GONE, Adapted, Delegated, Status, Submitting
from rp_client.launcher.batch.systems.registry import batch_system
from rp_client.launcher.batch.systems.request import JobRequest

ACTIVE_POLL_INTERVAL_S = 1.0
"""Seconds between polls while jobs are new, or have just changed."""

POLL_INTERVAL_S = 3.0
"""Seconds between polls otherwise."""

YOUNG = 60.0
"""Seconds after which a job without changes is polled less often."""

FORGOTTEN = 5
"""Consecutive polls without an unknown job after which it counts as gone, as accounting may lag."""

FORGOTTEN_AT_ONCE = 2
"""The same for a batch system that forgets jobs when they end."""

Event = dict[str, Any]


class _UnreachableError(Exception):
    """The batch system could not be reached; the text is its output, or that of its program."""


class _FullError(_UnreachableError):
    """The batch system takes no more jobs for the moment."""


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
    """The jobs of one URL; `tell(event)` is called in the endpoint's thread."""

    def __init__(self, url: str, tell: Callable[[Event], None]) -> None:
        self.url = url
        self.busy_since: float | None = None
        self._tell = tell
        self._shell = Shell(url)
        self._system = batch_system(url)
        self._service: SagaService | None = None
        self._saga_jobs: SagaJobs | None = None
        self._not_open: PlatformError | None = None
        self._jobs: dict[str, _Job] = {}
        self._unsubmitted: set[str] = set()
        self._postponed = Postponed()
        self._cancelled: set[str] = set()
        # not a `SimpleQueue`, whose `get` sometimes ignores its timeout (CPython 3.10 to 3.12)
        self._requests: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._handlers: Mapping[str, Callable[..., None]] = {
            'open': self._do_open, 'submit': self._do_submit, 'retry': self._do_retry, 'watch': self._do_watch,
            'cancel': self._do_cancel, 'check': self._do_check, 'poll': self._do_poll}
        self._thread = threading.Thread(target=self._serve, name=url, daemon=True)
        self._thread.start()

    def request(self, request: Mapping[str, Any]) -> None:
        """Queue a request."""
        if request['op'] == 'submit':
            self._unsubmitted.update(job['key'] for job in request['jobs'])
        if request['op'] == 'cancel':   # jobs that are still queued here are not submitted
            self._cancelled.update(self._unsubmitted.intersection(request['keys']))
        self._requests.put(request)

    def close(self, timeout: float) -> None:
        """End the thread and the connection, but not the jobs."""
        self._requests.put(None)
        self._thread.join(timeout)
        with suppress(Exception):   # the process ends, and reports no more errors
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
        """Return the seconds until the next poll or retry; None if neither is due."""
        now = time.monotonic()
        moments = [] if self._postponed.next is None else [self._postponed.next]
        if self._jobs:
            young = any(now - job.changed < YOUNG for job in self._jobs.values())
            moments.append(asked + (ACTIVE_POLL_INTERVAL_S if young else POLL_INTERVAL_S))
        return max(0.0, min(moments) - now) if moments else None

    def _carry_out(self, request: Mapping[str, Any]) -> None:
        self.busy_since = time.monotonic()
        try:
            arguments = {key: value for key, value in request.items() if key not in ('op', 'url')}
            self._handlers[request['op']](**arguments)
        except PlatformError as error:
            self._tell({'event': 'trouble', 'url': self.url, 'reason': str(error)})
        except Exception as error:   # a defect, which must not leave requests without an answer
            traceback.print_exc()
            reason = f'{request["op"]} failed unexpectedly: {type(error).__name__}: {error}'
            for job in request.get('jobs', ()):
                if job['key'] in self._unsubmitted:
                    self._refuse(job['key'], reason)
            self._tell({'event': 'trouble', 'url': self.url, 'reason': reason})
        finally:
            self.busy_since = None

    def _do_open(self) -> None:
        """Prepare the connection for the first jobs; they report an error without a second attempt."""
        if isinstance(self._system, Adapted):
            threading.Thread(target=load_saga, daemon=True).start()
        try:
            self._shell.run('true')
        except PlatformError as error:
            self._not_open = error

    def _run(self, script: str) -> ShellResult:
        """Run the first script of a request; raises the error of `open`, if there was one."""
        error, self._not_open = self._not_open, None
        if error is not None:
            raise error
        return self._shell.run(script)

    def _do_submit(self, jobs: list[dict[str, Any]]) -> None:
        new = [job for job in jobs if not job.get('earlier')]
        try:
            self._place(new)
        except PlatformError as error:
            for job in new:
                self._refuse(job['key'], str(error))
            new = []
        self._submit_all([*new, *(job for job in jobs if job.get('earlier'))])

    def _place(self, jobs: Iterable[Mapping[str, Any]]) -> None:
        """Write the files of jobs to their sandboxes."""
        if not jobs:
            return
        result = self._run(place(self._shell, jobs))
        if result.code:
            raise PlatformError(f'the files of the pilot could not be written: {result.output.strip()[-500:]}')
        copy_there(self._shell, jobs, self._goes_on)

    def _do_retry(self) -> None:
        """Submit the postponed jobs that are due."""
        if jobs := self._postponed.due(time.monotonic()):
            self._submit_all(jobs)

    def _goes_on(self) -> None:
        self.busy_since = time.monotonic()

    def _submit_all(self, jobs: Iterable[Mapping[str, Any]]) -> None:
        """Submit jobs; if the batch system cannot be reached for one, or is full, postpone it and the rest."""
        before: _UnreachableError | None = None
        for job in jobs:
            self._goes_on()
            if job['key'] in self._cancelled and not job.get('earlier'):
                self._refuse(job['key'], 'it was cancelled before it was submitted')
                continue
            try:
                if before is not None:
                    raise before
                name = self._submitted(job)
            except _UnreachableError as error:
                before = error
                self._postpone(job, error)
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
        if key in self._cancelled or not job.get('wanted', True):   # while it was submitted
            self._do_cancel([key])

    def _submitted(self, job: Mapping[str, Any]) -> str:
        """Submit a job, and return its id."""
        request = JobRequest(**job['request'])
        system = self._system
        if (job['key'] in self._postponed or job.get('earlier')) and (found := self._submitted_before(request)):
            return found
        if job.get('earlier'):
            self._replace(job)
        if isinstance(system, Delegated):
            return self._delegate().submit(system.description(request))
        if isinstance(system, Adapted):
            return self._opened().submit(system.description(request), system.amendments(request))
        assert isinstance(system, Submitting)
        try:
            result = self._shell.run(system.submit(request))
        except ShellTimeoutError as error:
            # it may be in the queue, and must not be submitted twice
            raise _UnreachableError(str(error)) from None
        said = _said(result.output)
        if result.code and system.is_full(said):
            raise _FullError(said)
        if result.code and system.is_unreachable(said):
            raise _UnreachableError(said)
        name = system.submitted(result.output)
        if result.code or not name:
            raise PlatformError(f'{system.name} on {self._shell.host} did not take the job: '
                                f'{said or f"exit code {result.code}"}')
        return name

    def _submitted_before(self, request: JobRequest) -> str:
        """Return the id of a job whose submission got no answer; empty if it neither waits nor runs."""
        system = self._system
        if isinstance(system, Delegated):
            return self._delegate().find(system.description(request))
        try:
            if self._run(system.alive).code:
                raise _UnreachableError(f'{system.alive.split()[0]} reports that it does not run')
            result = self._shell.run(system.find(request))
        except PlatformError as error:   # nothing is known about the job
            raise _UnreachableError(str(error)) from None
        if system.is_unreachable(result.output):
            raise _UnreachableError(_said(result.output))
        return system.found(result.output, request)

    def _replace(self, job: Mapping[str, Any]) -> None:
        """Keep the jobs of earlier applications from starting, should they be submitted yet, and write the files.

        Raises:
            PlatformError: One of these jobs has started, and is over; or the job is not wanted any more.
        """
        if self._shell.run(replace(job['sandbox'], job['earlier'])).output.strip():
            raise PlatformError('its job, which was submitted by an application that was killed, has started and is '
                                f'over: see {job["sandbox"]}/bootstrap_0.err')
        if job['key'] in self._cancelled or not job.get('wanted', True):
            raise PlatformError('it was cancelled before it was submitted')
        self._place([job])

    def _postpone(self, job: Mapping[str, Any], said: _UnreachableError) -> None:
        if isinstance(said, _FullError):
            self._postponed.add(job, time.monotonic(), full=True)
            self._tell({'event': 'delayed', 'key': job['key'], 'reason':
                        f'{self._system.name} takes no more jobs for now, the job is submitted again later: {said}'})
        elif self._postponed.add(job, time.monotonic()):
            self._tell({'event': 'delayed', 'key': job['key'], 'reason':
                        f'{self._system.name} cannot be reached, the job is submitted again for up to '
                        f'{RETRY_TIMEOUT_S / 60:g} minutes: {said}'})
        else:
            self._refuse(job['key'], f'{self._system.name} could not be reached for {RETRY_TIMEOUT_S / 60:g} minutes, '
                         f'in which the submission was retried: {said}')

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
        self._cancel(names)   # fails for jobs that have ended, which the next poll finds

    def _cancel(self, names: list[str]) -> None:
        if isinstance(self._system, Delegated):
            self._delegate().cancel(names)
        else:
            self._shell.run(self._system.cancel(names))

    def _do_check(self, key: str, script: str) -> None:
        """Run a script on the host, for a query about the platform."""
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
                if status._replace(start='') != job.status._replace(start=''):   # the rest is an estimate
                    job.changed = time.monotonic()
                job.status = status
                if status.state not in FINAL:
                    self._tell({'event': 'state', 'key': job.key, 'state': status.state, 'words': status.words,
                                'unschedulable': status.unschedulable, 'start': status.start})
            if status.state in FINAL:
                ended.append(job)
        if ended:
            self._end(ended)

    def _statuses(self) -> dict[str, Status]:
        names = {job.name: job.sandbox for job in self._jobs.values()}
        if isinstance(self._system, Delegated):
            return self._delegate().statuses(names)
        found = _by_name(self._system.read(self._shell.run(self._system.ask(names)).output), names)
        missing = {name: directory for name, directory in names.items() if name not in found}
        if missing and (script := self._system.ask_history(missing)):
            found |= _by_name(self._system.read_history(self._shell.run(script).output), missing)
        self._count_missing(found)
        return found

    def _count_missing(self, found: dict[str, Status]) -> None:
        missing = [job for job in self._jobs.values() if job.name not in found]
        if missing and self._shell.run(self._system.alive).code:   # without an answer, nothing is known about jobs
            return
        enough = FORGOTTEN_AT_ONCE if self._system.forgets else FORGOTTEN
        for job in self._jobs.values():
            job.missed = job.missed + 1 if job in missing else 0
            if job.missed >= enough:
                found[job.name] = Status(GONE, f'{self._system.name} does not know job {job.name} any more')

    def _end(self, jobs: Iterable[_Job]) -> None:
        """Report the end of jobs with the ends of their files; delete those that would stay in the queue."""
        jobs = list(jobs)
        if names := [job.name for job in jobs if job.status.stays]:
            with suppress(PlatformError):
                self._cancel(names)
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

    def _delegate(self) -> SagaJobs:
        if self._saga_jobs is None:
            self._saga_jobs = SagaJobs(self.url)
        return self._saga_jobs


def _said(output: str) -> str:
    """Return the end of an output as one line, without repeated lines."""
    return '; '.join(dict.fromkeys(line.strip() for line in output.splitlines() if line.strip()))[-500:]


def _by_name(found: Mapping[str, Status], names: Iterable[str]) -> dict[str, Status]:
    """Return the statuses by job id; batch systems show ids with or without the name of the server."""
    short = {name.partition('.')[0]: status for name, status in found.items()}
    statuses = {name: found.get(name, short.get(name.partition('.')[0])) for name in names}
    return {name: status for name, status in statuses.items() if status is not None}
