"""`rp run` on other hosts, with the arguments as they were typed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from batch_pilots import platform
from conftest import processes_with
from remote_slurm import Remote

RP = [sys.executable, '-m', 'rp_client.cli', 'run', '--resource', 'test.machine', '--runtime', '10m', '--cores', '4']


def rp_run(environ: Mapping[str, str], base: Path, remote: Remote, *words: str) -> list[str]:
    """The lines that it has written, in order."""
    done = subprocess.run([*remote.prefix, *RP, '--keep-order', *words], cwd=base, text=True, capture_output=True,
                          env=os.environ | dict(environ) | {'HOME': str(base)}, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert not processes_with(str(base))
    return done.stdout.splitlines()


@pytest.mark.long
def test_tasks_on_a_slurm_of_another_host(remote: Remote, base: Path) -> None:
    """Inputs and outputs travel."""
    environ = remote.hosts.environ | platform(base, 'slurm+ssh://h2/', 'SLURM', filesystem_endpoint='sftp://h2/')
    texts = ['a $HOME', '`date`', "it's \"quoted\""]
    assert rp_run(environ, base, remote, 'printf', '%s|', 'x', '{}', ':::', *texts) == [
        ''.join(f'x|{text}|' for text in texts)]
    assert rp_run(environ, base, remote, '--shell', 'echo $(hostname) {}', ':::', *texts) == [
        f'h2 {text}' for text in texts]


def test_tasks_on_hosts_with_sub_agents(remote: Remote, base: Path) -> None:
    nodes = base / 'nodes'
    nodes.write_text('h1\nh1\nh2\nh2\n')
    environ = remote.hosts.environ | {'PBS_JOBID': '1', 'PBS_NODEFILE': str(nodes)} | platform(
        base, 'fork://localhost/', 'TORQUE', cores_per_node=2, launch_methods={'order': ['SSH'], 'SSH': {}})
    found = rp_run(environ, base, remote, 'sh', '-c', 'echo "$(hostname) $1"', 'sh', '{}', ':::', *map(str, range(8)))
    assert [line.split()[1] for line in found] == [str(number) for number in range(8)]
    assert {line.split()[0] for line in found} == {'h1', 'h2'}
