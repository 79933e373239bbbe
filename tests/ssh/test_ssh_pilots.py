"""Pilots on hosts that are reached by ssh, and that share no network interface with the application."""

from __future__ import annotations

from pathlib import Path

from batch_pilots import platform
from pilot_run import run
from remote_slurm import Remote
from ssh_hosts import SshHosts


def test_a_pilot_on_a_host(server: SshHosts, base: Path) -> None:
    environ = server.environ | platform(base, 'ssh://localhost/', 'FORK', filesystem_endpoint='sftp://localhost/',
                                        fake_resources=True)
    told = run(environ, base)
    assert told['state'] == 'PMGR_ACTIVE', told
    assert [state for state, _ in told['tasks']] == ['DONE'] * 4


def test_a_pilot_of_a_batch_system_on_another_host(remote: Remote, base: Path) -> None:
    environ = remote.hosts.environ | platform(base, 'slurm+ssh://h2/', 'SLURM', filesystem_endpoint='sftp://h2/')
    told = run(environ, base, remote.prefix)
    assert told['state'] == 'PMGR_ACTIVE', told
    assert [output.split()[0] for _, output in told['tasks']] == ['h2'] * 4
    assert [state for state, _ in told['tasks']] == ['DONE'] * 4


def test_a_host_that_is_not_there(remote: Remote, base: Path) -> None:
    environ = remote.hosts.environ | platform(base, 'slurm+ssh://h9/', 'SLURM', filesystem_endpoint='sftp://h9/')
    told = run(environ, base, remote.prefix)
    assert told['state'] == 'FAILED'
    assert 'h9' in told['exception']
    assert 'traces and logs' not in told['stderr']   # there are none


def test_a_node_without_a_way_to_the_application(remote: Remote, base: Path) -> None:
    environ = remote.hosts.environ | platform(base, 'slurm+ssh://h2/', 'SLURM', filesystem_endpoint='sftp://h2/')
    told = run(environ | {'RADICAL_PILOT_PROXY_HOST': '127.0.0.1'}, base, remote.prefix)
    assert told['state'] == 'FAILED'
    assert 'h2 does not reach the hub of the session at tcp://127.0.0.1:' in told['exception']
