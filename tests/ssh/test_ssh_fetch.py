"""Traces and logs that are brought from hosts which are reached by ssh only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from batch_pilots import Managers, platform, use
from conftest import traces_in_order
from pilot_run import run
from ports import free_ports
from remote_slurm import Remote
from ssh_hosts import SshHosts, ssh_server

import radical.pilot as rp
from rp_profiling.read.session import read_trace


@contextmanager
def own_files(remote: Remote, directory: Path) -> Iterator[None]:
    """A directory of h2 in which it has files of its own, as hosts have that share no file system."""
    def on_h2(*command: str) -> None:
        remote.hosts.run(*remote.prefix, 'ssh', 'h2', *command)

    directory.mkdir()
    on_h2('mount', '-t', 'tmpfs', 'none', str(directory))
    try:
        yield
    finally:
        on_h2('umount', '--lazy', str(directory))


def test_the_trace_of_a_host_with_a_file_system_of_its_own(remote: Remote, base: Path) -> None:
    """All of it comes, with the events that tasks record themselves."""
    environ = remote.hosts.environ | platform(base, 'ssh://h2/', 'FORK', filesystem_endpoint='sftp://h2/',
                                              fake_resources=True)
    with own_files(remote, base / 'work'):
        told = run(environ, base, remote.prefix)
    assert [state for state, _ in told['tasks']] == ['DONE'] * 4, told
    assert not Path(told['sandbox']).exists()
    fetched = Path(told['session'], Path(told['sandbox']).name)
    assert {'agent_0.prof', 'bootstrap_0.prof', 'agent_0.log', 'bootstrap_0.out'} <= set(os.listdir(fetched))
    traces_in_order(told['session'])
    trace = read_trace(told['session'])
    assert [len(trace.rows_of(event)) for event in ('rank_start', 'app_start')] == [4, 4]


def test_two_pilots_that_run(server: SshHosts, base: Path, monkeypatch: pytest.MonkeyPatch,
                             caplog: pytest.LogCaptureFixture) -> None:
    """Their files are not mixed up, and can be had once more when they have ended."""
    use(server.environ | platform(base, 'ssh://localhost/', 'FORK', filesystem_endpoint='sftp://localhost/',
                                  fake_resources=True), monkeypatch)
    with rp.Session(cfg={'base': str(base)}) as session:
        managers = Managers(session)
        pilots = [managers.active(), managers.active()]
        profiles = session.fetch_profiles(str(base / 'there'))
        assert {f'{base}/there/{pilot.uid}/bootstrap_0.prof' for pilot in pilots} <= set(profiles)
        session.close(download=True)
    for pilot in pilots:
        log = Path(session.path, pilot.uid, 'agent_0.log').read_text()
        assert log
        assert Path(pilot.pilot_sandbox, 'agent_0.log').read_text().startswith(log)
    # the host of the tests may have fewer cores than the pilots, of which a process is told once
    assert [message for message in caplog.messages if 'usable cores' not in message] == []


def test_a_host_that_is_reached_by_gsissh(server: SshHosts, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gsissh` is `ssh` with other keys, and stands here for it."""
    (base / 'bin').mkdir()
    (base / 'bin' / 'gsissh').symlink_to(server.directory / 'bin' / 'ssh')
    use(server.environ | platform(base, 'ssh://localhost/', 'FORK', filesystem_endpoint='gsisftp://localhost/',
                                  fake_resources=True), monkeypatch)
    monkeypatch.setenv('PATH', f'{base}/bin{os.pathsep}{os.environ["PATH"]}')
    with rp.Session(cfg={'base': str(base)}) as session:
        pilot = Managers(session).active()
        assert f'{session.path}/{pilot.uid}/agent_0.log' in session.fetch_logfiles()


def test_a_host_that_is_gone(base: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The session is closed all the same."""
    with ssh_server() as hosts:
        use(hosts.environ | platform(base, 'ssh://localhost/', 'FORK', filesystem_endpoint='sftp://localhost/',
                                     fake_resources=True), monkeypatch)
        with rp.Session(cfg={'base': str(base)}) as session:
            pilot = Managers(session).active()
            known = hosts.directory / 'ssh_config'   # for whoever connects from now on; what comes first counts
            known.write_text(f'Port {free_ports(1)[0]}\n{known.read_text()}')
            session.close(download=True)
    assert session.closed
    (message,) = [record.getMessage() for record in caplog.records if record.name == 'radical.pilot.session']
    assert message.startswith(f'traces and logs of {pilot.uid} are missing: files could not be fetched from localhost:')
