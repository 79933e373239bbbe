"""A Flux instance on this host: takes jobspecs of version 1 from a socket, runs them in order of arrival, tells events.

What is asked for on the socket, and told there, is a matter of the stand-in alone (see `modules/flux/job.py`). The
events and their contexts are those of Flux RFC 21. It has as many cores as FLUX_STAND_IN_CORES says, or 4.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from contextlib import suppress
from typing import Any

CORES = int(os.environ.get('FLUX_STAND_IN_CORES', '4'))


class Job:
    """A job: what it asks for, its processes by rank, the wait statuses of those that have ended."""

    def __init__(self, number: int, spec: dict[str, Any]) -> None:
        self.number = number
        self.spec = spec
        self.ranks, self.cores = read(spec)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.statuses: list[int] = []
        self.cancelled = False
        self.events: list[dict[str, Any]] = []
        self.watchers: list[tuple[socket.socket, str]] = []


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
        self.ending = False
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self.end)
        self.selector.register(reading, selectors.EVENT_READ, lambda: os.read(reading, 4096))

    def run(self, initial: list[str]) -> int:
        program = subprocess.Popen(initial, env={**os.environ, 'FLUX_URI': self.uri})
        try:
            while not self.ending and program.poll() is None:
                for key, _ in self.selector.select():
                    key.data()
                self.reap()
        finally:
            for job in self.jobs.values():
                self.kill(job, signal.SIGKILL)
            program.kill()
            program.wait()
            shutil.rmtree(self.directory)
        return 143 if self.ending else program.returncode

    def end(self, *_: Any) -> None:
        self.ending = True

    def accept(self) -> None:
        peer, _ = self.listener.accept()
        self.unread[peer] = b''
        self.selector.register(peer, selectors.EVENT_READ, lambda: self.read(peer))

    def read(self, peer: socket.socket) -> None:
        data = peer.recv(1 << 20)
        if not data:
            self.selector.unregister(peer)
            del self.unread[peer]
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
            self.tell(job, 'clean')
            return
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
        if job.cancelled or (job.statuses and not job.processes):
            return
        job.cancelled = True
        self.tell(job, 'exception', type='cancel', severity=0, note='')
        if job in self.queue:
            self.queue.remove(job)
            self.tell(job, 'clean')
        else:
            self.kill(job, signal.SIGTERM)

    def start_some(self) -> None:
        while self.queue and self.queue[0].cores <= self.free:
            job = self.queue.popleft()
            self.free -= job.cores
            self.tell(job, 'alloc')
            system = job.spec['attributes']['system']
            output = system['shell']['options']['output']
            with open(output['stdout']['path'], 'ab') as out, open(output['stderr']['path'], 'ab') as err:
                for rank in range(job.ranks):
                    variables = {**system['environment'], 'FLUX_TASK_RANK': str(rank), 'FLUX_JOB_SIZE': str(job.ranks)}
                    job.processes[rank] = subprocess.Popen(
                        job.spec['tasks'][0]['command'], cwd=system['cwd'], env=variables, stdin=subprocess.DEVNULL,
                        stdout=out, stderr=err, start_new_session=True)
            self.tell(job, 'start')

    def reap(self) -> None:
        for job in [job for job in self.jobs.values() if job.processes]:
            for rank, process in list(job.processes.items()):
                code = process.poll()
                if code is not None:
                    del job.processes[rank]
                    job.statuses.append(-code if code < 0 else code << 8)
            if not job.processes:
                self.free += job.cores
                self.tell(job, 'finish', status=max(job.statuses))
                self.tell(job, 'clean')
        self.start_some()

    @staticmethod
    def kill(job: Job, number: int) -> None:
        for process in job.processes.values():
            os.killpg(process.pid, number)

    @staticmethod
    def tell(job: Job, name: str, **context: Any) -> None:
        event = {'timestamp': 0.0, 'name': name, 'context': context}
        job.events.append(event)
        for peer, key in job.watchers:
            answer(peer, {'key': key}, event=event)


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
