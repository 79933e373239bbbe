"""Named environments that are copied to the disks of nodes: tasks run from the copies, which end with the pilot."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from conftest import pilot_description, processes_with, wait_until

import radical.pilot as rp
from rp_api.system import agent_process

WHERE = {'executable': 'python', 'arguments': ['-c', 'import sys; print(sys.prefix)']}
NODES = {'components': {'agent_executing': {'target': 'node'}}}


@pytest.fixture
def disk(base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The local disk of the nodes."""
    path = base / 'disk'
    path.mkdir()
    monkeypatch.setenv('TMPDIR', str(path))
    return path


def with_disk(session: rp.Session, resource: str, path: Path) -> None:
    """Define the platform `local.disk`, which has its local disk at that path."""
    platform = session.get_resource_config(resource)
    platform.label, platform.lfs_path_per_node = 'local.disk', str(path)
    session.add_resource_config(platform)


def copies(disk: Path) -> list[Path]:
    return [*disk.glob('rp.*')]


def test_tasks_run_from_the_copies_on_their_nodes(session: rp.Session, base: Path, disk: Path) -> None:
    with_disk(session, 'local.localhost', disk)
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, resource='local.disk', cores=0, nodes=3, _config=NODES,
                                                 prepare_env={'mine': {'pack': True}, 'shared': {}}))
    tmgr.add_pilots(pilot)
    tasks = tmgr.submit_tasks([rp.TaskDescription(WHERE | {'named_env': 'mine', 'ranks': 1}) for _ in range(3)]
                              + [rp.TaskDescription(WHERE | {'named_env': 'shared'})])
    assert tmgr.wait_tasks(timeout=60) == [rp.DONE] * 4, [task.exception for task in tasks]
    *packed, shared = (task.stdout.strip() for task in tasks)
    [place] = copies(disk)
    assert {Path(prefix).parent for prefix in packed} == {place}
    assert shared == f'{pilot.pilot_sandbox}/env/rp_named_env.shared'
    assert not any('without a copy' in line for line in pilot.log)
    pilot.cancel()
    pilot.wait(timeout=30)
    wait_until(lambda: not copies(disk))


def test_nodes_without_a_copy_use_the_shared_environment(session: rp.Session, base: Path) -> None:
    with_disk(session, 'local.exact', base / 'no' / 'disk')
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, resource='local.disk', _config={'node_local_envs': True},
                                                 prepare_env={'mine': {}}))
    tmgr.add_pilots(pilot)
    task = tmgr.submit_tasks(rp.TaskDescription(WHERE | {'named_env': 'mine'}))
    assert task.wait(timeout=50) == rp.DONE
    assert task.stdout.strip() == f'{pilot.pilot_sandbox}/env/rp_named_env.mine'
    wait_until(lambda: any("environment 'mine' is used from" in line and os.uname().nodename in line
                           for line in pilot.log))


@pytest.mark.disorder('the agent is killed')
def test_copies_end_with_a_killed_agent(session: rp.Session, base: Path, disk: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, _config=NODES, prepare_env={'mine': {'pack': True}}))
    tmgr.add_pilots(pilot)
    assert tmgr.submit_tasks(rp.TaskDescription(WHERE | {'named_env': 'mine'})).wait(timeout=50) == rp.DONE
    assert copies(disk)
    found = agent_process.noted(pilot.pilot_sandbox)
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)
    wait_until(lambda: not copies(disk))
    wait_until(lambda: not processes_with(str(disk)))
