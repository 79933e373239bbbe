"""A Flux instance on this host: takes jobspecs of version 1 from a socket, runs them in order of arrival, tells events.

What is asked for on the socket, and told there, is a matter of the stand-in alone (see `modules/flux/job.py`). The
events and their contexts are those of Flux RFC 21. It has as many cores as FLUX_STAND_IN_CORES says, or 4. What it does
as the real one (seen with flux-core 0.88):

- Without a PMI each broker is an instance of its own, of size 1, and says nothing about it.
- The output of ranks is read from pipes: a job is active until all processes that have them have ended.
- A rank that fails, where `exit-on-error` is set, raises an exception `exec`; `finish` comes when all have ended.
- Ranks of a job that is cancelled get SIGTERM, those of one whose `duration` is over SIGALRM, and SIGKILL 5 s later.
- Its directory keeps `content.sqlite`, and all that is in it if it is killed.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

CORES = int(os.environ.get('FLUX_STAND_IN_CORES', '4'))
KILL_TIMEOUT = 5.0

# what the PMI of MPICH's mpiexec, and of srun with --mpi=pmi2, tells a process
RANK, SIZE = (int(os.environ[name]) if 'PMI_FD' in os.environ else other for name, other in
              (('PMI_RANK', 0), ('PMI_SIZE', 1)))


class Job:
    """A job: what it asks for, its processes by rank, the wait statuses of those that have ended."""

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        self.number = number
        self.spec = spec
        self.ranks, self.cores = read(spec)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.outputs: set[int] = set()
        """Pipes to which its processes may write."""
        self.statuses: list[int] = []
        self.failed = False
        """An exception was raised."""
        self.started = self.finished = False
        self.events: list[dict[str, Any]] = []
        self.watchers: list[tuple[socket.socket, str]] = []

    @property
    def exit_on_error(self) -> bool:
        return bool(self.spec['attributes']['system']['shell']['options'].get('exit-on-error'))


class Broker:
    """The instance; one thread that waits on its socket and for the ends of processes."""

    def __init__(self) -> None:
        self.directory = tempfile.mkdtemp(prefix='flux-')
        path = f'{self.directory}/local-0'
        self.uri = f'local://{path}'
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        self.jobs: dict[int, Job] = {}
        self.queue: deque[Job] = deque()
        self.free = CORES
        self.unread: dict[socket.socket, bytes] = {}
        self.timers: list[tuple[float, Callable[[], object]]] = []
        self.journals: dict[socket.socket, dict[str, Any]] = {}
        self.ending = False
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self.end)
        self.selector.register(reading, selectors.EVENT_READ, lambda: os.read(reading, 4096))

    def run(self, initial: list[str]) -> int:
        variables = {**os.environ, 'FLUX_URI': self.uri, 'FLUX_STAND_IN_SIZE': str(SIZE)}
        # brokers other than the first one have no initial program: what takes its place ends with this one, also if
        # that is killed
        program = (subprocess.Popen(initial, env=variables) if RANK == 0
                   else subprocess.Popen(['cat'], stdin=subprocess.PIPE))
        try:
            while not self.ending and program.poll() is None:
                for key, _ in self.selector.select(self.until_next_timer()):
                    key.data()
                self.reap()
                self.call_timers()
        finally:
            for job in self.jobs.values():
                self.kill(job, signal.SIGKILL)
            program.kill()
            program.wait()
            os.unlink(f'{self.directory}/local-0')
            Path(self.directory, 'content.sqlite').touch()
        return 143 if self.ending else program.returncode

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        self.timers.append((time.monotonic() + seconds, call))

    def until_next_timer(self) -> float | None:
        return max(0.0, min(due for due, _ in self.timers) - time.monotonic()) if self.timers else None

    def call_timers(self) -> None:
        due = [timer for timer in self.timers if timer[0] <= time.monotonic()]
        self.timers = [timer for timer in self.timers if timer not in due]
        for _, call in due:
            call()

    def end(self, *_: Any) -> None:
        self.ending = True

    def accept(self) -> None:
        peer, _ = self.listener.accept()
        self.unread[peer] = b''
        self.selector.register(peer, selectors.EVENT_READ, lambda: self.read(peer))

    def read(self, peer: socket.socket) -> None:
        try:
            data = peer.recv(1 << 20)
        except ConnectionResetError:   # it was killed, or has closed before it had read all
            data = b''
        if not data:
            self.selector.unregister(peer)
            del self.unread[peer]
            self.journals.pop(peer, None)
            peer.close()
            return
        *lines, self.unread[peer] = (self.unread[peer] + data).split(b'\n')
        for line in lines:
            request = json.loads(line)
            getattr(self, request['do'])(peer, request)

    def submit(self, peer: socket.socket, request: dict[str, Any]) -> None:
        try:
            job = Job(len(self.jobs) + 1, json.loads(request['jobspec']))
        except (KeyError, TypeError, ValueError) as error:
            answer(peer, request, error=f'jobspec: {error!r}')
            return
        self.jobs[job.number] = job
        answer(peer, request, id=job.number)
        self.tell(job, 'submit')
        if job.cores > CORES:
            self.tell(job, 'exception', type='alloc', severity=0, note='unsatisfiable request')
            job.finished = True
            self.tell(job, 'clean')
            return
        if request['urgency']:   # else it is held
            self.queue.append(job)
            self.start_some()

    def watch(self, peer: socket.socket, request: dict[str, Any]) -> None:
        job = self.jobs[request['id']]
        job.watchers.append((peer, request['key']))
        for event in job.events:
            answer(peer, request, event=event)

    def cancel(self, peer: socket.socket, request: dict[str, Any]) -> None:
        job = self.jobs[request['id']]
        answer(peer, request)
        self.end_job(job, signal.SIGTERM, 'cancel')

    def events_journal(self, peer: socket.socket, request: dict[str, Any]) -> None:
        """All active jobs, then what happens to any."""
        for job in self.jobs.values():
            if not job.finished:
                answer(peer, request, id=job.number, events=job.events, jobspec=job.spec)
        answer(peer, request, id=-1, events=[])
        self.journals[peer] = request

    def end_job(self, job: Job, number: int, kind: str, note: str = '') -> None:
        """An exception of severity 0."""
        if job.failed or job.finished:
            return
        job.failed = True
        self.tell(job, 'exception', type=kind, severity=0, note=note)
        if not job.started:
            if job in self.queue:
                self.queue.remove(job)
            job.finished = True
            self.tell(job, 'clean')
        else:
            self.kill(job, number)
            self.later(KILL_TIMEOUT, lambda: self.kill(job, signal.SIGKILL))

    def start_some(self) -> None:
        while self.queue and self.queue[0].cores <= self.free:
            job = self.queue.popleft()
            self.free -= job.cores
            self.tell(job, 'alloc')
            system = job.spec['attributes']['system']
            output = system['shell']['options']['output']
            paths = [output[name]['path'] for name in ('stdout', 'stderr')]
            for path in paths:
                open(path, 'wb').close()
            for rank in range(job.ranks):
                variables = {**system['environment'], 'FLUX_URI': self.uri, 'FLUX_TASK_RANK': str(rank),
                             'FLUX_JOB_SIZE': str(job.ranks)}
                pipes = [self.output(job, path) for path in paths]
                job.processes[rank] = subprocess.Popen(
                    job.spec['tasks'][0]['command'], cwd=system['cwd'], env=variables, stdin=subprocess.DEVNULL,
                    stdout=pipes[0], stderr=pipes[1], preexec_fn=os.setpgrp)
                for pipe in pipes:
                    os.close(pipe)
            job.started = True
            self.tell(job, 'start')
            if system['duration']:
                self.later(system['duration'], partial(
                    self.end_job, job, signal.SIGALRM, 'timeout', 'resource allocation expired'))

    def output(self, job: Job, path: str) -> int:
        """The write end of a pipe from which a file is filled."""
        reading, writing = os.pipe()
        job.outputs.add(reading)
        self.selector.register(reading, selectors.EVENT_READ, lambda: self.copy(job, reading, path))
        return writing

    def copy(self, job: Job, reading: int, path: str) -> None:
        data = os.read(reading, 65536)
        if data:
            with open(path, 'ab') as file:
                file.write(data)
        else:
            self.selector.unregister(reading)
            os.close(reading)
            job.outputs.discard(reading)

    def reap(self) -> None:
        for job in [job for job in self.jobs.values() if job.started and not job.finished]:
            for rank, process in list(job.processes.items()):
                code = process.poll()
                if code is not None:
                    del job.processes[rank]
                    code = 128 - code if code < 0 else code   # as the shell of a job tells it
                    job.statuses.append(code << 8)
                    if code and job.exit_on_error:
                        self.end_job(job, signal.SIGTERM, 'exec',
                                     f'task rank {rank} failed (Exit {code}) and exit-on-error is set')
            if not job.processes and not job.outputs:
                job.finished = True
                self.free += job.cores
                self.tell(job, 'finish', status=max(job.statuses))
                self.tell(job, 'clean')
        self.start_some()

    @staticmethod
    def kill(job: Job, number: int) -> None:
        for process in job.processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def tell(self, job: Job, name: str, **context: Any) -> None:
        event = {'timestamp': 0.0, 'name': name, 'context': context}
        job.events.append(event)
        for peer, key in job.watchers:
            answer(peer, {'key': key}, event=event)
        spec = {'jobspec': job.spec} if name == 'submit' else {}
        for peer, request in self.journals.items():
            answer(peer, request, id=job.number, events=[event], **spec)


def answer(peer: socket.socket, request: dict[str, Any], **values: Any) -> None:
    with suppress(OSError):
        peer.sendall(json.dumps({'key': request['key'], **values}).encode() + b'\n')


def read(spec: dict[str, Any]) -> tuple[int, int]:
    """Ranks and cores of a jobspec, which must be one of RFC 25."""
    if spec['version'] != 1 or set(spec) != {'version', 'resources', 'tasks', 'attributes'}:
        raise ValueError('not a jobspec of version 1')
    vertex, = spec['resources']
    nodes = 1
    if vertex['type'] == 'node':
        nodes = vertex['count']
        vertex, = vertex['with']
    if vertex['type'] != 'slot' or not vertex['label']:
        raise ValueError('no slot')
    cores = next(each['count'] for each in vertex['with'] if each['type'] == 'core')
    task, = spec['tasks']
    if task['slot'] != vertex['label']:
        raise ValueError(f'no slot of the label {task["slot"]}')
    slots = nodes * vertex['count']
    count = task['count']
    ranks = count['total'] if 'total' in count else count['per_slot'] * slots
    if not spec['attributes']['system']['duration'] >= 0:
        raise ValueError('duration')
    return ranks, slots * cores


if __name__ == '__main__':
    sys.exit(Broker().run(sys.argv[1:]))
