"""The commands of the launch method SRUN, run by a real Slurm."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clusters import SYSTEM_PATH, TIMEOUT
from slurm_cluster import SlurmCluster

from rp_agent.launch_method.base import Job, LaunchMethod, Rank, Setting
from rp_agent.launch_method.srun import Srun
from rp_agent.launch_method.system import LaunchSystem

SETTING = Setting(('n1', 'n2', 'n3', 'n4'), cores_per_node=8, gpus_per_node=2)
EXCLUSIVE = Setting(SETTING.nodes, cores_per_node=8, gpus_per_node=2, exclusive=True)
WAITED = re.compile('srun: (Job [0-9]+ step creation temporarily disabled, retrying|Step created for job)')
TELL = 'echo "$SLURM_PROCID of $SLURM_STEP_NUM_TASKS $SLURMD_NODENAME"'


@pytest.fixture
def environ(slurm: SlurmCluster) -> Iterator[dict[str, str]]:
    """The environment of a job that has all nodes."""
    with allocation(slurm, '--gpus-per-node=2') as found:
        yield found


@contextmanager
def allocation(slurm: SlurmCluster, *options: str) -> Iterator[dict[str, str]]:
    """A job that has all nodes: what programs in it find in their environment."""
    said = slurm.run('salloc', '--no-shell', '--exclusive', '-N4', *options)
    number = said.split('job allocation ')[1].split()[0]
    try:
        yield {**os.environ, 'PATH': SYSTEM_PATH, **slurm.environ, 'SLURM_JOB_ID': number}
    finally:
        slurm.run('scancel', number)


def job(sandbox: Path, *nodes: int, **values: object) -> Job:
    ranks = tuple(Rank(f'n{node}', node - 1) for node in nodes)
    return Job('task.0', str(sandbox), ranks, **{'mpi': len(ranks) > 1, **values})   # type: ignore[arg-type]


def start(method: LaunchMethod, job: Job, script: str, environ: dict[str, str]) -> subprocess.Popen[str]:
    """A launcher that runs the script for each rank."""
    command = method.command(job, ('/bin/sh', '-c', script))
    for name, text in command.files.items():
        (Path(job.sandbox) / name).write_text(text)
    return subprocess.Popen(command.argv, env={**environ, **command.environment}, stdin=subprocess.PIPE, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def run(method: LaunchMethod, job: Job, script: str, environ: dict[str, str]) -> tuple[int, list[str]]:
    process = start(method, job, script, environ)
    said, _ = process.communicate(timeout=TIMEOUT)
    # the controller may not know yet that the step before has ended
    return process.returncode, sorted(line for line in said.splitlines() if not WAITED.match(line))


def test_it_is_found(environ: dict[str, str]) -> None:
    method = Srun.detect(LaunchSystem(environ), SETTING)
    assert method.program.numbers[0] >= 20
    assert not method.chooses_devices


@pytest.mark.parametrize('nodes', [(1, 1, 2, 2), (2, 2, 2, 4), (4, 1, 1), (1, 2, 1), (3,)], ids=str)
@pytest.mark.parametrize('setting', [SETTING, EXCLUSIVE], ids=['shared', 'exclusive'])
def test_ranks_are_where_they_belong(nodes: tuple[int, ...], setting: Setting, environ: dict[str, str],
                                     tmp_path: Path) -> None:
    method = Srun.detect(LaunchSystem(environ), setting)
    code, said = run(method, job(tmp_path, *nodes), TELL, environ)
    assert (code, said) == (0, [f'{rank} of {len(nodes)} n{node}' for rank, node in enumerate(nodes)])


def test_a_pilot_may_count_more_cores_than_slurm(environ: dict[str, str], tmp_path: Path) -> None:
    method = Srun.detect(LaunchSystem(environ), SETTING)
    assert run(method, job(tmp_path, *[1] * 9), 'echo in', environ) == (0, ['in'] * 9)


def test_steps_do_not_wait_for_each_other(environ: dict[str, str], tmp_path: Path) -> None:
    """Both have all cores of a node."""
    method = Srun.detect(LaunchSystem(environ), SETTING)
    first = start(method, job(tmp_path, 1, cores_per_rank=8), 'echo here; read answer; echo "$answer"', environ)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == 'here\n'
        assert run(method, job(tmp_path, 1, cores_per_rank=8), 'echo also here', environ) == (0, ['also here'])
        assert first.communicate('go\n', timeout=TIMEOUT)[0] == 'go\n'
    finally:
        first.kill()
        first.wait()


def test_gpus_of_a_job_whose_steps_slurm_keeps_apart(environ: dict[str, str], tmp_path: Path) -> None:
    method = Srun.detect(LaunchSystem(environ), EXCLUSIVE)
    assert method.chooses_devices
    whole = job(tmp_path, 1, 1, gpus_per_rank=1.0)
    assert run(method, whole, TELL, environ)[0] == 0
    shared = job(tmp_path, 1, 1, 1, 1, gpus_per_rank=0.5)
    code, said = run(method, shared, 'echo "$SLURM_STEP_GPUS"', environ)
    assert (code, said) == (0, ['0,1'] * 4)


@pytest.mark.parametrize('setting', [SETTING, EXCLUSIVE], ids=['shared', 'exclusive'])
@pytest.mark.parametrize('gpus_per_rank', [0.0, 0.5, 1.0])
@pytest.mark.parametrize('nodes', [(1, 1), (1, 2, 1, 2)], ids=str)
def test_a_job_with_a_number_of_gpus_for_all_of_its_nodes(nodes: tuple[int, ...], gpus_per_rank: float,
                                                          setting: Setting, slurm: SlurmCluster,
                                                          tmp_path: Path) -> None:
    """Each of its steps asks for as many, unless it is told otherwise."""
    with allocation(slurm, '--gpus=8') as environ:
        environ['SLURM_GPUS'] = '8'
        method = Srun.detect(LaunchSystem(environ), setting)
        code, said = run(method, job(tmp_path, *nodes, gpus_per_rank=gpus_per_rank), TELL, environ)
    assert (code, said) == (0, [f'{rank} of {len(nodes)} n{node}' for rank, node in enumerate(nodes)])


@pytest.mark.parametrize('mpi', [True, False])
def test_a_rank_that_fails(mpi: bool, environ: dict[str, str], tmp_path: Path) -> None:
    """It ends the others if they are an MPI program, which would wait for it."""
    method = Srun.detect(LaunchSystem(environ), SETTING)
    others = 'sleep 1000' if mpi else 'until test -e failed; do :; done; echo went on'
    script = f'cd {tmp_path}; if test "$SLURM_PROCID" = 1; then touch failed; exit 3; fi; {others}'
    code, said = run(method, job(tmp_path, 1, 2, mpi=mpi), script, environ)
    assert code != 0
    assert ('went on' in said) == (not mpi)
    assert any('Exited with exit code 3' in line for line in said)
