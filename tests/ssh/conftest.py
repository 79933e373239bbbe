"""Hosts that are reached by ssh, for the tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from remote_slurm import Remote, remote_slurm
from ssh_hosts import SshHosts, ssh_server


@pytest.fixture(scope='package')
def server() -> Iterator[SshHosts]:
    """This machine, reached by ssh."""
    with ssh_server() as hosts:
        yield hosts


@pytest.fixture(scope='package')
def remote() -> Iterator[Remote]:
    """Two hosts, and a Slurm on the second one."""
    with remote_slurm() as found:
        yield found
