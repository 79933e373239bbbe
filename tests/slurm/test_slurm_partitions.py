"""A pilot on a real Slurm that is divided: the bootstrap starts an agent for each partition."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_pilots import Managers, platform, use
from conftest import processes_with, wait_until
from slurm_cluster import SlurmCluster

import radical.pilot as rp


@pytest.fixture
def managers(slurm: SlurmCluster, base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managers]:
    """An open session whose platform `test.machine` is this Slurm."""
    use(slurm.environ | platform(base, 'slurm://localhost/', 'SLURM', gpus_per_node=2,
                                 launch_methods={'order': ['SRUN'], 'SRUN': {}}), monkeypatch)
    with rp.Session(cfg={'base': str(base)}) as session:
        yield Managers(session)
    assert not set(slurm.jobs().values()) & {'RUNNING', 'PENDING'}


@pytest.mark.disorder('an agent is killed, and what it has not yet written of its tasks is lost')
def test_partitions_of_a_job(managers: Managers) -> None:
    """Tasks of all of them run in the job; one that fails leaves the job to the other; all end with the pilot."""
    pilot = managers.active(gpus=2, partitions=[{'cores': 4, 'gpus': 1}, {'cores': 2}], exit_on_error=False)
    script = 'echo ${SLURM_JOB_ID:+job} $RP_PARTITION_ID $CUDA_VISIBLE_DEVICES'
    assert Counter(managers.outputs(12, 'echo ${SLURM_JOB_ID:+job} $RP_PARTITION_ID')) == {
        'job 0': 8, 'job 1': 4}
    added = pilot.add_partition(cores=2, gpus=1)
    assert added.wait([rp.PMGR_ACTIVE], timeout=40) == rp.PMGR_ACTIVE, added.exception
    assert managers.outputs(1, script, partition=2, gpus_per_rank=1, gpu_type=rp.CUDA) == ['job 2 1']
    (pid,) = [pid for pid, line in processes_with(f'{pilot.partitions[0].agent_sandbox}/agent_0.cfg').items()
              if 'rp_agent' in line]
    os.kill(pid, signal.SIGKILL)
    assert pilot.partitions[0].wait(timeout=40) == rp.FAILED
    assert pilot.state == rp.PMGR_ACTIVE
    assert set(managers.outputs(4, 'echo $RP_PARTITION_ID')) == {'1', '2'}
    pilot.cancel()
    assert [each.wait(timeout=40) for each in (pilot, *pilot.partitions)] == [
        rp.CANCELED, rp.FAILED, rp.CANCELED, rp.CANCELED]
    wait_until(lambda: not processes_with(str(pilot.pilot_sandbox).removeprefix('file://localhost')))


def test_partitions_of_several_nodes(managers: Managers) -> None:
    """Each has nodes of its own, which may be others than the one that its agent runs on."""
    half = {'cores': 4, 'gpus': 1}
    pilot = managers.active(cores=0, nodes=3, partitions=[{'nodes': 2}, half, half])
    details = [partition.resource_details or {} for partition in pilot.partitions]
    nodes = [[node['name'] for node in each['node_list']] for each in details]
    assert [len(names) for names in nodes] == [2, 1, 1]
    assert len(set(nodes[0] + nodes[1])) == 3
    assert nodes[1] == nodes[2]
    for number, names in enumerate(nodes):
        assert set(managers.outputs(8, 'echo $SLURMD_NODENAME', partition=number, cores_per_rank=4)) == set(names)
    seen = [managers.outputs(1, 'echo $CUDA_VISIBLE_DEVICES', partition=number, gpus_per_rank=1, gpu_type=rp.CUDA)
            for number in (1, 2)]
    assert sorted(seen) == [['0'], ['1']]


def test_agents_of_partitions_on_their_own_nodes(managers: Managers) -> None:
    """Those of partitions that are not on the node on which the job has started are launched by srun."""
    pilot = managers.active(cores=0, nodes=2, partitions=2, _config={'target': 'node'}, exit_on_error=False)
    names = [(partition.resource_details or {})['node_list'][0]['name'] for partition in pilot.partitions]
    assert len(set(names)) == 2
    agents = [[pid for pid, line in processes_with(f'{partition.agent_sandbox}/agent_0.cfg').items()
               if 'rp_agent' in line] for partition in pilot.partitions]
    assert [Path(f'/proc/{pid}/environ').read_bytes().partition(b'SLURMD_NODENAME=')[2].partition(b'\0')[0].decode()
            for (pid,) in agents] == names
    for number, name in enumerate(names):
        assert set(managers.outputs(4, 'echo $SLURMD_NODENAME', partition=number)) == {name}
    (pid,) = agents[1]
    os.kill(pid, signal.SIGKILL)
    assert pilot.partitions[1].wait(timeout=40) == rp.FAILED
    assert set(managers.outputs(2, 'echo $SLURMD_NODENAME')) == {names[0]}
    pilot.cancel()
    assert pilot.partitions[0].wait(timeout=40) == rp.CANCELED
    wait_until(lambda: not processes_with(str(pilot.pilot_sandbox).removeprefix('file://localhost')))


def test_more_than_the_job_has(managers: Managers) -> None:
    said = managers.failed(managers.submitted(cores=0, nodes=1, partitions=[{'cores': 6}, {'cores': 6}]))
    assert 'cores=6 of the partition is more than the pilot has free on one node (2 cores, 2 GPUs, ' in said
