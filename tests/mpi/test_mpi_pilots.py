"""MPI tasks of an application: on its own machine without any configuration, and on several nodes of a Slurm."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from batch_pilots import Managers, platform, use
from conftest import pilot_description
from slurm_cluster import SlurmCluster

import radical.pilot as rp

from .installations import CHECK, Mpi
from .ranks_bench import Seen, read_seen

Install = Callable[[str], Mpi]

LITERAL = ['$RP_RANK', '`date`', '"$(date)"', "it's", r'\$', '%t']
"""Arguments that no shell and no launcher may change."""


@pytest.mark.parametrize('name', ['wheel mpich', 'Debian openmpi'])
def test_mpi_tasks_on_the_own_machine(install: Install, programs: Path, base: Path, monkeypatch: pytest.MonkeyPatch,
                                      name: str) -> None:
    """What is on PATH is used."""
    mpi = install(name)
    monkeypatch.setenv('PATH', f'{mpi.programs}:{os.environ["PATH"]}')
    monkeypatch.setenv('MPI4PY_LIBMPI', mpi.library)
    if 'wheel' in mpi.name:
        monkeypatch.setenv('LD_LIBRARY_PATH', str(Path(mpi.library).parent))
    with rp.Session(cfg={'base': str(base)}) as session:
        managers = Managers(session)
        pilot = managers.pmgr.submit_pilots(pilot_description(base))
        managers.tmgr.add_pilots(pilot)
        descriptions: list[dict[str, Any]] = [{'executable': mpi.compiled(programs), 'ranks': 4},
                        {'executable': mpi.python, 'arguments': [str(CHECK.with_suffix('.py'))], 'ranks': 3},
                        {'executable': mpi.compiled(programs), 'arguments': ['fail', '1'], 'ranks': 2},
                        {'executable': '/bin/true'},
                        {'executable': 'echo', 'arguments': LITERAL, 'ranks': 2, 'literal_arguments': True},
                        {'executable': 'nice', 'ranks': 2, 'nice': 19}]
        tasks = managers.tmgr.submit_tasks([rp.TaskDescription(each) for each in descriptions])
        managers.tmgr.wait_tasks(timeout=50)
        compiled, python, fails, plain, literal, nice = tasks
        assert [task.state for task in tasks] == [rp.DONE, rp.DONE, rp.FAILED, rp.DONE, rp.DONE, rp.DONE], \
            [task.exception_detail for task in tasks]
        for task, ranks in ((compiled, 4), (python, 3)):
            assert [(each.rank, each.size, each.told) for each in seen(task, ranks)] == [
                (rank, ranks, (rank, ranks)) for rank in range(ranks)]
        assert compiled.launch_method == 'MPIEXEC'
        assert (compiled.launch_command or '').startswith(f'{mpi.programs}/mpiexec ')
        assert (fails.exit_code, plain.launch_method) == (7, None)
        assert (nice.launch_method, nice.stdout) == ('MPIEXEC', '19\n19\n')
        assert (literal.launch_method, literal.stdout) == ('MPIEXEC', f'{" ".join(LITERAL)}\n' * 2)
        assert (fails.exception_detail or '').startswith('exit code: 7 of rank 1; launched by `')


def test_mpi_tasks_on_nodes_of_a_slurm(install: Install, programs: Path, slurm: SlurmCluster, base: Path,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that fit a node are started there; others span nodes; what fails says why."""
    mpi = install('wheel mpich')
    use(slurm.environ, monkeypatch)
    srun = {'pre_exec': mpi.pre_exec, 'options': {'arguments': ['--mpi=pmi2']}}
    use(platform(base, 'slurm://localhost/', 'SLURM', launch_methods={'order': ['SRUN'], 'SRUN': srun}), monkeypatch)
    with rp.Session(cfg={'base': str(base)}) as session:
        managers = Managers(session)
        managers.active(nodes=3, cores=0)
        wide: dict[str, Any] = {'executable': mpi.compiled(programs), 'ranks': 3, 'cores_per_rank': 8}
        descriptions = [wide, {'executable': mpi.compiled(programs), 'ranks': 4, 'cores_per_rank': 2},
                        wide | {'arguments': ['fail', '2']}, *[{'executable': '/bin/true'}] * 6,
                        {'executable': 'echo', 'arguments': LITERAL, 'ranks': 3, 'cores_per_rank': 8,
                         'use_mpi': True, 'literal_arguments': True}]
        tasks = managers.tmgr.submit_tasks([rp.TaskDescription(each) for each in descriptions])
        managers.tmgr.wait_tasks(timeout=50)
        assert [task.state for task in tasks] == [rp.DONE, rp.DONE, rp.FAILED, *[rp.DONE] * 7], \
            [task.exception_detail for task in tasks]
        across = seen(tasks[0], 3)
        assert [each.node for each in across] == [slot['node_name'] for slot in tasks[0].slots or ()]
        assert len({each.node for each in across}) == 3
        assert len({each.node for each in seen(tasks[1], 4)}) == 1
        assert tasks[0].launch_method == 'SRUN'
        assert (tasks[2].exit_code, tasks[3].launch_method) == (7, None), tasks[2].exception_detail
        assert (tasks[-1].launch_method, tasks[-1].stdout) == ('SRUN', f'{" ".join(LITERAL)}\n' * 3)


def test_a_cancelled_task_on_nodes_of_a_slurm(install: Install, programs: Path, slurm: SlurmCluster, base: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is left (which is seen at the end), and its nodes are used again."""
    mpi = install('wheel mpich')
    use(slurm.environ, monkeypatch)
    srun = {'pre_exec': mpi.pre_exec, 'options': {'arguments': ['--mpi=pmi2']}}
    use(platform(base, 'slurm://localhost/', 'SLURM', launch_methods={'order': ['SRUN'], 'SRUN': srun}), monkeypatch)
    with rp.Session(cfg={'base': str(base)}) as session:
        managers = Managers(session)
        managers.active(nodes=2, cores=0)
        wide: dict[str, Any] = {'executable': mpi.compiled(programs), 'ranks': 2, 'cores_per_rank': 8}
        waits = managers.tmgr.submit_tasks(rp.TaskDescription(wide | {'arguments': ['wait']}))
        waits.wait(rp.AGENT_EXECUTING, timeout=30)
        waits.cancel()
        next_one = managers.tmgr.submit_tasks(rp.TaskDescription(wide))
        managers.tmgr.wait_tasks(timeout=50)
        assert (waits.state, next_one.state) == (rp.CANCELED, rp.DONE), next_one.exception_detail


def seen(task: rp.Task, ranks: int) -> list[Seen]:
    """What the ranks of a task have seen."""
    return read_seen(Path((task.sandbox or '').partition('://localhost')[2] or task.sandbox or ''), ranks)
