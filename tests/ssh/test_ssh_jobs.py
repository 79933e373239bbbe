"""Jobs on hosts that are reached by ssh."""

from __future__ import annotations

from pathlib import Path

from batch_driver import batch_driver
from remote_slurm import Remote
from ssh_hosts import SshHosts


def test_a_job_on_a_host(server: SshHosts, tmp_path: Path) -> None:
    with batch_driver(server.environ, tmp_path) as driver:
        driver.submitted('ssh://localhost/', 'job', tmp_path / 'box', 'echo "$SSH_CONNECTION"')
        ended = driver.event('ended')
        assert ended['state'] == 'DONE', ended
        assert ended['files']['bootstrap_0.out'].startswith('127.0.0.1 ')
        driver.submitted('ssh://localhost/', 'other', tmp_path / 'box2', 'echo wrong >&2; exit 3')
        assert driver.event('ended')['state'] == 'FAILED'


def test_a_cancelled_job_on_a_host(server: SshHosts, tmp_path: Path) -> None:
    with batch_driver(server.environ, tmp_path) as driver:
        driver.submitted('ssh://localhost/', 'job', tmp_path / 'box', 'sleep 600')
        driver.ask('cancel', 'ssh://localhost/', keys=[driver.last])
        assert driver.event('ended')['state'] in ('CANCELED', 'FAILED')


def test_a_job_of_a_batch_system_on_another_host(remote: Remote, tmp_path: Path) -> None:
    with batch_driver(remote.hosts.environ, tmp_path, remote.prefix) as driver:
        driver.submitted('slurm+ssh://h2/', 'job', tmp_path / 'box', 'hostname; echo $SLURM_JOB_ID; exit 3')
        ended = driver.event('ended')
        assert (ended['state'], ended['exit_code']) == ('FAILED', 3)
        assert ended['files']['bootstrap_0.out'].split() == ['h2', ended['job']]


def test_a_host_that_is_not_there(remote: Remote, tmp_path: Path) -> None:
    with batch_driver(remote.hosts.environ, tmp_path, remote.prefix) as driver:
        driver.ask('submit', 'slurm+ssh://h9/', jobs=[driver.job('job', tmp_path / 'box', 'true')])
        refused = driver.event('submitted', 'refused')
        assert refused['event'] == 'refused'
        assert 'h9' in refused['reason']


def test_a_host_that_does_not_let_us_in(remote: Remote, tmp_path: Path) -> None:
    environ = {name: value for name, value in remote.hosts.environ.items() if name != 'PATH'}   # not with our key
    with batch_driver(environ, tmp_path, remote.prefix) as driver:
        driver.ask('submit', 'slurm+ssh://h2/', jobs=[driver.job('job', tmp_path / 'box', 'true')])
        refused = driver.event('submitted', 'refused')
        assert refused['event'] == 'refused'
        assert 'Permission denied' in refused['reason'] or 'Host key' in refused['reason'], refused
