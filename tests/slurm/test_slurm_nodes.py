"""Pilots over several nodes of a real Slurm: each node starts its own tasks, and can be lost without the others."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_pilots import Managers, platform, sandbox, use
from conftest import processes_of, processes_with, wait_until
from slurm_cluster import SlurmCluster

import radical.pilot as rp
from rp_profiling.read.profile import read_profile


@pytest.fixture
def managers(slurm: SlurmCluster, base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managers]:
    """An open session whose platform `test.machine` is this Slurm, with `srun` as its only launch method."""
    use(slurm.environ | platform(base, 'slurm://localhost/', 'SLURM', gpus_per_node=2,
                                 launch_methods={'order': ['SRUN'], 'SRUN': {}}), monkeypatch)
    with rp.Session(cfg={'base': str(base)}) as session:
        yield Managers(session)
    assert not set(slurm.jobs().values()) & {'RUNNING', 'PENDING'}


def sub_agents(pilot: rp.Pilot) -> dict[str, int]:
    """The processes of the pilot's sub-agents, by the name of their node."""
    found = {}
    for pid, line in processes_with(f'{sandbox(pilot)}/agent_n.cfg').items():
        if 'rp_agent.nodes.sub_agent' in line:
            environ = Path(f'/proc/{pid}/environ').read_bytes().split(b'\0')
            found[dict(entry.partition(b'=')[::2] for entry in environ)[b'SLURMD_NODENAME'].decode()] = pid
    return found


def together(base: Path, count: int, command: str, **values: Any) -> list[rp.TaskDescription]:
    """Tasks that end when so many have begun, so that they have run side by side."""
    script = base / 'together.sh'
    script.write_text(f'{command}\n: >"{base}/begun.$RP_TASK_ID"\n'
                      f'until set -- "{base}"/begun.*; [ $# -ge {count} ]; do sleep 0.2; done\n')
    return [rp.TaskDescription({'executable': '/bin/sh', 'arguments': [str(script)]} | values) for _ in range(count)]


def test_tasks_run_on_all_nodes(managers: Managers, base: Path) -> None:
    pilot = managers.active(cores=0, nodes=4)
    details = pilot.resource_details or {}
    assert [node['name'] for node in details['node_list']] == ['n1', 'n2', 'n3', 'n4']
    assert (details['cores'], details['gpus']) == (32, 8)
    tasks = managers.tmgr.submit_tasks(together(base, 32, 'echo $SLURMD_NODENAME ${SLURM_STEP_ID:-none}') * 2)
    managers.tmgr.wait_tasks(timeout=40)
    assert {task.state for task in tasks} == {rp.DONE}, [task.exception for task in tasks]
    assert [task.stdout.strip() for task in tasks] == [f'{(task.slots or [])[0]["node_name"]} none' for task in tasks]
    assert set(Counter((task.slots or [])[0]['node_name'] for task in tasks)) == {'n1', 'n2', 'n3', 'n4'}
    assert sorted(sub_agents(pilot)) == ['n2', 'n3', 'n4']   # the first node is the agent's own


def test_devices_of_all_nodes(managers: Managers, base: Path) -> None:
    managers.active(cores=0, nodes=2)
    tasks = managers.tmgr.submit_tasks(together(base, 4, 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES',
                                                gpus_per_rank=1, gpu_type=rp.CUDA))
    managers.tmgr.wait_tasks(timeout=40)
    assert sorted(task.stdout.strip() for task in tasks) == ['n1 0', 'n1 1', 'n2 0', 'n2 1']


def test_components_on_nodes_of_their_own(managers: Managers, base: Path) -> None:
    """Stagers and an executor have nodes on which no task runs; that executor launches what runs on several nodes."""
    (base / 'in').write_text('data')
    pilot = managers.active(cores=0, nodes=4, _config={'agents': {
        'stagers': {'target': 'node', 'components': {'agent_staging_input': {'count': 2}, 'agent_staging_output': {}}},
        'executor': {'target': 'node', 'components': {'agent_executing': {}}}}})
    details = pilot.resource_details or {}
    assert [node['name'] for node in details['node_list']] == ['n1', 'n2']
    assert [node['name'] for node in details['agent_node_list']] == ['n3', 'n4']
    assert (details['cores'], pilot.resources) == (16, {'cpu': 16, 'gpu': 4})
    assert wait_until(lambda: sorted(sub_agents(pilot)) == ['n1', 'n2', 'n3', 'n4'])
    (long,) = managers.tmgr.submit_tasks([rp.TaskDescription({
        'executable': '/bin/sh', 'arguments': ['-c', ': >begun.$RP_RANK; setsid sleep 600 </dev/null & wait'],
        'ranks': 2, 'cores_per_rank': 8})])
    assert wait_until(lambda: len(list(sandbox(pilot).glob(f'{long.uid}/begun.*'))) == 2)
    long.cancel()
    long.wait(timeout=40)
    assert long.state == rp.CANCELED
    assert wait_until(lambda: not processes_of(long))   # on both nodes
    tasks = managers.tmgr.submit_tasks([*together(
        base, 16, 'echo $SLURMD_NODENAME ${SLURM_STEP_ID:-none}', input_staging=[
            {'source': f'{base}/in', 'target': 'task:///in', 'action': rp.LINK}], output_staging=[
            {'source': 'in', 'target': 'task:///out', 'action': rp.COPY}]), rp.TaskDescription({
                'executable': '/bin/sh', 'arguments': ['-c', 'echo $SLURMD_NODENAME'], 'ranks': 16})])
    managers.tmgr.wait_tasks(timeout=60)
    assert {task.state for task in tasks} == {rp.DONE}, [task.exception for task in tasks]
    *single, several = tasks
    assert [task.stdout.split() for task in single] == [[(task.slots or [])[0]['node_name'], 'none'] for task in single]
    assert sorted(several.stdout.split()) == ['n1'] * 8 + ['n2'] * 8
    managers.session.close()
    for name, uids in {'agent_staging_input.0000': single, 'agent_executing.0000': [several]}.items():
        seen = {row.uid for row in read_profile(sandbox(pilot) / f'{name}.prof') if row.uid}
        assert seen & {task.uid for task in uids}, name


def test_a_lost_node_does_not_end_the_pilot(managers: Managers) -> None:
    """What may run again does, on another node; nothing is left running on the lost one."""
    pilot = managers.active(cores=0, nodes=3)
    long = {'executable': '/bin/sh', 'arguments': ['-c', 'sleep 600 & setsid sleep 600 & wait'], 'cores_per_rank': 8}
    tasks = managers.tmgr.submit_tasks([rp.TaskDescription({**long, 'restartable': True}),
                                        rp.TaskDescription({**long, 'restartable': False})])
    managers.tmgr.wait_tasks(state=rp.AGENT_EXECUTING, timeout=40)
    quick = rp.TaskDescription({'executable': '/bin/true', 'cores_per_rank': 8})
    nodes = sub_agents(pilot)
    assert wait_until(lambda: len(processes_with(f'RP_PILOT_SANDBOX={sandbox(pilot)}')) > 4)
    for pid in nodes.values():   # both nodes but the agent's own
        os.kill(pid, signal.SIGKILL)
    again, lost = tasks
    managers.tmgr.wait_tasks([lost.uid], timeout=40)
    assert lost.state == rp.FAILED
    assert 'is lost: sub-agent agent_n.000' in str(lost.exception)
    (done,) = managers.tmgr.submit_tasks([quick])
    managers.tmgr.cancel_tasks([again.uid])
    managers.tmgr.wait_tasks(timeout=40)
    assert (again.state, done.state, pilot.state) == (rp.CANCELED, rp.DONE, rp.PMGR_ACTIVE)
    assert (done.slots or [])[0]['node_name'] == 'n1'


def test_a_node_that_slurm_takes_down_does_not_end_the_job(managers: Managers, slurm: SlurmCluster) -> None:
    pilot = managers.active(cores=0, nodes=3)
    told: list[tuple[str, str]] = []
    pilot.register_callback(lambda pilot, state: told.append((state, pilot.log[-1])))
    assert pilot.nodelist is not None
    whole = {'executable': '/bin/sh', 'arguments': ['-c', ': >"on.$SLURMD_NODENAME"; exec sleep 600'],
             'cores_per_rank': 8, 'restartable': False}
    tasks = managers.tmgr.submit_tasks([rp.TaskDescription(whole) for _ in range(3)])
    assert wait_until(lambda: len(list(sandbox(pilot).glob('*/on.*'))) == 3)
    on = {path.suffix[1:]: next(task for task in tasks if task.uid == path.parent.name)
          for path in sandbox(pilot).glob('*/on.*')}
    slurm.run('scontrol', 'update', 'nodename=n3', 'state=down', 'reason=test')
    try:
        managers.tmgr.wait_tasks([on['n3'].uid], timeout=40)
        assert on['n3'].state == rp.FAILED
        assert 'is lost: sub-agent agent_n.0002' in str(on['n3'].exception)
        assert wait_until(lambda: told)
        assert told[0][0] == rp.PMGR_ACTIVE
        assert f'{pilot.uid} has lost n3: sub-agent agent_n.0002' in told[0][1]
        assert pilot.resources == {'cpu': 16, 'gpu': 4}
        used = [{core['occupation'] for core in node['cores']} for node in pilot.nodelist.nodes]
        assert used == [{0.0}, {0.0}, {None}]
        managers.tmgr.cancel_tasks([on['n2'].uid])
        (done,) = managers.tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/true'})])
        managers.tmgr.wait_tasks([on['n2'].uid, done.uid], timeout=40)
        assert (done.state, (done.slots or [])[0]['node_name']) == (rp.DONE, 'n2')
        assert (on['n1'].state, pilot.state) == (rp.AGENT_EXECUTING, rp.PMGR_ACTIVE)
    finally:
        slurm.run('scontrol', 'update', 'nodename=n3', 'state=resume', check=False)   # it may have come back by itself
        slurm.wait(lambda: slurm.run('sinfo', '-h', '-n', 'n3', '-p', 'debug', '-o', '%T') == 'idle\n', 'n3 is idle')


def test_a_sub_agent_that_cannot_start_costs_its_node(slurm: SlurmCluster, base: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known as soon as it has ended: nobody waits for it as long as it might take to start."""
    use(slurm.environ | platform(base, 'slurm://localhost/', 'SLURM', launch_methods={'order': ['SRUN'], 'SRUN': {}},
                                 pre_bootstrap_1=['test "$SLURMD_NODENAME" != n3 || { echo no luck today; exit 3; }']),
        monkeypatch)
    with rp.Session(cfg={'base': str(base)}) as session:
        managers = Managers(session)
        pilot = managers.active(cores=0, nodes=4)
        tasks = managers.tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/true'}) for _ in range(64)])
        managers.tmgr.wait_tasks(timeout=40)
        assert {task.state for task in tasks} == {rp.DONE}
        assert {(task.slots or [])[0]['node_name'] for task in tasks} == {'n1', 'n2', 'n4'}
        assert pilot.state == rp.PMGR_ACTIVE
        log = (sandbox(pilot) / 'agent_0.log').read_text()
        assert ('sub-agent agent_n.0002 launched by SRUN has ended before it was connected: exit code: 3; see '
                f'{sandbox(pilot)}/agent_n.err, its last lines:\nno luck today\n') in log


def test_nothing_stays_on_any_node(managers: Managers) -> None:
    pilot = managers.active(cores=0, nodes=3)
    tasks = managers.tmgr.submit_tasks([rp.TaskDescription({
        'executable': '/bin/sh', 'arguments': ['-c', 'sleep 600 & setsid sleep 600 & wait']}) for _ in range(24)])
    managers.tmgr.wait_tasks(state=rp.AGENT_EXECUTING, timeout=40)
    managers.pmgr.cancel_pilots(pilot.uid)
    managers.tmgr.wait_tasks(timeout=40)
    assert {task.state for task in tasks} == {rp.CANCELED}
    assert pilot.state == rp.CANCELED
    wait_until(lambda: not processes_with(f'RP_PILOT_SANDBOX={sandbox(pilot)}'))


def test_nodes_cannot_be_reached(slurm: SlurmCluster, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(slurm.environ | platform(base, 'slurm://localhost/', 'SLURM', agent_launch_method='FORK'), monkeypatch)
    with rp.Session(cfg={'base': str(base)}) as session:
        managers = Managers(session)
        said = managers.failed(managers.submitted(cores=0, nodes=3))
    assert ('the pilot has nodes on other hosts (n2, n3), and no launch method of the platform can start sub-agents '
            'there: FORK: it starts processes on the host of the agent, not on n2') in said
