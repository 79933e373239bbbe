"""How sub-agents on nodes are started, and how they find out which node they are on: without starting any."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from rp_agent.components.layout import NodeHost
from rp_agent.components.names import sub_agent_on
from rp_agent.nodes import node_agent, node_launch
from rp_agent.resource_manager.base import Allocation
from rp_api.errors import PlatformError
from rp_api.system.host import host_id

SRUN = '''#!/bin/sh
test "$1" = --version && echo slurm 23.02.1
'''


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sandbox, and a PATH with an `srun` that tells its version and nothing else, and an `ssh`."""
    for name, text in {'srun': SRUN, 'ssh': '#!/bin/sh\n'}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv('PATH', f'{tmp_path}:/usr/bin:/bin')
    return tmp_path


def launches(sandbox: Path, *order: str, names: tuple[str, ...] = ('a', 'b', 'c'), **platform: Any) -> Any:
    allocation = Allocation(names, 8, 0, 0, 0, elsewhere=tuple(range(1, len(names))))
    return node_launch.launches({'launch_methods': {'order': [*order]}, **platform}, allocation,
                                [NodeHost(sub_agent_on(each), each, []) for each in allocation.elsewhere], str(sandbox))


def test_one_launcher_for_all_nodes(sandbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('SLURM_PROCID', '0')
    (found,) = launches(sandbox, 'SRUN')
    assert (found.positions, found.rank_variables) == ((1, 2), ('SLURM_PROCID',))
    assert '--nodelist=b,c' in found.argv
    assert found.argv[-2:] == ('/bin/sh', f'{sandbox}/agent_n.sh')
    assert f'\n/bin/sh {sandbox}/bootstrap_2.sh agent_n {sandbox}/agent_n.cfg ' in (sandbox / 'agent_n.sh').read_text()
    assert 'SLURM_PROCID' not in found.environment   # that of the agent would lie


def test_a_launcher_for_each_node(sandbox: Path) -> None:
    found = launches(sandbox, 'SSH')
    assert [each.positions for each in found] == [(1,), (2,)]
    for each, node in zip(found, 'bc', strict=True):
        assert each.argv[-2:] == (node, f'/bin/sh {sandbox}/bootstrap_2.sh agent_n {sandbox}/agent_n.cfg '
                                  f'{each.positions[0]}')


def test_the_first_method_that_can(sandbox: Path) -> None:
    assert [each.name for each in launches(sandbox, 'FORK', 'NONE', 'SRUN', 'SSH')] == ['SRUN']
    assert len(launches(sandbox, 'FORK', 'SRUN', agent_launch_method='SSH')) == 2


def test_launchers_of_an_mpi_are_the_last(sandbox: Path) -> None:
    """With them, one lost node would end all sub-agents."""
    (sandbox / 'mpirun').write_text('#!/bin/sh\necho "mpirun (Open MPI) 4.1.4"\n')
    (sandbox / 'mpirun').chmod(0o755)
    assert [each.name for each in launches(sandbox, 'MPIRUN', 'SRUN')] == ['SRUN']
    assert len(launches(sandbox, 'MPIRUN', 'MPIEXEC', 'SSH')) == 2
    assert [each.name for each in launches(sandbox, 'MPIRUN')] == ['MPIRUN']
    assert [each.name for each in launches(sandbox, 'SSH', 'MPIRUN', agent_launch_method='MPIRUN')] == ['MPIRUN']


def test_steps_of_sub_agents_leave_the_node_to_tasks(sandbox: Path) -> None:
    (found,) = launches(sandbox, 'SRUN', system_architecture={'exclusive': True})
    assert '--overlap' in found.argv
    assert '--exact' not in found.argv


def test_nobody_can(sandbox: Path) -> None:
    with pytest.raises(PlatformError) as caught:
        launches(sandbox, 'FORK', 'NONE')
    said = str(caught.value)
    assert said.startswith('the pilot has nodes on other hosts (b, c), and no launch method of the platform can start')
    assert 'FORK: it starts processes on the host of the agent, not on b; NONE: launch method' in said


def test_the_script_of_the_bootstrap_is_used(sandbox: Path) -> None:
    (sandbox / 'bootstrap_2.sh').write_text('of the bootstrap')
    launches(sandbox, 'SRUN')
    assert (sandbox / 'bootstrap_2.sh').read_text() == 'of the bootstrap'


def test_the_configuration_is_for_its_owner_only(sandbox: Path) -> None:
    node_launch.write_config({'secret': 1}, str(sandbox))
    assert stat.S_IMODE((sandbox / 'agent_n.cfg').stat().st_mode) == 0o600


# which node it is


def own(monkeypatch: pytest.MonkeyPatch, names: list[str], *arguments: str, manager: str = 'SLURM',
        shared: dict[str, Any] | None = None, environment: dict[str, str] | None = None,
        **variables: str) -> dict[str, Any]:
    """The own configuration of a sub-agent that is started with these variables."""
    for name in ('SLURMD_NODENAME', 'SLURM_PROCID', 'HOSTNAME'):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    positions = list(range(1, len(names) + 1))
    return node_agent.own_config({
        'platform': {'resource_manager': manager}, 'environment': environment or {}, 'cpus': [7], 'gpu_ids': ['7'],
        'here': [0],
        'sub_agent': {'positions': positions, 'names': names,
                      'hosted': [(sub_agent_on(each), [('agent_executing', f'agent_executing.{each:04d}')])
                                 for each in positions], 'relays': 1, 'spread': True,
                      'host': host_id(), 'rank_variables': ['SLURM_PROCID'],
                      'threads': 1, 'devices': [10**6, [], 0], 'smaller': []} | (shared or {})},
        arguments)


def name_of(config: dict[str, Any]) -> str:
    return str(config['sub_agent']['name'])


def test_it_is_told_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    found = own(monkeypatch, ['b', 'c'], '2', SLURMD_NODENAME='b', SLURM_PROCID='0')
    assert name_of(found) == 'agent_n.0002'
    assert found['sub_agent']['instances'] == [('agent_executing', 'agent_executing.0002')]
    assert found['sub_agent']['relay'] is False
    assert own(monkeypatch, ['b', 'c'], '1')['sub_agent']['relay'] is True


def test_its_name_comes_before_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    assert name_of(own(monkeypatch, ['b', 'c'], SLURMD_NODENAME='c', SLURM_PROCID='0')) == 'agent_n.0002'
    assert name_of(own(monkeypatch, ['b', 'c'], SLURMD_NODENAME='x', SLURM_PROCID='0')) == 'agent_n.0001'
    assert name_of(own(monkeypatch, ['localhost', 'c'], manager='FORK', SLURM_PROCID='1')) == 'agent_n.0001'


def test_nodes_of_one_name_are_told_by_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    assert name_of(own(monkeypatch, ['localhost'] * 2, manager='FORK', SLURM_PROCID='1')) == 'agent_n.0002'


@pytest.mark.parametrize('rank', ['', '2', 'x'])
def test_it_does_not_know_where_it_is(monkeypatch: pytest.MonkeyPatch, rank: str) -> None:
    with pytest.raises(PlatformError, match=r'is not one of the nodes b, c .*SLURM_PROCID has the number of a rank'):
        own(monkeypatch, ['b', 'c'], SLURM_PROCID=rank)


def test_tasks_are_told_their_own_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """All else is as on the agent's host, but for what tells a process about itself."""
    of_agent = {'PATH': '/x', 'SLURMD_NODENAME': 'a', 'SLURM_PROCID': '0', 'SLURM_JOB_ID': '1', 'HOSTNAME': 'a'}
    found = own(monkeypatch, ['b', 'c'], environment=of_agent, SLURMD_NODENAME='c', SLURM_PROCID='1', OTHER='y')
    assert found['environment'] == {'PATH': '/x', 'SLURM_JOB_ID': '1', 'SLURMD_NODENAME': 'c'}


def test_devices_are_those_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the agent has found out holds on its own host."""
    here = own(monkeypatch, ['b', 'c'], '1')
    assert (here['cpus'], here['gpu_ids']) == ([7], ['7'])
    smaller = own(monkeypatch, ['b', 'c'], '2', CUDA_VISIBLE_DEVICES='2,3', shared={
        'host': 'another', 'devices': [10**6, [], 4], 'smaller': [[2, [10**6, [], 2]]]})
    assert smaller['gpu_ids'] == ('2', '3')
    there = own(monkeypatch, ['b', 'c'], '1', shared={'host': 'another'})
    assert (there['cpus'], there['gpu_ids']) == ((), ())   # it has fewer cores than the pilot counts: nothing is bound


def test_flux_starts_none(sandbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be jobs that have the nodes to themselves."""
    monkeypatch.setenv('PATH', str(Path(__file__).with_name('flux_stand_in')), prepend=':')
    with pytest.raises(PlatformError, match='FLUX: sub-agents would occupy the nodes of the tasks, set agent_spawner'):
        launches(sandbox, 'FLUX')
