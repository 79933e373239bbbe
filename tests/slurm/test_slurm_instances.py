"""How a real Slurm starts the brokers of Flux instances, on nodes that differ, and without a default PMI."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clusters import SYSTEM_PATH, TIMEOUT
from slurm_cluster import SlurmCluster

from rp_agent.executor.backends.flux.executor import FluxLauncher
from rp_agent.executor.backends.launcher import InstanceNode

STAND_IN = Path(__file__).parents[2] / 'packages' / 'rp-agent' / 'tests' / 'flux_stand_in'

FLUX = os.environ.get('TEST_FLUX', str(STAND_IN))
"""The directory of the programs of a Flux."""

TELL = 'echo $SLURMD_NODENAME $SLURM_CPUS_ON_NODE $CUDA_VISIBLE_DEVICES'


@pytest.mark.parametrize(('gpus', 'nodes', 'told'), [
    ('--gres=gpu:0', [InstanceNode('n1', 8), InstanceNode('n2', 4)], ['n1 8', 'n2 4']),
    ('--gpus-per-node=2', [InstanceNode('n1', 8, 2), InstanceNode('n2', 4, 2)], ['n1 8 0,1', 'n2 4 0,1']),
    ('--gpus=4', [InstanceNode('n1', 8, 2), InstanceNode('n2', 4, 2)], ['n1 8 0,1', 'n2 4 0,1']),
    ('--gpus=3', [InstanceNode('n1', 8, 2), InstanceNode('n2', 4, 1)], ['n1 8 0', 'n2 4 0'])], ids=str)
def test_brokers_get_the_cores_of_their_nodes(slurm: SlurmCluster, gpus: str, nodes: list[InstanceNode],
                                              told: list[str]) -> None:
    with an_allocation(slurm, '-n12', gpus) as environ:   # eight cores here, four there
        argv = FluxLauncher('SLURM').startup(0, nodes).argv
        command = [*argv[:argv.index('sh')], '/bin/sh', '-c', TELL]
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        assert sorted(ran.stdout.splitlines()) == told, ran.stderr


@pytest.mark.parametrize(('options', 'said'), [
    ((), 'flux instance at '),
    (('--mpi=none',), 'instance of 1 broker(s) instead of 2: srun offers no PMI that this Flux knows')], ids=str)
def test_brokers_are_one_instance(slurm: SlurmCluster, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    """They need a PMI, which Slurm may not offer by itself; an instance for each would be taken for the whole."""
    with an_allocation(slurm) as environ:
        startup = FluxLauncher('SLURM').startup(0, [InstanceNode('n1', 1), InstanceNode('n2', 1)])
        at = startup.argv.index('sh')
        ran = subprocess.Popen(
            [*startup.argv[:at], *options, *startup.argv[at:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env={**environ, **startup.environment, 'PATH': f'{FLUX}:{SYSTEM_PATH}', 'TMPDIR': str(tmp_path)})
        try:
            assert ran.stdout is not None
            assert any(line.startswith(said) for line in ran.stdout)
        finally:
            ran.terminate()
            ran.communicate(timeout=TIMEOUT)


@contextmanager
def an_allocation(slurm: SlurmCluster, *options: str) -> Iterator[dict[str, str]]:
    """Two nodes, and the environment of a process in their job."""
    said = slurm.run('salloc', '--no-shell', '-N2', '-w', 'n1,n2', *options)
    number = said.split('job allocation ')[1].split()[0]
    try:
        yield {**os.environ, 'PATH': SYSTEM_PATH, **slurm.environ, 'SLURM_JOB_ID': number}
    finally:
        slurm.run('scancel', number)
