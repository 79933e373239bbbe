"""Jobs on a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_driver import BatchDriver, batch_driver
from slurm_cluster import SlurmCluster

URL = 'slurm://localhost/'


@pytest.fixture(scope='module')
def driver(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BatchDriver]:
    """A launcher's process that finds this Slurm."""
    with batch_driver(slurm.environ, tmp_path_factory.mktemp('saga')) as found:
        yield found


def told(driver: BatchDriver, sandbox: Path, **description: object) -> dict[str, str]:
    """What a job finds in its environment."""
    driver.submitted(URL, 'job', sandbox, 'env', **description)
    ended = driver.event('ended')
    assert ended['state'] == 'DONE', ended
    lines = (sandbox / 'bootstrap_0.out').read_text().splitlines()
    return dict(line.split('=', 1) for line in lines if '=' in line)   # type: ignore[misc]


def test_a_job_gets_what_it_asks_for(driver: BatchDriver, tmp_path: Path) -> None:
    environ = told(driver, tmp_path / 'box', nodes=2, cores=16, cores_per_node=8, gpus=4)
    assert (environ['SLURM_JOB_NUM_NODES'], environ['SLURM_JOB_CPUS_PER_NODE']) == ('2', '8(x2)')
    assert environ['SLURM_JOB_PARTITION'] == 'debug'
    assert environ['SLURM_JOB_NAME'] == 'job'


def test_a_queue_is_a_partition(driver: BatchDriver, tmp_path: Path) -> None:
    assert told(driver, tmp_path / 'box', queue='short')['SLURM_JOB_PARTITION'] == 'short'


def test_a_job_that_fails(driver: BatchDriver, tmp_path: Path) -> None:
    driver.submitted(URL, 'job', tmp_path / 'box', 'echo no such module >&2; exit 3')
    ended = driver.event('ended')
    assert (ended['state'], ended['exit_code']) == ('FAILED', 3)
    assert 'JobState=FAILED Reason=NonZeroExitCode ExitCode=3:0' in ended['words']
    assert ended['files']['bootstrap_0.err'].strip() == 'no such module'


def test_a_job_that_is_killed_while_it_runs(driver: BatchDriver, slurm: SlurmCluster, tmp_path: Path) -> None:
    job = driver.submitted(URL, 'job', tmp_path / 'box', 'sleep 600')
    while driver.event('state')['state'] != 'RUNNING':
        pass
    slurm.run('scancel', job)
    ended = driver.event('ended')
    assert (ended['state'], ended['words'][:18]) == ('CANCELED', 'JobState=CANCELLED')


def test_a_job_that_waits_tells_why(driver: BatchDriver, slurm: SlurmCluster, tmp_path: Path) -> None:
    blocking = slurm.run('sbatch', '--parsable', '-N4', '--exclusive', '-o', '/dev/null', '--wrap', 'sleep 600').strip()
    slurm.wait(lambda: slurm.jobs()[blocking] == 'RUNNING', 'the job of another user')
    driver.submitted(URL, 'job', tmp_path / 'box', 'true', nodes=4, cores=32, cores_per_node=8)
    try:
        while 'Reason=Resources' not in (state := driver.event('state'))['words']:
            assert state['state'] == 'QUEUED'
        driver.ask('cancel', URL, keys=[driver.last])
        assert driver.event('ended')['state'] == 'CANCELED'
    finally:
        slurm.run('scancel', blocking)
    assert not (tmp_path / 'box' / 'bootstrap_0.out').exists()


@pytest.mark.parametrize(('description', 'words'), [
    ({'queue': 'nowhere'}, 'invalid partition specified: nowhere'),
    ({'queue': 'short', 'minutes': 60}, 'Requested time limit is invalid'),
    ({'cores': 800}, 'More processors requested than permitted')])
def test_what_slurm_refuses(driver: BatchDriver, tmp_path: Path, description: dict[str, object], words: str) -> None:
    driver.ask('submit', URL, jobs=[driver.job('job', tmp_path / 'box', 'true', **description)])
    event = driver.event('submitted', 'refused')
    assert event['event'] == 'refused'
    assert words in event['reason'], event


def test_a_partition_that_is_down(driver: BatchDriver, tmp_path: Path) -> None:
    driver.submitted(URL, 'job', tmp_path / 'box', 'true', queue='closed')
    while 'Reason=PartitionDown' not in driver.event('state')['words']:
        pass
    driver.ask('cancel', URL, keys=[driver.last])
    assert driver.event('ended')['state'] == 'CANCELED'


def test_many_at_once(driver: BatchDriver, tmp_path: Path) -> None:
    jobs = [driver.job(f'job.{index}', tmp_path / f'box.{index}', f'echo {index}', queue='debug', cores=1)
            for index in range(16)]
    driver.ask('submit', URL, jobs=jobs)
    ended = [driver.event('ended', key=job['key']) for job in jobs]
    assert {event['state'] for event in ended} == {'DONE'}
    assert [event['files']['bootstrap_0.out'].strip() for event in ended] == [str(index) for index in range(16)]


def test_nothing_is_left_in_the_sandbox(driver: BatchDriver, tmp_path: Path) -> None:
    sandbox = tmp_path / 'box'
    driver.submitted(URL, 'job', sandbox, 'true')
    assert driver.event('ended')['state'] == 'DONE'
    assert {path.name for path in sandbox.iterdir()} == {'bootstrap_0.sh', 'bootstrap_0.out', 'bootstrap_0.err'}
