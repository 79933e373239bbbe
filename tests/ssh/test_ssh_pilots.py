"""Pilots on hosts that are reached by ssh, and that share no network interface with the application."""

from __future__ import annotations

from pathlib import Path

import pytest
from batch_pilots import platform, use
from conftest import processes_with
from losing import LEASE, lost_and_left
from pilot_run import run
from remote_slurm import Remote
from ssh_hosts import SshHosts

import radical.pilot as rp


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
    assert 'RADICAL_PILOT_PROXY_HOST' in told['exception']


@pytest.mark.disorder('the agent ends in the middle of its work')
def test_a_lost_agent_ends_with_the_session(server: SshHosts, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped, its pilot was declared lost, and its application has died: the next one ends its job."""
    use(server.environ | platform(base, 'ssh://localhost/', 'FORK', filesystem_endpoint='sftp://localhost/',
                                  fake_resources=True), monkeypatch)
    agent = lost_and_left('test.machine')
    assert agent in processes_with(str(base))
    with rp.Session(uid='session', cfg=LEASE) as session:
        assert session.get_pilot_managers('pmgr.0000').get_pilots('pilot.0000').state == rp.FAILED
    assert agent not in processes_with(str(base))
