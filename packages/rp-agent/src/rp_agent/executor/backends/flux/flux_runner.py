"""Flux runner: a program that runs jobs in the Flux instance at FLUX_URI, as requested on standard input.

    flux python flux_runner.py
    flux python flux_runner.py --guard MARK

It uses only the standard library and Flux. Requests and news are lines of JSON:

    {"run": uid, "jobspec": {...}}     {"ready": true}                 the instance can be reached
                                       {"unreachable": text}           the instance does not answer; the runner ends
    {"cancel": uid}                    {"started": uid}                the job runs
                                       {"ended": uid, "status": n}     wait status of the worst rank, as in wait(2);
                                                                       with "why" if Flux reports a reason
                                       {"refused": uid, "why": text}   Flux does not accept the job
                                       {"failed": uid, "why": text}    Flux did not run an accepted job to its end

The instance may have jobs of other users, and may outlive the agent. The runner marks its jobs by the attribute
`user.rp`, which begins with the runner's working directory. A new runner first ends the jobs of a killed predecessor,
whose tasks are submitted again. A runner ends when its standard input ends. The guard that it has started then ends the
remaining jobs, also if runner and agent were killed.

Sources: the documentation of the Python bindings of flux-core; RFC 21 (events); `journal.c` of its job manager. An
exception of severity 0 ends a job: if its ranks have been started, `finish` follows with their status, otherwise
`clean`.
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
"""Errors of Flux by which it refuses a job."""

_GONE = (errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ENOTCONN, errno.ESHUTDOWN,
         errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.EPROTO, errno.ENOENT)
"""Errors of a connection to a broker that does not run."""


class FluxJob:
    """A submitted job with its Flux id, and the first exception that ends it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.kind = ''
        self.why = ''
        self.has_lost_node = False


class FluxRunner:
    """The jobs of one instance."""

    def __init__(self, flux: Any, job: Any, mark: str) -> None:
        self._job = job
        self._handle = flux.Flux()
        self._mark = mark
        self._unread = b''
        self._jobs: dict[str, FluxJob] = {}
        self._early: set[str] = set()
        """Tasks that were cancelled before their jobs had ids."""
        os.set_blocking(0, False)
        self._watcher = self._handle.fd_watcher_create(0, self._read, flux.constants.FLUX_POLLIN)

    def run(self) -> None:
        """Handle requests until standard input ends."""
        self._watcher.start()
        send(ready=True)
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
        self._jobs[uid] = FluxJob(number)
        self._job.event_watch_async(self._handle, number).then(self._event, uid)
        if uid in self._early:
            self._early.discard(uid)
            self._cancel(uid)

    def _event(self, future: Any, uid: str) -> None:
        try:
            event = future.get_event()
        except Exception as error:
            end_if_gone(error)
            self._leave(uid, failed=uid, why=f'its events cannot be read: {error}')
            return
        if event is None:
            self._leave(uid, failed=uid, why='its events have ended')
        elif event.name == 'start':
            send(started=uid)
        elif uid in self._jobs:
            self._follow(uid, self._jobs[uid], event)

    def _follow(self, uid: str, job: FluxJob, event: Any) -> None:
        """Handle an event of a job other than its start."""
        if event.name == 'exception':
            kind, note = event.context['type'], event.context.get('note', '')
            job.has_lost_node |= kind == 'node-failure' or note.startswith('node failure')
            if event.context['severity'] == 0 and not job.kind:
                job.kind, job.why = kind, f'{kind}: {note}'
        elif event.name == 'finish' and job.has_lost_node:
            self._leave(uid, failed=uid, why=job.why)
        elif event.name == 'finish':
            self._leave(uid, ended=uid, status=event.context['status'], why=job.why)
        elif event.name == 'clean' and job.kind in ('alloc', 'depend'):   # the instance lacks resources for it
            self._leave(uid, refused=uid, why=job.why)
        elif event.name == 'clean':
            self._leave(uid, failed=uid, why=job.why or 'it was ended before it ran')

    def _leave(self, uid: str, **news: Any) -> None:
        """Send the last news of a job."""
        if self._jobs.pop(uid, None) is not None:
            send(**news)

    def _cancel(self, uid: str) -> None:
        job = self._jobs.get(uid)
        if job is None:
            self._early.add(uid)
        else:
            self._job.cancel_async(self._handle, job.number).then(_ignore)


def _not_submitted(uid: str, error: Exception) -> None:
    """Report that Flux has refused a job or cannot be reached."""
    end_if_gone(error)
    unreached = isinstance(error, OSError) and error.errno not in _REFUSALS
    send(**{'failed' if unreached else 'refused': uid}, why=str(error))


def end_if_gone(error: BaseException) -> None:
    """Report the end of the instance, and end the runner, if an error means that."""
    if isinstance(error, OSError) and error.errno in _GONE:
        send(unreachable=str(error))
        os._exit(1)   # the connection cannot be closed in order


def send(**news: Any) -> None:
    """Write one line of news."""
    sys.stdout.write(json.dumps(news) + '\n')
    sys.stdout.flush()


def _ignore(future: Any) -> None:
    """Ignore the result of a cancellation: the job may have ended."""
    with suppress(OSError):
        future.get()


def end_jobs(flux: Any, job: Any, mark: str) -> None:
    """End the jobs whose mark begins with `mark`, and wait until they have ended.

    Submissions may still be on their way to the job manager. So this submits one more job, which is held: when its
    event comes, all earlier submissions are known.
    """
    handle = flux.Flux()   # the stream ends when it is freed
    # the stream has all active jobs, an answer with the id -1, and then each new event
    journal = handle.rpc('job-manager.events-journal', {}, flags=flux.constants.FLUX_RPC_STREAMING)
    ours: set[int] = set()
    is_last = False
    while ours or not is_last:
        answer = journal.get()
        number = answer['id']
        if number == -1:
            is_last = True
            # the newest first: jobs that wait are gone before those that run make room for them
            for known in sorted(ours, reverse=True):
                _cancel(handle, job, known)
            ours.add(int(job.submit_get_id(job.submit_async(handle, json.dumps(_held(mark)), urgency=0))))
        else:
            attributes = (answer.get('jobspec') or {}).get('attributes') or {}
            if str((attributes.get('user') or {}).get('rp', '')).startswith(mark):
                ours.add(number)
                if is_last:
                    _cancel(handle, job, number)
        if any(event['name'] == 'clean' for event in answer['events']):
            ours.discard(number)
        journal.reset()


def _cancel(handle: Any, job: Any, number: int) -> None:
    with suppress(OSError):   # it is ending
        job.cancel(handle, number, 'its agent has ended')


def _held(mark: str) -> dict[str, Any]:
    """Return the jobspec of a job that does nothing."""
    return {'version': 1,
            'resources': [{'type': 'slot', 'count': 1, 'label': 'task', 'with': [{'type': 'core', 'count': 1}]}],
            'tasks': [{'command': ['true'], 'slot': 'task', 'count': {'per_slot': 1}}],
            'attributes': {'system': {'duration': 0}, 'user': {'rp': f'{mark} end'}}}


def start_guard(mark: str) -> subprocess.Popen[bytes]:
    """Start a process that ends the jobs with this mark when its input ends; sweeps of the agent do not kill it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith('RP_')}
    return subprocess.Popen((sys.executable, os.path.abspath(__file__), '--guard', mark), env=environment,
                            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            start_new_session=True)


def main() -> None:
    """Run jobs until standard input ends; as a guard, then end the jobs that are left."""
    if sys.argv[1:2] == ['--guard']:
        sys.stdin.read()
    import flux
    import flux.constants
    import flux.job

    if sys.argv[1:2] == ['--guard']:
        end_jobs(flux, flux.job, sys.argv[2])
        return
    earlier = f'{os.getcwd()} runner '
    mark = f'{earlier}{os.getpid()}'
    _guard = start_guard(mark)   # its input ends with this process
    try:
        end_jobs(flux, flux.job, earlier)
        FluxRunner(flux, flux.job, mark).run()
    except OSError as error:
        end_if_gone(error)
        raise


if __name__ == '__main__':
    main()
