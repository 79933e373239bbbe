"""A Slurm on a host of its own network, for applications on another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from slurm_cluster import SlurmCluster, slurm_cluster
from ssh_hosts import Namespaces, namespaces


class Remote(NamedTuple):
    """Two hosts, and the Slurm whose login node is the second one."""

    hosts: Namespaces
    slurm: SlurmCluster

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to put before a command so that it runs where the application is."""
        return self.hosts.prefix('h1')


@contextmanager
def remote_slurm() -> Iterator[Remote]:
    """h1, where applications run, and h2, which share nothing but their file system."""
    with namespaces(2) as hosts, slurm_cluster(prefix=hosts.prefix('h2')) as slurm:
        hosts.open({'h2': slurm.environ})
        yield Remote(hosts, slurm)
