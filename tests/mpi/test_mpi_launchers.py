"""MPI programs on this machine, with the launchers of four MPIs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rp_api import states
from rp_api.system.processes import read_process

from .conftest import ALL
from .installations import CHECK, Mpi
from .ranks_bench import bench, check

Install = Callable[[str], Mpi]
HERE = [('localhost', 0)]


@pytest.mark.parametrize('name', ALL)
def test_ranks_on_one_node(install: Install, programs: Path, tmp_path: Path, name: str) -> None:
    """A program in C and one with mpi4py, at the same time."""
    mpi = install(name)
    with bench(tmp_path, 'MPIEXEC', pre_exec=mpi.pre_exec) as table:
        compiled = table.task('compiled', HERE * 4, executable=mpi.compiled(programs))
        python = table.task('python', HERE * 3, executable=mpi.python, arguments=[str(CHECK.with_suffix('.py'))])
        table.run(compiled, python)
        for task in (compiled, python):
            check(task)
        assert compiled.extra['launch']['launch_command'].startswith(f'{mpi.programs}/mpiexec ')


@pytest.mark.parametrize('name', ['wheel mpich', 'Debian openmpi'])
def test_ranks_are_bound_to_their_cores(install: Install, programs: Path, tmp_path: Path, name: str) -> None:
    mpi = install(name)
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    with bench(tmp_path, 'MPIRUN', cpus=cpus, pre_exec=mpi.pre_exec) as table:
        cores = [len(cpus) - 1, 0]
        task = table.task('bound', [('localhost', core) for core in cores], executable=mpi.compiled(programs))
        table.run(task)
        assert [each.cpus for each in check(task)] == [(cpus[core],) for core in cores]


@pytest.mark.parametrize('name', ALL)
@pytest.mark.parametrize('commands', [[], ['true']], ids=['program', 'script'])
def test_each_rank_sees_its_own_gpus(install: Install, tmp_path: Path, name: str, commands: list[str]) -> None:
    """Not as many as the others, and not the same."""
    mpi = install(name)
    with bench(tmp_path, 'MPIRUN', pre_exec=mpi.pre_exec) as table:
        gpus: tuple[list[int], ...] = ([0, 3], [1], [])
        task = table.task('gpus', HERE * 3, executable='env', gpu_type='CUDA', gpus_per_rank=2, pre_exec=commands)
        for slot, indices in zip(task.slots or (), gpus, strict=True):
            slot['gpus'] = [{'index': index, 'occupation': 1.0} for index in indices]
        table.run(task)
        assert task.target_state == states.DONE, task.exception_detail
        lines = (tmp_path / 'gpus' / 'gpus.out').read_text().splitlines()
        assert sorted(line for line in lines if line.startswith('CUDA_VISIBLE')) == [
            'CUDA_VISIBLE_DEVICES=', 'CUDA_VISIBLE_DEVICES=0,3', 'CUDA_VISIBLE_DEVICES=1']


@pytest.mark.parametrize('name', ['wheel mpich', 'Debian mpich', 'Debian openmpi'])
def test_a_rank_that_fails_ends_all(install: Install, programs: Path, tmp_path: Path, name: str) -> None:
    mpi = install(name)
    with bench(tmp_path, 'MPIEXEC', pre_exec=mpi.pre_exec) as table:
        fails, aborts = (table.task(how, HERE * 3, executable=mpi.compiled(programs), arguments=[how, '1'])
                         for how in ('fail', 'abort'))
        table.run(fails, aborts)
        assert (fails.target_state, fails.exit_code) == (states.FAILED, 7)
        assert (fails.exception_detail or '').startswith('exit code: 7 of rank 1; launched by `')
        # the launcher may end that rank before it has told how it ends
        assert (aborts.target_state, aborts.exit_code) == (states.FAILED, 5)
        assert 'abort.err, which ends with:\n' in (aborts.exception_detail or '')


@pytest.mark.parametrize('name', ALL)
def test_a_cancelled_task_leaves_nothing(install: Install, programs: Path, tmp_path: Path, name: str) -> None:
    mpi = install(name)
    with bench(tmp_path, 'MPIEXEC', pre_exec=mpi.pre_exec) as table:
        task = table.task('waits', HERE * 3, executable=mpi.compiled(programs), arguments=['wait'])
        table.when(lambda: len(list((tmp_path / 'waits').glob('rank.*'))) == 3,
                   lambda: table.executor.cancel(['waits']))
        table.run(task)
        assert (task.target_state, task.exception) == (states.CANCELED, None)


def test_a_rank_that_is_killed(install: Install, programs: Path, tmp_path: Path) -> None:
    mpi = install('wheel mpich')
    with bench(tmp_path, 'MPIEXEC', pre_exec=mpi.pre_exec) as table:
        task = table.task('killed', HERE * 3, executable=mpi.compiled(programs), arguments=['wait'],
                          pre_exec=[{'2': 'echo $$ >pid'}])
        table.when(lambda: len(list((tmp_path / 'killed').glob('rank.*'))) == 3,
                   lambda: _kill_child_of(int((tmp_path / 'killed' / 'pid').read_text())))
        table.run(task)
        assert (task.target_state, task.exit_code) == (states.FAILED, -9)
        assert 'killed by signal 9 (SIGKILL) of rank 2' in (task.exception_detail or '')


def _kill_child_of(shell: int) -> None:
    children = Path(f'/proc/{shell}/task/{shell}/children').read_text().split()
    assert len(children) == 1
    assert read_process(shell) is not None
    os.kill(int(children[0]), 9)


def test_environment_and_scripts(install: Install, programs: Path, tmp_path: Path) -> None:
    mpi = install('wheel mpich')
    with bench(tmp_path, 'MPIEXEC', pre_exec=mpi.pre_exec) as table:
        description: dict[str, Any] = {
            'pre_launch': ['echo pre_launch >>log'], 'pre_exec': ['sleep 0.0$RP_RANK; echo pre_exec >>log'],
            'pre_exec_sync': True, 'environment': {'MINE': '$RP_TASK_ID'}, 'post_exec': ['echo post_exec $MINE >>log'],
            'post_launch': ['echo post_launch >>log']}
        task = table.task('steps', HERE * 3, executable=mpi.compiled(programs), **description)
        table.run(task)
        check(task)
        lines = (tmp_path / 'steps' / 'log').read_text().splitlines()
        assert lines == ['pre_launch', *['pre_exec'] * 3, *['post_exec steps'] * 3, 'post_launch']
