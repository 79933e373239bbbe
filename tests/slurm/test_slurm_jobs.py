"""Jobs on a real Slurm."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_driver import BatchDriver, batch_driver
from slurm_cluster import SlurmCluster, slurm_cluster

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
    return dict(line.split('=', 1) for line in lines if '=' in line)


def test_a_job_gets_what_it_asks_for(driver: BatchDriver, tmp_path: Path) -> None:
    environ = told(driver, tmp_path / 'box', nodes=2, cores=16, cores_per_node=8, gpus=4)
    assert (environ['SLURM_JOB_NUM_NODES'], environ['SLURM_JOB_CPUS_PER_NODE']) == ('2', '8(x2)')
    assert environ['SLURM_JOB_PARTITION'] == 'debug'
    assert environ['SLURM_JOB_NAME'] == 'job'


def test_a_queue_is_a_partition(driver: BatchDriver, tmp_path: Path) -> None:
    assert told(driver, tmp_path / 'box', queue='short')['SLURM_JOB_PARTITION'] == 'short'


def test_variables_of_sbatch_do_not_override_what_is_said(slurm: SlurmCluster, tmp_path: Path) -> None:
    """What is not said stays as the user wants it."""
    user = {'SBATCH_JOB_NAME': 'other', 'SBATCH_PARTITION': 'short', 'SBATCH_TIMELIMIT': '1', 'SBATCH_ARRAY_INX': '1-3',
            'SBATCH_WAIT': '1', 'SBATCH_OVERCOMMIT': '1', 'SBATCH_ACCOUNT': 'theirs', 'SBATCH_COMMENT': 'x'}
    with batch_driver(slurm.environ | user, tmp_path) as driver:
        environ = told(driver, tmp_path / 'box', queue='debug', account='mine')
        assert (environ['SLURM_JOB_NAME'], environ['SLURM_JOB_PARTITION']) == ('job', 'debug')
        assert environ['SLURM_JOB_ACCOUNT'] == 'mine'
        assert 'SLURM_ARRAY_JOB_ID' not in environ
        environ = told(driver, tmp_path / 'box.2')
        assert (environ['SLURM_JOB_PARTITION'], environ['SLURM_JOB_ACCOUNT']) == ('short', 'theirs')


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
            assert (state['state'], state['unschedulable']) == ('QUEUED', False)
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
    while 'Reason=PartitionDown' not in (state := driver.event('state'))['words']:
        pass
    assert state['unschedulable']
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


def test_a_limit_that_the_job_exceeds(driver: BatchDriver, slurm: SlurmCluster, tmp_path: Path) -> None:
    """As Slurm accepts it where EnforcePartLimits is NO, or when the limit was changed afterwards."""
    slurm.run('scontrol', 'update', 'partitionname=short', 'state=down')
    try:
        driver.submitted(URL, 'job', tmp_path / 'box', 'true', queue='short', minutes=20)
        slurm.run('scontrol', 'update', 'partitionname=short', 'maxtime=10', 'state=up')
        while 'Reason=PartitionTimeLimit' not in (state := driver.event('state'))['words']:
            pass
        assert state['unschedulable']
        driver.ask('cancel', URL, keys=[driver.last])
        assert driver.event('ended')['state'] == 'CANCELED'
    finally:
        slurm.run('scontrol', 'update', 'partitionname=short', 'maxtime=30', 'state=up')


def test_cores_of_several_nodes(driver: BatchDriver, tmp_path: Path) -> None:
    """As many as are asked for, wherever they are."""
    assert told(driver, tmp_path / 'box', cores=12)['SLURM_JOB_CPUS_PER_NODE'] == '8,4'
    assert told(driver, tmp_path / 'box', cores=24)['SLURM_JOB_CPUS_PER_NODE'] == '8(x3)'


@pytest.mark.parametrize('requeue', [False, True])
def test_jobs_that_may_be_started_again(driver: BatchDriver, slurm: SlurmCluster, tmp_path: Path,
                                        requeue: bool) -> None:
    job = driver.submitted(URL, 'job', tmp_path / 'box', 'test -z "$SLURM_RESTART_COUNT" || exit 7; exec sleep 600',
                           requeue=requeue)
    while driver.event('state')['state'] != 'RUNNING':
        pass
    said = slurm.run('scontrol', 'requeue', job, check=False)
    if requeue:
        while 'Reason=BeginTime' not in driver.event('state')['words']:
            pass
        slurm.run('scontrol', 'update', f'jobid={job}', 'starttime=now')   # it waits two minutes otherwise
        assert driver.event('ended')['exit_code'] == 7
    else:
        assert 'disabled' in said
        driver.ask('cancel', URL, keys=[driver.last])
        assert driver.event('ended')['state'] == 'CANCELED'


def test_a_directory_with_odd_letters(driver: BatchDriver, tmp_path: Path) -> None:
    sandbox = tmp_path / "it's 50% of $HOME, (mine)"
    driver.submitted(URL, 'job', sandbox, 'pwd; echo "$ODD"', environment={'ODD': '$(id) "x"'})
    assert driver.event('ended')['files']['bootstrap_0.out'].splitlines() == [str(sandbox), '$(id) "x"']


def test_submitted_again_when_slurm_is_back(tmp_path: Path) -> None:
    with slurm_cluster(nodes=1) as cluster:
        impatient = tmp_path / 'slurm.conf'   # the client's, which gives up sooner
        theirs = cluster.directory / 'slurm.conf'
        impatient.write_text(theirs.read_text().replace('MessageTimeout=30', 'MessageTimeout=5'))
        cluster.stop_controller()
        with batch_driver({'SLURM_CONF': str(impatient)}, tmp_path) as driver:
            jobs = [driver.job('job', tmp_path / f'box.{number}', 'echo done') for number in range(2)]
            driver.ask('submit', URL, jobs=jobs)
            for job in jobs:
                reason = driver.event('delayed', key=job['key'])['reason']
                assert reason.startswith('Slurm cannot be reached, the job is submitted again for up to 10 minutes: ')
                assert 'Unable to contact slurm controller' in reason
            driver.ask('cancel', URL, keys=[jobs[0]['key']])
            assert driver.event('refused', key=jobs[0]['key'])['reason'] == 'it was cancelled before it was submitted'
            cluster.start_controller()
            driver.event('submitted', key=jobs[1]['key'])
            assert driver.event('ended', key=jobs[1]['key'])['state'] == 'DONE'
            assert len(cluster.jobs()) == 1


def test_a_job_that_was_submitted_without_an_answer_is_not_submitted_twice(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The first submission is done, but looks as if Slurm had not been reached."""
    programs = tmp_path / 'bin'
    programs.mkdir()
    program = programs / 'sbatch'
    program.write_text('#!/bin/sh\n/usr/bin/env PATH="$REAL_PATH" sbatch >/dev/null\n'
                       'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"\n'
                       'exit 1\n')
    program.chmod(0o755)
    environ = {**slurm.environ, 'PATH': f'{programs}:{os.environ["PATH"]}', 'REAL_PATH': os.environ['PATH']}
    before = set(slurm.jobs())
    with batch_driver(environ, tmp_path) as driver:
        driver.ask('submit', URL, jobs=[driver.job('job', tmp_path / 'box', 'sleep 600')])
        assert 'Socket timed out' in driver.event('delayed')['reason']
        job = driver.event('submitted')['job']
        assert set(slurm.jobs()) - before == {job}
        driver.ask('cancel', URL, keys=[driver.last])
        assert driver.event('ended')['state'] == 'CANCELED'


def test_a_job_that_waits_is_found_again(driver: BatchDriver, slurm: SlurmCluster, tmp_path: Path) -> None:
    """By an application that does not know its id, beside one of the same name."""
    jobs = [driver.submitted(URL, 'job', tmp_path / name, 'true', queue='closed') for name in ('one', 'other')]
    again = driver.job('job', tmp_path / 'one', 'true', queue='closed')
    driver.ask('submit', URL, jobs=[again | {'earlier': ['a']}])
    assert driver.event('submitted', 'refused')['job'] == jobs[0]
    slurm.run('scancel', *jobs)
