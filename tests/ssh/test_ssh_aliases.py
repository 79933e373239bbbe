"""Hosts of platforms that only the configuration of ssh knows by that name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_pilots import platform, use
from pilot_run import run
from remote_slurm import Remote
from ssh_hosts import SshHosts

from rp_api.platforms.definition import ResourceConfig
from rp_client.launcher.network import nearest_host, own_address

from .test_ssh_platforms import checked

ANYWHERE = '192.0.2.1'
"""What packets to it would be sent from is the address of the default route, to the launcher."""


@pytest.fixture(scope='module')
def names(server: SshHosts) -> SshHosts:
    """Aliases of hosts, some of which are behind others."""
    server.alias('Cluster', '127.0.0.2')
    server.alias('behind', '10.255.255.1', 22, 'ProxyJump me@Cluster:2222,localhost')
    server.alias('far-behind', '10.255.255.2', 22, 'ProxyJump behind')
    server.alias('circle', '10.255.255.3', 22, 'ProxyJump circle')
    return server


@pytest.mark.parametrize(('url', 'host'), [
    ('ssh://Cluster/', '127.0.0.2'), ('slurm+ssh://me@Cluster:22/', '127.0.0.2'), ('ssh://behind/', '127.0.0.2'),
    ('lsf+ssh://far-behind/', '127.0.0.2'), ('ssh://no-alias.invalid/', 'no-alias.invalid'),
    ('slurm://Cluster/', 'cluster'), ('slurm+gsissh://far.away:22/', 'far.away')])
def test_the_nearest_host(names: SshHosts, monkeypatch: pytest.MonkeyPatch, url: str, host: str) -> None:
    use(names.environ, monkeypatch)
    assert nearest_host(url).lower() == host


def test_hosts_in_a_circle(names: SshHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    use(names.environ, monkeypatch)
    assert nearest_host('ssh://circle/') == 'circle'


def test_an_address_is_found_for_an_alias(names: SshHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    use(names.environ, monkeypatch)
    monkeypatch.delenv('RADICAL_PILOT_PROXY_HOST', raising=False)
    known = {'resource_manager': 'SLURM', 'job_manager_endpoint': 'slurm+ssh://Cluster/'}
    assert own_address(ResourceConfig(known)) == '127.0.0.1'   # from which this host speaks to 127.0.0.2


@pytest.fixture(scope='module')
def aliases(remote: Remote) -> Iterator[Remote]:
    """Another name of h2, and one that is behind it; what h1 sends to other networks has an address of its own."""
    address = remote.hosts.address('h2')
    remote.hosts.alias('Cluster', address)
    remote.hosts.alias('inner', address, 22, 'ProxyJump Cluster')
    own = '198.51.100.1'
    remote.hosts.run(*remote.prefix, 'ip', 'address', 'add', f'{own}/32', 'dev', 'lo')
    remote.hosts.run(*remote.prefix, 'ip', 'route', 'add', ANYWHERE, 'dev', 'lo', 'src', own)
    yield remote
    remote.hosts.run(*remote.prefix, 'ip', 'route', 'del', ANYWHERE)
    remote.hosts.run(*remote.prefix, 'ip', 'address', 'del', f'{own}/32', 'dev', 'lo')


@pytest.mark.parametrize('name', ['Cluster', 'inner'])
def test_a_pilot_on_a_host_with_an_alias(aliases: Remote, base: Path, name: str) -> None:
    environ = aliases.hosts.environ | platform(base, f'slurm+ssh://{name}/', 'SLURM',
                                               filesystem_endpoint=f'sftp://{name}/')
    told = run(environ, base, aliases.prefix)
    assert told['state'] == 'PMGR_ACTIVE', told
    assert [state for state, _ in told['tasks']] == ['DONE'] * 4


def test_the_way_back_is_checked(aliases: Remote, base: Path) -> None:
    said = checked(aliases, base, 'slurm+ssh://Cluster/')
    back = next(line for line in said if ' back ' in line)
    assert back.startswith(f'ok back h2 reaches this host at tcp://{aliases.hosts.address("h1")}:')
    assert said[0] == 'exit code 0'


def test_there_is_no_way_back(aliases: Remote, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_PROXY_HOST', '127.0.0.1')
    said = checked(aliases, base, 'slurm+ssh://Cluster/')
    back = next(line for line in said if ' back ' in line)
    assert back.startswith('bad back h2 does not reach a hub on this host at tcp://127.0.0.1:')
    assert 'Connection refused' in back
    assert ('Set RADICAL_PILOT_PROXY_HOST to an address of this host that it reaches '
            f'(this connection comes from {aliases.hosts.address("h1")}), or forward_tunnel_endpoint') in back
    assert said[0] == 'exit code 1'


def test_an_address_of_another_host(aliases: Remote, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can listen there."""
    monkeypatch.setenv('RADICAL_PILOT_PROXY_HOST', aliases.hosts.address('h2'))
    said = checked(aliases, base, 'slurm+ssh://Cluster/')
    assert any(line.startswith(f'bad back a hub on this host cannot listen at {aliases.hosts.address("h2")}: ')
               and 'RADICAL_PILOT_PROXY_HOST' in line for line in said), said
    assert 'ok reach Cluster' in said


def test_a_tunnel_is_not_checked(aliases: Remote, base: Path) -> None:
    """Only jobs make it."""
    said = checked(aliases, base, 'slurm+ssh://Cluster/', forward_tunnel_endpoint='login')
    assert not [line for line in said if ' back ' in line]
