"""One run: a session with all its processes in a directory of its own, from its start to the proof that it is gone."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batch_pilots import platform
from conftest import processes_with, told
from slurm_cluster import SlurmCluster

from fault_matrix import workload
from fault_matrix.application import Application, LossError
from fault_matrix.database import Database
from fault_matrix.service import Service
from rp_api.system.processes import pidfd_open

CLIENT = Path(__file__).parents[1] / 'matrix_client.py'
HUB = 'rp_api.coordination.hub.main'
UNRELIABLE_HUB = 'unreliable_hub.py'
SERVICE = 'rp_api.coordination.service.main'
UNRELIABLE_SERVICE = 'unreliable_service.py'
AGENT = 'rp_agent'
GRACE = 10.0
"""Seconds that processes have to be gone after the application has ended."""


@dataclass(frozen=True)
class Size:
    """How large a run is, and how long it and what happens to it may last."""

    tasks: int
    spawner: str
    seconds: float
    """How long a fault lasts that passes by itself."""
    deadline: float
    """Seconds until all tasks must be final and the session closed, the fault included."""


@dataclass
class Plan:
    """What a fault asks of the session that it happens to."""

    pilots: int = 1
    restartable: bool = False
    hub_command: list[str] = field(default_factory=list)
    kind: str = workload.PLAIN
    seconds: float = 0.0
    """Seconds that a task takes at least, if it really runs."""
    all_states: bool = False
    """Whether applications note all states that callbacks are told, and not only final ones."""
    batch: SlurmCluster | None = None
    """The batch system of the pilots, whose jobs may be requeued; without it, pilots are local."""


class Run:
    """A session of `size.tasks` tasks; a context manager that leaves nothing behind."""

    def __init__(self, size: Size, plan: Plan, backend: str, seed: str) -> None:
        self.size = size
        self.random = random.Random(seed)
        self.keep = False   # its files, for somebody to find out what went wrong
        self.directory = Path(tempfile.mkdtemp(prefix='rpf.'))
        self.sessions = self.directory / 'sessions'
        self.session_path = self.sessions / 'matrix'
        self.backend = backend
        self._plan = plan
        self.batch = plan.batch
        self._environ = os.environ | {
            'RADICAL_BASE': str(self.directory),
            'RADICAL_CONFIG_USER_DIR': str(self.directory), 'TMPDIR': str(self.directory / 'tmp')}
        self._database: Database | None = None
        self._service: Service | None = None
        self._ordered = 0
        self.deadline = time.monotonic() + size.deadline
        self.config: dict[str, Any] = {
            'uid': 'matrix', 'tasks': size.tasks, 'spawner': size.spawner, 'pilots': plan.pilots,
            'resource': 'local.exact', 'cores': 8 if size.spawner == workload.REAL else 1000,
            'restartable': plan.restartable, 'hub_command': plan.hub_command, 'kind': plan.kind,
            'seconds': plan.seconds, 'all_states': plan.all_states,
            'deadline': size.deadline, 'dburl': '', 'proxy_url': '',
            'base': str(self.directory / 'sandboxes'), 'sessions': str(self.sessions),
            'marks': str(self.directory / 'marks'), 'told': str(self.directory / 'told'),
            'accepted': str(self.directory / 'accepted'), 'results': str(self.directory / 'results.json'),
            'input': str(self.directory / 'input'), 'outputs': str(self.directory / 'outputs')}
        for name in ('sessions', 'sandboxes', 'marks', 'outputs', 'tmp'):
            (self.directory / name).mkdir()
        (self.directory / 'input').write_bytes(b'x' * workload.FILE_SIZE)
        self._choose_spawner()
        if plan.batch is not None:
            self._use(plan.batch)
        self.application: Application | None = None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self.application is not None:
            self.application.kill()
        self._kill_processes()
        if self._database is not None:
            self._database.close()
        if not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _kill_processes(self) -> None:
        """End all processes of the run, also those that others of them were about to start."""
        deadline = time.monotonic() + GRACE
        while (pids := self.processes()) and time.monotonic() < deadline:
            for pid in pids:
                self.signal(pid, signal.SIGKILL)
            time.sleep(0.01)

    def signal(self, pid: int, number: signal.Signals) -> bool:
        """Send a signal to a process of the run; false if it has ended, also if another process has its number now."""
        descriptor = pidfd_open(pid)
        if descriptor is None:
            return False
        try:
            if str(self.directory).encode() not in told(Path('/proc', str(pid))):
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def prepare(self) -> None:
        """Start what the backend needs, and write down what applications are to do."""
        if self.backend == 'mongodb':
            self._database = Database(self.directory / 'database')
            self.config['dburl'] = self._database.url
        if self.backend == 'rp-hub':
            self._service = Service(self.sessions, self._environ, self._plan.hub_command)
            self.config['proxy_url'] = self._service.url
        (self.directory / 'config.json').write_text(json.dumps(self.config))

    def launch_application(self) -> Application:
        """Start the application, or another one that takes over its session."""
        self.application = Application([sys.executable, str(CLIENT), str(self.directory / 'config.json')],
                                       self._environ, self.directory / 'errors')
        return self.application

    def start_application(self) -> None:
        """Launch the application; returns when it has the session."""
        self.launch_application().expect('open', self.deadline)
        if self._ordered:
            self.order(self._ordered)

    def order(self, tasks: int) -> None:
        """Have the application see to it that there are so many tasks."""
        self._ordered = tasks
        self._running.tell(str(tasks))

    def wait_done(self) -> None:
        """Return when the tasks that were ordered are final: nearly all, or all and recorded if these are all."""
        self._running.expect(str(self._ordered), self.deadline)

    def close(self) -> None:
        """Have the application close its session and end, and end a stand-alone hub, which refuses it while it serves
        a session.
        """
        self._running.tell('close')
        self._running.expect('closed', self.deadline)
        self._running.wait(self.deadline)
        if self._service is not None:
            self._service.stop(self.deadline)

    def kill_application(self) -> None:
        self._running.kill()
        self.application = None

    @property
    def _running(self) -> Application:
        assert self.application is not None
        return self.application

    @property
    def database(self) -> Database:
        """The database server of the session."""
        assert self._database is not None
        return self._database

    @property
    def service(self) -> Service:
        """The stand-alone hub that serves the session."""
        assert self._service is not None
        return self._service

    def application_pid(self) -> int:
        return self._running.pid

    def hub(self) -> int:
        """The process id of the hub."""
        return self._some(HUB, UNRELIABLE_HUB)[0]

    def service_pid(self) -> int:
        """The process id of the stand-alone hub itself."""
        return self._some(SERVICE, UNRELIABLE_SERVICE)[0]

    def agent(self, of: int = 1) -> int:
        """The process id of an agent, any of them, when there are so many."""
        return self.random.choice(self._some(AGENT, count=of))

    def progress(self) -> int:
        """How many tasks the application has been told to be final."""
        return sum(path.read_bytes().count(b'\n') for path in self.directory.glob('told.*'))

    def processes(self) -> dict[int, str]:
        """Command lines of all processes of the run, which have its directory in their environment, but databases."""
        found = processes_with(str(self.directory))
        return {pid: line for pid, line in found.items() if f'{self.directory}/database/' not in line}

    def left(self) -> list[str]:
        """What is there after the end of the session that should not be."""
        deadline = time.monotonic() + GRACE
        while (found := self._left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def _left(self) -> list[str]:
        return [f'process {pid} {line}' for pid, line in self.processes().items()] + [
            f'file {path}' for path in (self.directory / 'tmp').iterdir()]

    def running(self, *programs: str) -> list[int]:
        """The processes of the run that execute one of these programs."""
        return sorted(pid for pid, line in self.processes().items() if any(program in line for program in programs))

    def _some(self, *programs: str, count: int = 1) -> list[int]:
        """Processes of the run that execute one of these programs; waits until there are so many."""
        while time.monotonic() < self.deadline:
            if len(found := self.running(*programs)) >= count:
                return found
            time.sleep(0.01)
        raise LossError(f'there are not {count} processes that run {programs[0]}')

    def _use(self, slurm: SlurmCluster) -> None:
        """Make pilots jobs of this Slurm, whose `sbatch` takes a while, so that applications are killed meanwhile."""
        self.config['resource'] = 'test.machine'
        self._environ |= {**slurm.environ, **platform(self.directory, 'slurm://localhost/', 'SLURM')}
        programs = self.directory / 'bin'
        programs.mkdir()
        sbatch = programs / 'sbatch'
        sbatch.write_text(f'#!/bin/sh\nsleep 0.2\n{shutil.which("sbatch")} "$@"\ncode=$?\nsleep 0.2\nexit $code\n')
        sbatch.chmod(0o755)
        self._environ['PATH'] = f'{programs}:{self._environ["PATH"]}'

    def _choose_spawner(self) -> None:
        """Make the executor that the run wants that of the local machine."""
        path = self.directory / '.radical' / 'pilot' / 'configs' / 'resource_local.json'
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({'exact': {'agent_spawner': self.size.spawner}}))
