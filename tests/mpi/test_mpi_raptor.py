"""RAPTOR workers whose ranks, or carriers, or both are one MPI job over hosts of their own networks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from batch_pilots import platform
from pilot_run import run
from ssh_hosts import Namespaces

from .installations import Mpi

RAPTOR = Path(__file__).parents[1] / 'raptor_application.py'


@pytest.mark.parametrize('transport', ['zmq', 'mpi'])
@pytest.mark.parametrize('name', ['wheel mpich', 'Debian openmpi'])
def test_functions_over_all_hosts(install: Callable[[str], Mpi], hosts: Namespaces, base: Path, name: str,
                                  transport: str) -> None:
    mpi = install(name)
    nodes = base / 'nodes'
    nodes.write_text('h1\n' * 3 + 'h2\n' * 2 + 'h3\n' * 2)
    environ = hosts.environ | {'MPI4PY_LIBMPI': mpi.library, 'OMPI_MCA_btl_tcp_if_include': 'eth0',
                               'OMPI_MCA_oob_tcp_if_include': 'eth0', 'PBS_JOBID': '1', 'PBS_NODEFILE': str(nodes)}
    if 'wheel' in mpi.name:
        environ['LD_LIBRARY_PATH'] = str(Path(mpi.library).parent)
    environ |= platform(base, 'fork://localhost/', 'TORQUE', cores_per_node=2, agent_launch_method='SSH',
                        raptor={'transport': transport},
                        launch_methods={'order': ['MPIEXEC', 'SSH'], 'SSH': {}, 'MPIEXEC': {'pre_exec': mpi.pre_exec}})
    told = run(environ, base, hosts.prefix('h1'), 'MPIWorker', '5', program=RAPTOR)
    assert told['state'] == 'AGENT_EXECUTING', told
    assert 'ZeroMQ' not in told['reason']
    assert len({tuple(place) for place in told['places']}) == 5
    ranks = Counter(told['slots'])
    assert told['large']
    assert {tuple(each) for each in told['objects']} == {(name, 1, 3_000_000) for name in ranks}   # fetched once
    for number, results in zip((1, 2), sorted(told['over'], key=str), strict=True):
        assert [result[:2] for result in results] == [[5, 10 + 5 * number]] * 5
        assert Counter(result[2] for result in results) == ranks
    assert len(ranks) == 3
