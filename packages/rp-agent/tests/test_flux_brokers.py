"""How the brokers of Flux instances are started on nodes, which may differ."""

from __future__ import annotations

import os
from dataclasses import asdict

import pytest

from rp_agent.executor.backends.flux.executor import RUNNER, FluxLauncher, NestedFlux
from rp_agent.executor.backends.launcher import InstanceNode, nodes_of
from rp_agent.launch_method.base import Job, Program, Rank, Setting
from rp_agent.launch_method.flux import Flux as FluxRun
from rp_agent.resource_manager.base import Allocation


def brokers(launcher: FluxLauncher, *nodes: InstanceNode) -> str:
    """The command that starts them, without that of the broker itself."""
    argv = launcher.startup(0, nodes).argv
    return ' '.join(argv[:argv.index('sh')])


@pytest.mark.parametrize(('nodes', 'devices'), [
    ([InstanceNode('a', 8), InstanceNode('b', 8)], '--cpus-per-task 8'),
    ([InstanceNode('a', 8, 2), InstanceNode('b', 8, 2)], '--cpus-per-task 8 --gpus-per-task 2'),
    ([InstanceNode('a', 8), InstanceNode('b', 4)], '--cpu-bind=none'),
    ([InstanceNode('a', 8, 2), InstanceNode('b', 4, 2)], '--cpu-bind=none --gpus-per-task 2'),
    ([InstanceNode('a', 8, 2), InstanceNode('b', 8, 1)], '--cpus-per-task 8 --gpus 3')], ids=str)
def test_brokers_get_what_their_nodes_have(nodes: list[InstanceNode], devices: str) -> None:
    assert brokers(FluxLauncher('SLURM'), *nodes) == ('srun --nodes 2 --ntasks 2 --ntasks-per-node 1 --nodelist a,b '
                                              f'{devices} --export=ALL --overlap --mpi=pmi2')


def test_brokers_without_slurm() -> None:
    assert brokers(FluxLauncher(), InstanceNode('localhost', 8)) == ''
    assert brokers(FluxLauncher(), InstanceNode('a', 8)) == 'mpiexec -n 1 --host a'
    found = brokers(FluxLauncher(), InstanceNode('localhost', 8), InstanceNode('b', 4))
    assert found == 'mpiexec -n 2 --host localhost,b'


def test_nodes_of_a_pilot() -> None:
    allocation = Allocation(('a', 'b', 'c'), 8, 2, 0, 0, smaller={2: (4, 0), 1: (6, 1)})
    assert nodes_of(asdict(Setting.of(allocation, {}))) == (
        InstanceNode('a', 8, 2), InstanceNode('b', 6, 1), InstanceNode('c', 4, 0))


def test_flux_knows_this_host_by_its_name() -> None:
    """Where no batch system names nodes, the agent calls it `localhost`."""
    method = FluxRun(Program('/usr/bin/flux', '0.88.0'), Setting(('localhost', 'b')))
    ranks = tuple(Rank(node, index) for index, node in enumerate(('localhost', 'b')))
    argv = method.command(Job('task.0', '/s', ranks), ('true',)).argv
    assert f'--requires=hosts:{os.uname().nodename},b' in argv


@pytest.mark.parametrize(('ranks', 'gpus', 'options'), [
    (1, 1.0, []), (2, 0.0, ['cpu-affinity=per-task']), (2, 1.0, ['cpu-affinity=per-task', 'gpu-affinity=per-task'])])
def test_ranks_see_their_own_cores_and_gpus(ranks: int, gpus: float, options: list[str]) -> None:
    method = FluxRun(Program('/usr/bin/flux', '0.88.0'), Setting(('a',)))
    argv = method.command(Job('task.0', '/s', (Rank('a', 0),) * ranks, gpus_per_rank=gpus), ('true',)).argv
    assert [word for word in argv if 'affinity' in word] == options


@pytest.mark.parametrize(('address', 'command'), [
    ('local:///run/local-0', ()), ('ssh://b/run/local-0', ()),
    ('exec 3 local:///run/local-0', ('stdbuf', '-oL', 'flux', 'exec', '--rank', '3', 'env',
                                     'FLUX_URI=local:///run/local-0')),
    ('srun b local:///run/local-0', ('srun', '--nodes', '1', '--ntasks', '1', '--nodelist', 'b', '--export=ALL',
                                     '--overlap', 'env', 'FLUX_URI=local:///run/local-0'))])
def test_how_a_runner_gets_to_an_instance(address: str, command: tuple[str, ...]) -> None:
    """Without ssh if the first broker is on another node of an enclosing instance, or of a job of Slurm."""
    startup = NestedFlux('local:///outer').runner(address)
    assert startup.argv == (*command, 'flux', 'python', RUNNER)
    assert startup.environment == {'FLUX_URI': 'local:///outer' if command else address}
