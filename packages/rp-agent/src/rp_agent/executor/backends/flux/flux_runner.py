"""A program for the Python of Flux: runs jobs in the instance that FLUX_URI names, as it is told on standard input.

    flux python flux_runner.py
    flux python flux_runner.py --guard MARK

It uses the standard library and Flux, nothing of ours. Requests and news are lines of JSON:

    {"run": uid, "jobspec": {...}}     {"ready": true}                 the instance was reached
    {"cancel": uid}                    {"started": uid}                the job runs
                                       {"ended": uid, "status": n}     as wait(2) would tell it, for the worst rank;
                                                                       with "why" if Flux tells a reason
                                       {"refused": uid, "why": text}   Flux does not take the job
                                       {"failed": uid, "why": text}    it took it, but did not run it to its end

The instance may have jobs of others, and may go on when the agent has ended: ours have a mark, the attribute
`user.rp`, which begins with the directory that the program runs in. The jobs of a runner that was killed before are
ended first: their tasks come again. A runner ends when standard input does. The guard that it has started then ends
the jobs that are left, also if runner and agent were killed.

Sources: the documentation of the Python bindings of flux-core; RFC 21 (events); `journal.c` of its job manager. An
exception of severity 0 ends a job, whatever the reason: if its ranks have been started, `finish` follows with their
status, else `clean`.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

_REFUSALS = errno.EINVAL, errno.EPERM
"""Of the errors of Flux, those that are about a job; others are about the way to it."""


class Job:
    """A job that Flux knows by its number, and the first exception that ends it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.kind = ''
        self.why = ''
        self.has_lost_node = False


class Runner:
    """The jobs of one instance."""

    def __init__(self, flux: Any, job: Any, mark: str) -> None:
        self._job = job
        self._handle = flux.Flux()
        self._mark = mark
        self._unread = b''
        self._jobs: dict[str, Job] = {}
        self._early: set[str] = set()
        """Cancelled before their job had a number."""
        os.set_blocking(0, False)
        self._watcher = self._handle.fd_watcher_create(0, self._read, flux.constants.FLUX_POLLIN)

    def run(self) -> None:
        """Do what is asked until nobody asks any more."""
        self._watcher.start()
        tell(ready=True)
        self._handle.reactor_run()

    def _read(self, *_: Any) -> None:
        try:
            data = os.read(0, 1 << 20)
        except BlockingIOError:
            return
        if not data:
            self._watcher.stop()
            self._handle.reactor_stop()
            return
        *lines, self._unread = (self._unread + data).split(b'\n')
        for line in lines:
            request = json.loads(line)
            if 'run' in request:
                self._submit(request['run'], request['jobspec'])
            else:
                self._cancel(request['cancel'])

    def _submit(self, uid: str, jobspec: Any) -> None:
        jobspec['attributes']['user'] = {'rp': self._mark}
        try:
            self._job.submit_async(self._handle, json.dumps(jobspec)).then(self._submitted, uid)
        except Exception as error:
            _not_submitted(uid, error)

    def _submitted(self, future: Any, uid: str) -> None:
        try:
            number = int(self._job.submit_get_id(future))
        except Exception as error:
            self._early.discard(uid)
            _not_submitted(uid, error)
            return
        self._jobs[uid] = Job(number)
        self._job.event_watch_async(self._handle, number).then(self._event, uid)
        if uid in self._early:
            self._early.discard(uid)
            self._cancel(uid)

    def _event(self, future: Any, uid: str) -> None:
        try:
            event = future.get_event()
        except Exception as error:
            self._leave(uid, failed=uid, why=f'its events cannot be read: {error}')
            return
        if event is None:
            self._leave(uid, failed=uid, why='its events have ended')
        elif event.name == 'start':
            tell(started=uid)
        elif uid in self._jobs:
            self._follow(uid, self._jobs[uid], event)

    def _follow(self, uid: str, job: Job, event: Any) -> None:
        """What an event other than the start means for a job."""
        if event.name == 'exception':
            kind, note = event.context['type'], event.context.get('note', '')
            job.has_lost_node |= kind == 'node-failure' or note.startswith('node failure')
            if event.context['severity'] == 0 and not job.kind:
                job.kind, job.why = kind, f'{kind}: {note}'
        elif event.name == 'finish' and job.has_lost_node:
            self._leave(uid, failed=uid, why=job.why)
        elif event.name == 'finish':
            self._leave(uid, ended=uid, status=event.context['status'], why=job.why)
        elif event.name == 'clean' and job.kind in ('alloc', 'depend'):   # it asks for what the instance does not have
            self._leave(uid, refused=uid, why=job.why)
        elif event.name == 'clean':
            self._leave(uid, failed=uid, why=job.why or 'it was ended before it ran')

    def _leave(self, uid: str, **news: Any) -> None:
        """The last news of a job."""
        if self._jobs.pop(uid, None) is not None:
            tell(**news)

    def _cancel(self, uid: str) -> None:
        job = self._jobs.get(uid)
        if job is None:
            self._early.add(uid)
        else:
            self._job.cancel_async(self._handle, job.number).then(_ignore)


def _not_submitted(uid: str, error: Exception) -> None:
    """Flux does not take a job, or was not reached."""
    unreached = isinstance(error, OSError) and error.errno not in _REFUSALS
    tell(**{'failed' if unreached else 'refused': uid}, why=str(error))


def tell(**news: Any) -> None:
    """Send one line of news."""
    sys.stdout.write(json.dumps(news) + '\n')
    sys.stdout.flush()


def _ignore(future: Any) -> None:
    """A job that is to be cancelled may have ended."""
    with suppress(OSError):
        future.get()


def end_jobs(flux: Any, job: Any, mark: str) -> None:
    """End the jobs whose mark begins so, and wait until they have ended.

    Some may still be on their way to the job manager. So one more is submitted, which is held: those before it are
    known when it is.
    """
    handle = flux.Flux()   # which ends the stream when it is freed
    # all jobs that are active, an answer that has the number -1, and from then on each event
    journal = handle.rpc('job-manager.events-journal', {}, flags=flux.constants.FLUX_RPC_STREAMING)
    ours: set[int] = set()
    is_last = False
    while ours or not is_last:
        said = journal.get()
        number = said['id']
        if number == -1:
            is_last = True
            ours.add(int(job.submit_get_id(job.submit_async(handle, json.dumps(_held(mark)), urgency=0))))
        elif _mark_of(said).startswith(mark):
            ours.add(number)
            with suppress(OSError):   # it ends
                job.cancel(handle, number, 'its agent has gone')
        if any(event['name'] == 'clean' for event in said['events']):
            ours.discard(number)
        journal.reset()


def _held(mark: str) -> dict[str, Any]:
    """A job that does nothing."""
    return {'version': 1,
            'resources': [{'type': 'slot', 'count': 1, 'label': 'task', 'with': [{'type': 'core', 'count': 1}]}],
            'tasks': [{'command': ['true'], 'slot': 'task', 'count': {'per_slot': 1}}],
            'attributes': {'system': {'duration': 0}, 'user': {'rp': f'{mark} end'}}}


def _mark_of(said: Any) -> str:
    attributes = (said.get('jobspec') or {}).get('attributes') or {}
    return str((attributes.get('user') or {}).get('rp', ''))


def start_guard(mark: str) -> subprocess.Popen[bytes]:
    """A process that ends the jobs with this mark when its input ends; what kills the agent's processes leaves it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith('RP_')}
    return subprocess.Popen((sys.executable, os.path.abspath(__file__), '--guard', mark), env=environment,
                            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            start_new_session=True)


def main() -> None:
    """Run until standard input ends."""
    if sys.argv[1:2] == ['--guard']:
        sys.stdin.read()
    import flux  # type: ignore[import-not-found]
    import flux.constants  # type: ignore[import-not-found]
    import flux.job  # type: ignore[import-not-found]

    if sys.argv[1:2] == ['--guard']:
        end_jobs(flux, flux.job, sys.argv[2])
        return
    earlier = f'{os.getcwd()} runner '
    mark = f'{earlier}{os.getpid()}'
    _guard = start_guard(mark)   # whose input ends with us
    end_jobs(flux, flux.job, earlier)
    Runner(flux, flux.job, mark).run()


if __name__ == '__main__':
    main()
