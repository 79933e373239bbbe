"""A Slurm for the tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slurm_cluster import SlurmCluster, slurm_cluster


@pytest.fixture(scope='package')
def slurm() -> Iterator[SlurmCluster]:
    """Four nodes of eight cores and two GPUs."""
    with slurm_cluster() as cluster:
        yield cluster
