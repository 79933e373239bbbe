"""Jobs of applications that were killed while they submitted them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from batch_pilots import platform, use
from batch_systems import BatchSystem, batch_system
from conftest import wait_until

import radical.pilot as rp
from rp_api.system.host import python_program
from rp_client.bootstrap.prepare import stage_0
from rp_client.launcher.batch.frames import pack, received

TIMEOUT = 60.0
SYSTEMS = ['pbspro', 'torque', 'lsf', 'cobalt', 'loadl', 'condor', 'flux']
OVER_SAGA = ('torque', 'cobalt', 'loadl', 'condor')
COUNT = 8

APPLICATION = """
import sys, radical.pilot as rp
out = sys.argv[1]
with rp.Session(uid='camp', cfg={'base': out}) as session:
    if session.attached:
        (pmgr,), (tmgr,) = session.get_pilot_managers(), session.get_task_managers()
    else:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.submit_tasks([rp.TaskDescription(executable='/bin/sh', arguments=['-c', f'echo $RP_TASK_ID >>{out}/ran'])
                           for _ in range(int(sys.argv[2]))])
        tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription(resource='test.machine', cores=8, runtime=10)))
    tmgr.wait_tasks(timeout=60)
    print(*(task.state for task in tmgr.get_tasks()), flush=True)
"""

CANCELLING = """
import sys, time, radical.pilot as rp
from pathlib import Path
out = Path(sys.argv[1])
with rp.Session(uid='camp', cfg={'base': str(out)}) as session:
    if not session.attached:
        pilot = rp.PilotManager(session).submit_pilots(rp.PilotDescription(resource='test.machine', cores=8, runtime=9))
        while not (out / 'asked').exists():
            time.sleep(0.05)
        pilot.cancel()
        print(pilot.wait(timeout=60), flush=True)
        time.sleep(60)
"""


class Submitter:
    """A process that submits jobs, and what it says of them."""

    def __init__(self, system: BatchSystem) -> None:
        self.url = f'{system.system}://localhost/'
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(TIMEOUT)
        with theirs:
            self._process = subprocess.Popen(python_program('rp_client.launcher.batch.process'), stdin=theirs.fileno())
        self._events = received(self._channel)

    def submit(self, sandbox: Path, *submissions: str, **more: Any) -> dict[str, Any]:
        *earlier, name = submissions
        box = str(sandbox)
        command = ['/bin/sh', f'{box}/bootstrap_0.sh', name]
        request = {'name': 'pilot.0000', 'command': command, 'directory': box, 'output': f'{box}/bootstrap_0.out',
                   'error': f'{box}/bootstrap_0.err', 'minutes': 5, 'cores': 8, 'cores_per_node': 8, 'nodes': 1,
                   'queue': 'vanilla' if self.url.startswith('condor') else 'debug'}
        files = {'bootstrap_0.sh': stage_0(), 'pilot.sh': f'echo ran >>{box}/ran; exit 0\n'.encode()}
        self.request('submit', jobs=[{'key': 'p', 'sandbox': box, 'files': files, 'request': request,
                                      'earlier': earlier}])
        return self.next('submitted', 'refused')

    def request(self, op: str, **what: Any) -> None:
        self._channel.sendall(pack({'op': op, 'url': self.url, **what}))

    def next(self, *kinds: str) -> dict[str, Any]:
        return next(event for event in self._events if event['event'] in kinds)

    def close(self) -> None:
        self._channel.close()
        assert self._process.wait(TIMEOUT) == 0


@contextmanager
def submitter(system: BatchSystem) -> Iterator[Submitter]:
    found = Submitter(system)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, base: Path) -> Iterator[BatchSystem]:
    """A batch system that keeps jobs in its queue."""
    if request.param in OVER_SAGA and 'CI' not in os.environ:
        pytest.importorskip('radical.saga')
    with batch_system(request.param) as found:
        use(found.environ | {'HOME': str(base)}, monkeypatch)
        found.hold()
        yield found


def test_a_job_in_the_queue_is_not_submitted_again(system: BatchSystem, tmp_path: Path) -> None:
    """The application that submitted it does not know its id; jobs of other pilots are no matter."""
    with submitter(system) as first:
        jobs = [first.submit(tmp_path / name, 'a')['job'] for name in ('pilot.1', 'pilot', 'pilot.2')]
    with submitter(system) as second:
        found = second.submit(tmp_path / 'pilot', 'a', 'b')['job']
        assert found.partition('.server1')[0] == jobs[1].partition('.server1')[0]
        second.request('cancel', keys=['p'])   # it is watched
        assert second.next('ended')['job'] == found
    assert len(system.jobs()) == 3


ONE = pytest.mark.parametrize('system', ['pbspro'], indirect=True)
"""What depends on files in the sandbox is the same with all batch systems."""


@ONE
def test_a_job_that_was_replaced_does_not_start(system: BatchSystem, tmp_path: Path) -> None:
    """The batch system lists it too late: it is submitted again, and the first one ends when it starts."""
    sandbox = tmp_path / 'pilot'
    with submitter(system) as first:
        first.submit(sandbox, 'a')
    with silent(system.directory / 'bin' / 'qstat'), submitter(system) as second:
        assert second.submit(sandbox, 'a', 'b')['event'] == 'submitted'
    assert len(system.jobs()) == 2
    system.release()
    wait_until(lambda: all(job['state'] == 'ended' for job in system.jobs()))
    assert (sandbox / 'ran').read_text() == 'ran\n'
    assert 'another job was submitted in place of this one' in (sandbox / 'bootstrap_0.err').read_text()


@ONE
def test_a_job_that_is_over_is_not_submitted_again(system: BatchSystem, tmp_path: Path) -> None:
    sandbox = tmp_path / 'pilot'
    with submitter(system) as first:
        first.submit(sandbox, 'a')
    system.release()
    wait_until(lambda: system.jobs()[0]['state'] == 'ended')
    with submitter(system) as second:
        refused = second.submit(sandbox, 'a', 'b')
    assert refused['reason'].endswith(f'has started and is over: see {sandbox}/bootstrap_0.err')
    assert len(system.jobs()) == 1


@contextmanager
def silent(program: Path) -> Iterator[None]:
    """A program of the batch system answers, and lists nothing."""
    text = program.read_text()
    program.write_text('#!/bin/sh\n')
    yield
    program.write_text(text)


@pytest.mark.disorder('the application is killed while it submits the pilot')
@pytest.mark.parametrize('taken', [True, False], ids=['taken', 'not taken yet'])
@pytest.mark.parametrize('held', [True, False], ids=['waits', 'runs'])
def test_an_application_is_killed_while_qsub_runs(base: Path, monkeypatch: pytest.MonkeyPatch, taken: bool,
                                                  held: bool) -> None:
    with batch_system('pbspro') as system:
        go, asked = slow_qsub(system, base, monkeypatch, taken=taken)
        if held:
            system.hold()
        command = [sys.executable, '-c', APPLICATION, str(base), str(COUNT)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=base) as first:
            wait_until(asked.exists)
            first.send_signal(signal.SIGKILL)
        if not taken:
            go.touch()
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=base, text=True) as second:
            if held:
                wait_until(lambda: qsub_calls(system) > 0)
                system.release()
            said = second.communicate(timeout=90)[0]
        go.touch()
        assert said.split() == [rp.DONE] * COUNT
        assert sorted((base / 'ran').read_text().split()) == [f'task.{number:06d}' for number in range(COUNT)]
        if taken:
            assert len(system.jobs()) == 1


@pytest.mark.disorder('the application is killed while it submits the pilot')
@pytest.mark.parametrize('taken', [True, False], ids=['taken', 'not taken yet'])
def test_a_pilot_is_cancelled_while_qsub_runs_and_the_application_killed(
        base: Path, monkeypatch: pytest.MonkeyPatch, taken: bool) -> None:
    """The next application looks for the job, and cancels it."""
    with batch_system('pbspro') as system:
        go, _ = slow_qsub(system, base, monkeypatch, taken=taken)
        system.hold()
        command = [sys.executable, '-c', CANCELLING, str(base)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=base, text=True) as first:
            assert first.stdout is not None
            assert first.stdout.readline() == 'CANCELED\n'
            first.kill()
        go.touch()
        if not taken:
            wait_until(lambda: qsub_calls(system) == 1)
        subprocess.run(command, cwd=base, timeout=90, check=True)
        wait_until(lambda: [job['state'] for job in system.jobs()] == ['ended'])


def slow_qsub(system: BatchSystem, base: Path, monkeypatch: pytest.MonkeyPatch, *, taken: bool) -> tuple[Path, Path]:
    """Have `qsub` make a file when it has, or has not, taken a job, and wait for another; returns the other and it."""
    use(system.environ | {'HOME': str(base)}
        | platform(base, 'pbspro://localhost/', 'PBSPRO', fake_resources=True), monkeypatch)
    qsub = system.directory / 'bin' / 'qsub'
    real = qsub.rename(qsub.with_name('qsub.real'))
    go, asked = base / 'go', base / 'asked'
    wait = f'touch {asked}; for _ in $(seq 600); do test -e {go} && break; sleep 0.1; done'
    qsub.write_text('#!/bin/sh\n' + (f'id=$({real} "$@"); {wait}; echo "$id"\n' if taken else
                                      f'{wait}; exec {real} "$@"\n'))
    qsub.chmod(0o755)
    return go, asked


def qsub_calls(system: BatchSystem) -> int:
    """The number of jobs that the batch system has taken."""
    return len(system.jobs())
