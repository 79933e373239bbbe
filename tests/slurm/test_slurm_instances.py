"""How a real Slurm starts the brokers of Flux instances, on nodes that differ."""

from __future__ import annotations

import os
import subprocess

import pytest
from clusters import PATIENCE, SYSTEM_PATH
from slurm_cluster import SlurmCluster

from rp_agent.instances.flux import Flux
from rp_agent.instances.launcher import Node

TELL = 'echo $SLURMD_NODENAME $SLURM_CPUS_ON_NODE $CUDA_VISIBLE_DEVICES'


@pytest.mark.parametrize(('gpus', 'nodes', 'told'), [
    ('--gres=gpu:0', [Node('n1', 8), Node('n2', 4)], ['n1 8', 'n2 4']),
    ('--gpus-per-node=2', [Node('n1', 8, 2), Node('n2', 4, 2)], ['n1 8 0,1', 'n2 4 0,1']),
    ('--gpus=4', [Node('n1', 8, 2), Node('n2', 4, 2)], ['n1 8 0,1', 'n2 4 0,1']),
    ('--gpus=3', [Node('n1', 8, 2), Node('n2', 4, 1)], ['n1 8 0', 'n2 4 0'])], ids=str)
def test_brokers_get_the_cores_of_their_nodes(slurm: SlurmCluster, gpus: str, nodes: list[Node],
                                              told: list[str]) -> None:
    said = slurm.run('salloc', '--no-shell', '-N2', '-w', 'n1,n2', '-n12', gpus)   # eight cores here, four there
    number = said.split('job allocation ')[1].split()[0]
    try:
        argv = Flux('SLURM').startup(0, nodes).argv
        command = [*argv[:argv.index('flux')], '/bin/sh', '-c', TELL]
        ran = subprocess.run(command, env={**os.environ, 'PATH': SYSTEM_PATH, **slurm.environ, 'SLURM_JOB_ID': number},
                             capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert sorted(ran.stdout.splitlines()) == told, ran.stderr
    finally:
        slurm.run('scancel', number)
