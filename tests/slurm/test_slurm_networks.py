"""A RAPTOR worker over the nodes of a real Slurm that are hosts of their own networks; the application is on another.

Each node has an address, a host name and a shared memory of its own. What runs on it is started by its slurmd.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_pilots import platform
from conftest import wait_until
from pilot_run import run
from slurm_cluster import SlurmCluster, slurm_cluster
from ssh_hosts import Namespaces, namespaces

RAPTOR = Path(__file__).parents[1] / 'raptor_application.py'
NODES = ['h1', 'h2', 'h3', 'h4']
RANKS = 15   # of 16 cores, one is the master's
SWEEP = 'from rp_api.system.shared_directory import sweep; sweep()'


@pytest.fixture
def hosts() -> Iterator[Namespaces]:
    """Four nodes, and the host of the application and of the controller."""
    with namespaces(5) as found:
        yield found


@pytest.fixture
def slurm(hosts: Namespaces) -> Iterator[SlurmCluster]:
    """A Slurm of four cores a node."""
    with slurm_cluster(cores=4, hosts=hosts) as found:
        yield found


@pytest.fixture(params=['zmq', 'mpi'])
def environ(slurm: SlurmCluster, base: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of the application, for each transport."""
    return slurm.environ | platform(base, 'slurm://localhost/', 'SLURM', cores_per_node=4, launch_methods={
        'order': ['SRUN'], 'SRUN': {'options': {'arguments': ['--mpi=pmi2']}}}, raptor={'transport': request.param})


def in_shared_memory(hosts: Namespaces) -> dict[str, list[str]]:
    """Our directories in the shared memory of hosts; MPICH leaves files of its own when ranks are killed."""
    found = {name: sorted(path.name for path in hosts.shared_memory(name).glob('radical.pilot.*'))
             for name in hosts.names}
    return {name: names for name, names in found.items() if names}


def check_calls(told: dict[str, Any]) -> Counter[str]:
    """Calls were on all ranks, large data came back, each node has fetched an object once; gives the ranks of nodes."""
    assert told['state'] == 'AGENT_EXECUTING', told
    ranks = Counter(name for name, _ in {tuple(place) for place in told['places']})
    assert sorted(ranks) == NODES
    assert ranks == Counter(told['slots'])
    assert told['large']
    assert {tuple(each) for each in told['objects']} == {(name, 1, 3_000_000) for name in NODES}
    return ranks


def test_mpi_functions_over_all_nodes(hosts: Namespaces, slurm: SlurmCluster, environ: dict[str, str],
                                      base: Path) -> None:
    told = run(environ, base, hosts.prefix('h5'), 'MPIWorker', str(RANKS), program=RAPTOR)
    ranks = check_calls(told)
    for number, results in zip((1, 2), sorted(told['over'], key=str), strict=True):
        assert [result[:2] for result in results] == [[RANKS, sum(range(RANKS)) + number * RANKS]] * RANKS
        assert Counter(result[2] for result in results) == ranks
    for number, results in zip((1, 2), sorted(told['over some'], key=str), strict=True):
        some = RANKS - 1
        assert [result[:2] for result in results] == [[some, sum(range(some)) + number * some]] * some
        assert {result[2] for result in results} == set(NODES)
    assert not in_shared_memory(hosts)
    assert not set(slurm.jobs().values()) & {'RUNNING', 'PENDING'}


@pytest.mark.long
@pytest.mark.fault
def test_a_node_is_lost_with_calls(hosts: Namespaces, environ: dict[str, str], base: Path) -> None:
    """All that runs there is killed: Slurm's part, the sub-agent, the manager and the ranks. No call is lost.

    Calls that ran there run once more. Files stay in the node's shared memory until a process there looks for them.
    """
    notes = base / 'notes'
    notes.touch()
    with subprocess.Popen([*hosts.prefix('h5'), sys.executable, RAPTOR, base, 'DefaultWorker', str(RANKS), notes],
                          cwd=base, env=os.environ | environ, stdout=subprocess.PIPE, text=True) as application:
        wait_until(lambda: notes.read_text().count(' h4\n') == 4 or application.poll() is not None)
        hosts.kill('h4')
        output, _ = application.communicate(timeout=50)
    assert application.returncode == 0
    told = json.loads(output)
    check_calls(told)
    assert sorted(told['after']) == list(range(200))
    assert (told['then'], told['end']) == ('AGENT_EXECUTING', 'CANCELED')
    assert {name for name, _ in told['places after']} == set(NODES[:-1])
    started = [line.split() for line in notes.read_text().splitlines()]
    again = {number for number, name in started if name == 'h4'}
    assert Counter(number for number, _ in started) == Counter({
        str(number): 1 + (str(number) in again) for number in range(200)})
    assert list(in_shared_memory(hosts)) == ['h4']
    hosts.run(*hosts.prefix('h4'), sys.executable, '-c', SWEEP)
    assert not in_shared_memory(hosts)
