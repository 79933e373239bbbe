"""The jobs of a batch system that is not there: a file for each, and a process that runs it.

A file `hold` in the directory of the batch system keeps jobs in the queue, a file `stopped.QUEUE` those of a queue, and
with a file `down` the batch system cannot be reached. Commands are short-lived processes, so what they know of a job is
in its file, which one process at a time changes.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(os.environ['RP_STAND_IN'])
CORES = 8
NODES = [socket.gethostname(), 'n2', 'n3', 'n4']
QUEUES = ('batch', 'debug')

QUEUED, RUNNING, ENDED = 'queued', 'running', 'ended'


class RefusedError(Exception):
    """The batch system does not take a job, for the reason that it says."""


@dataclass
class Job:
    """A job as the batch system knows it; times are seconds since the epoch."""

    id: int = 0
    name: str = 'job'
    owner: str = field(default_factory=getpass.getuser)
    queue: str = QUEUES[0]
    project: str = ''
    script: str = ''
    stdout: str = ''
    stderr: str = ''
    directory: str = field(default_factory=lambda: str(Path.home()))
    environ: dict[str, str] = field(default_factory=dict)
    nodes: int = 1
    walltime: float = 0.0
    state: str = QUEUED
    exit_code: int | None = None
    cancelled: bool = False
    rerunable: bool = True
    never: str = ''
    """The reason for which it can never run."""
    submitted: float = field(default_factory=time.time)
    started: float = 0.0
    ended: float = 0.0
    pid: int = 0

    @property
    def hosts(self) -> list[str]:
        """The names of the nodes that it gets."""
        return NODES[:self.nodes]


def reachable() -> bool:
    """Whether the batch system answers."""
    return not (ROOT / 'down').exists()


def is_stopped(queue: str) -> bool:
    """Whether a queue takes jobs, and starts none."""
    return (ROOT / f'stopped.{queue}').exists()


@contextmanager
def _locked() -> Iterator[None]:
    with open(ROOT / 'lock', 'a') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _path(number: int) -> Path:
    return ROOT / f'{number}.job'


def _save(job: Job) -> None:
    new = ROOT / f'{job.id}.new'
    new.write_text(json.dumps(asdict(job)))
    new.rename(_path(job.id))


def load(number: int) -> Job | None:
    """The job of that number."""
    try:
        return Job(**json.loads(_path(number).read_text()))
    except FileNotFoundError:
        return None


def everything() -> list[Job]:
    """All jobs, in the order of their submission."""
    numbers = sorted(int(path.stem) for path in ROOT.glob('*.job'))
    return [job for job in map(load, numbers) if job]


def submit(job: Job, script: str) -> Job:
    """Take a job whose script has that text; `RefusedError` if it cannot run."""
    if job.nodes > len(NODES) and not job.never:
        raise RefusedError(f'{job.nodes} nodes wanted, there are {len(NODES)}')
    with _locked():
        job.id = max((known.id for known in everything()), default=100) + 1
        job.script = str(ROOT / f'{job.id}.script')
        Path(job.script).write_text(script)
        _save(job)
    subprocess.Popen([sys.executable, sys.argv[0], os.environ['RP_STAND_IN_SYSTEM'], 'run', str(job.id)],
                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                     start_new_session=True)
    return job


def cancel(number: int) -> bool:
    """End a job; False if there is nothing to end."""
    with _locked():
        job = load(number)
        if job is None or job.state == ENDED:
            return False
        job.cancelled = True
        if job.state == QUEUED:
            job.state, job.ended = ENDED, time.time()
        _save(job)
    if job.pid:
        _kill(job.pid, signal.SIGTERM)
    return True


def run(number: int, environ: dict[str, str]) -> None:
    """Run a job to its end, when it may start; `environ` is what the batch system tells it."""
    while _waits(number):
        time.sleep(0.02)
    with _locked():
        job = load(number)
        if job is None or job.state == ENDED:
            return
        process = _started(job, environ)
        job.state, job.started, job.pid = RUNNING, time.time(), process.pid
        _save(job)
    code = _waited(process, job.walltime)
    with _locked():
        job = load(number) or job
        job.state, job.ended = ENDED, time.time()
        job.exit_code = code if code >= 0 else 256 - code   # as PBS says that a signal has ended it
        _save(job)


def _waits(number: int) -> bool:
    if (ROOT / 'hold').exists():
        return True
    job = load(number)
    return job is not None and job.state != ENDED and bool(job.never or is_stopped(job.queue))


def _started(job: Job, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    stdout = job.stdout or str(ROOT / f'{job.id}.out')
    with open(stdout, 'ab') as output, open(job.stderr or stdout, 'ab') as errors:
        return subprocess.Popen(['/bin/bash', job.script], cwd=job.directory, stdin=subprocess.DEVNULL, stdout=output,
                                stderr=errors, env=os.environ | job.environ | environ, start_new_session=True)


def _waited(process: subprocess.Popen[bytes], walltime: float) -> int:
    try:
        return process.wait(walltime or None)
    except subprocess.TimeoutExpired:
        _kill(process.pid, signal.SIGTERM)
    try:
        return process.wait(2)
    except subprocess.TimeoutExpired:
        _kill(process.pid, signal.SIGKILL)
        return process.wait()
    finally:
        _kill(process.pid, signal.SIGKILL)   # what the script has left


def _kill(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def node_file(job: Job, lines: list[str]) -> str:
    """The path of a new file with those lines."""
    path = ROOT / f'{job.id}.nodes'
    path.write_text(''.join(f'{line}\n' for line in lines))
    return str(path)


def seconds(text: str) -> float:
    """What `hours:minutes:seconds`, or `hours:minutes`, means."""
    parts = [float(part) for part in text.split(':')]
    return sum(value * factor for value, factor in zip(parts, (3600, 60, 1), strict=False))


def clock(moment: float, form: str = '%a %b %d %H:%M:%S %Y') -> str:
    """A moment as batch systems print it."""
    return time.strftime(form, time.localtime(moment))
