"""Managers of a worker's parts that exchange messages with the master over carriers, an MPI job."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from parts_support import a_worker_of_parts
from worker_support import decoded

from rp_raptor.worker.mpi_launch import Launcher, launcher_of

PROGRAMS = [program for name in ('mpiexec', 'mpiexec.openmpi') if (program := shutil.which(name))]


@pytest.fixture(params=PROGRAMS)
def launcher(request: pytest.FixtureRequest) -> Launcher:
    """Each MPI that is installed."""
    found = launcher_of(request.param)
    assert found
    return found


def test_calls_of_all_parts(tmp_path: Path, launcher: Launcher) -> None:
    with a_worker_of_parts(tmp_path, launcher=launcher) as worker:
        master = worker.master
        assert sorted(worker.carriers()) == [0, 1, 2]
        for part in range(3):
            master.give(part, {100 * part + id: ['who'] for id in range(100)})
        found = [decoded(result)[0] for result in master.wait_results(*range(300))]
        assert [rank // 2 for rank in found] == [part for part in range(3) for _ in range(100)]
        assert worker.stop() == [0, 0, 0]


def noted(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


@pytest.mark.fault
def test_a_carrier_dies_with_large_messages_in_flight(tmp_path: Path, launcher: Launcher) -> None:
    """No call is lost, none runs twice, and the master notices nothing."""
    with a_worker_of_parts(tmp_path, launcher=launcher) as worker:
        master, notes = worker.master, tmp_path / 'notes'
        contents = {id: os.urandom(1 << 20) for id in range(120)}
        for killed in (1, 0):
            for id in range(60 * (1 - killed), 60 * (2 - killed)):
                master.give(1 + id % 2, {id: ['note', str(notes), 0.02, contents[id]]})
            master.wait(lambda: notes.exists() and len(noted(notes)) > 20 + 60 * (1 - killed), 'calls run')   # noqa: B023
            master.wait(lambda: killed in worker.carriers(), 'carriers')   # noqa: B023
            os.kill(worker.carriers()[killed], signal.SIGKILL)
        results = master.wait_results(*contents)
        assert results == [*contents.values()]
        assert sorted(noted(notes)) == [*contents]
        assert master.hellos == {0: 1, 1: 1, 2: 1}
        assert 'the carrier of part 1 was killed by SIGKILL; the carriers are started again' in worker.errors(0)
        assert worker.stop() == [0, 0, 0]
        assert not master.died


@pytest.mark.fault
def test_messages_make_a_detour_while_carriers_start(tmp_path: Path) -> None:
    """Calls that run have their results, without new connections to the master, and carriers take over again."""
    with a_worker_of_parts(tmp_path) as worker:
        master, notes, gate = worker.master, tmp_path / 'notes', tmp_path / 'gate'
        contents = {id: os.urandom(1 << 20) for id in range(40)}
        worker.delay_carriers(gate)
        for id, content in contents.items():
            master.give(1 + id % 2, {id: ['note', str(notes), 0.1, content]})
        master.wait(lambda: notes.exists() and len(noted(notes)) > 4, 'calls run')
        os.kill(worker.carriers()[2], signal.SIGKILL)
        results = master.wait_results(*contents)
        assert results == [*contents.values()]
        assert not worker.carriers()
        gate.touch()
        master.wait(lambda: len(worker.carriers()) == 3, 'carriers')
        master.give(2, {100: ['who']})
        master.wait_results(100)
        assert sorted(noted(notes)) == [*contents]
        assert master.hellos == {0: 1, 1: 1, 2: 1}
        assert worker.stop() == [0, 0, 0]


@pytest.mark.fault
def test_the_first_manager_dies(tmp_path: Path) -> None:
    """The others connect to the master themselves."""
    with a_worker_of_parts(tmp_path) as worker:
        worker.processes[0].kill()
        master = worker.master
        master.wait(lambda: master.hellos[1] == master.hellos[2] == 2, 'new connections')
        master.give(2, {1: ['who']})
        assert decoded(master.wait_results(1)[0])[0] in (4, 5)


@pytest.mark.fault
def test_another_manager_dies(tmp_path: Path) -> None:
    """The rest goes on over the same carriers."""
    with a_worker_of_parts(tmp_path) as worker:
        worker.processes[1].kill()
        master = worker.master
        master.give(2, {1: ['who']})
        assert decoded(master.wait_results(1)[0])[0] in (4, 5)
        assert sorted(worker.carriers()) == [0, 1, 2]
        os.kill(worker.carriers()[0], signal.SIGKILL)
        master.wait(lambda: 'started again' in worker.errors(0), 'the end of the carriers')
        master.give(2, {2: ['who']})
        assert decoded(master.wait_results(2)[0])[0] in (4, 5)
        assert master.hellos[2] == 1


@pytest.mark.parametrize('command', ['exit 3', ''])
def test_carriers_that_do_not_start(tmp_path: Path, command: str) -> None:
    """All managers use connections of their own."""
    argv = ['/bin/sh', '-c', command] if command else ['/does/not/exist']
    with a_worker_of_parts(tmp_path, command=argv) as worker:
        master = worker.master
        master.give(2, {1: ['who']})
        assert decoded(master.wait_results(1)[0])[0] in (4, 5)
        assert 'messages travel over ZeroMQ' in worker.errors(0)
        assert 'it has a connection of its own' in worker.errors(1)
        assert worker.stop() == [0, 0, 0]
