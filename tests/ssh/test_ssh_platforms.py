"""What `rp platforms check` says of platforms that are reached by ssh, and which nodes answer it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from batch_pilots import platform, use
from remote_slurm import Remote
from ssh_hosts import SshHosts

from rp_agent.resource_manager import system


def checked(remote: Remote, base: Path, endpoint: str, **fields: str) -> Sequence[str]:
    """What is said of a platform, seen from the host of the application."""
    environ = os.environ | remote.hosts.environ | platform(base, endpoint, 'SLURM', **fields)
    done = subprocess.run([*remote.prefix, sys.executable, '-m', 'rp_client.cli', 'platforms', 'check', 'test.machine'],
                          cwd=base, env=environ, capture_output=True, text=True, timeout=55)
    assert done.stderr == ''
    return [f'exit code {done.returncode}', *(' '.join(line.split()) for line in done.stdout.splitlines())]


def test_a_batch_system_on_another_host(remote: Remote, base: Path) -> None:
    said = checked(remote, base, 'slurm+ssh://h2/')
    assert {'exit code 0', 'ok reach h2', 'ok host h2', 'ok queue debug is there'} <= set(said), said


def test_a_host_that_is_not_there(remote: Remote, base: Path) -> None:
    said = checked(remote, base, 'slurm+ssh://h9/')
    assert said[0] == 'exit code 1'
    assert said[-1].startswith('bad reach h9 cannot be reached: ssh: ')


def test_nodes_that_answer_are_well(server: SshHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    use(server.environ, monkeypatch)
    sick = system.sick(['localhost', 'no-such-host.invalid'])
    assert list(sick) == ['no-such-host.invalid']
    assert 'no-such-host.invalid' in sick['no-such-host.invalid']
