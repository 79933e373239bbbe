"""Jobs on a real Grid Engine."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_driver import BatchDriver, batch_driver
from grid_engine import GridEngine, grid_engine

URL = 'sge://localhost/'
PARALLEL = {'cores': 4}


@pytest.fixture(scope='module')
def driver(cluster: GridEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BatchDriver]:
    """A launcher's process that finds this Grid Engine."""
    with batch_driver(cluster.environ, tmp_path_factory.mktemp('saga')) as found:
        yield found


def test_a_job_gets_its_slots(driver: BatchDriver, tmp_path: Path) -> None:
    driver.submitted(URL, 'job', tmp_path / 'box', 'echo $NSLOTS; cat $PE_HOSTFILE', **PARALLEL)
    ended = driver.event('ended')
    assert ended['state'] == 'DONE', ended
    assert ended['files']['bootstrap_0.out'].split()[:3] == ['4', 'localhost', '4']


def test_a_job_that_fails(driver: BatchDriver, tmp_path: Path) -> None:
    driver.submitted(URL, 'job', tmp_path / 'box', 'echo no such module >&2; exit 3', **PARALLEL)
    ended = driver.event('ended')
    assert (ended['state'], ended['exit_code']) == ('FAILED', 3), ended
    assert ended['files']['bootstrap_0.err'].strip() == 'no such module'


def test_a_cancelled_job(driver: BatchDriver, cluster: GridEngine, tmp_path: Path) -> None:
    driver.submitted(URL, 'job', tmp_path / 'box', 'sleep 600', **PARALLEL)
    while driver.event('state')['state'] != 'RUNNING':
        pass
    driver.ask('cancel', URL, keys=[driver.last])
    assert driver.event('ended')['state'] in ('CANCELED', 'FAILED')
    cluster.wait(lambda: not cluster.run('qstat'), 'an empty queue')


def test_a_queue_that_is_not_there(driver: BatchDriver, tmp_path: Path) -> None:
    driver.ask('submit', URL, jobs=[driver.job('job', tmp_path / 'box', 'true', queue='nowhere', **PARALLEL)])
    refused = driver.event('submitted', 'refused')
    assert refused['event'] == 'refused'
    assert 'nowhere' in refused['reason']


def test_a_job_whose_start_fails_is_deleted(driver: BatchDriver, cluster: GridEngine, tmp_path: Path) -> None:
    cluster.run('qmod', '-d', 'all.q')
    driver.submitted(URL, 'job', tmp_path / 'box', 'true', **PARALLEL)
    shutil.rmtree(tmp_path / 'box')
    cluster.run('qmod', '-e', 'all.q')
    ended = driver.event('ended')
    assert ended['state'] == 'FAILED'
    assert re.match(rf'state Eqw, error reason: .*{tmp_path}/box', ended['words'])
    cluster.wait(lambda: not cluster.run('qstat'), 'an empty queue')


def waits(driver: BatchDriver, words: str) -> None:
    """Wait until the job that was submitted last cannot start, for that reason, and cancel it."""
    while words not in (state := driver.event('state'))['words']:
        pass
    assert state['unschedulable'], state
    driver.ask('cancel', URL, keys=[driver.last])
    assert driver.event('ended')['state'] in ('CANCELED', 'FAILED', 'GONE')


def test_a_job_that_is_too_large(driver: BatchDriver, tmp_path: Path) -> None:
    driver.submitted(URL, 'job', tmp_path / 'box', 'true', cores=100)
    waits(driver, 'verification: no suitable queues')


def test_a_queue_that_is_disabled(driver: BatchDriver, cluster: GridEngine, tmp_path: Path) -> None:
    cluster.run('qmod', '-d', 'all.q')
    try:
        driver.submitted(URL, 'job', tmp_path / 'box', 'true', cores=1, queue='all.q')
        waits(driver, 'all instances of the queue are stopped')
    finally:
        cluster.run('qmod', '-e', 'all.q')


def test_a_job_that_waits_for_its_turn(driver: BatchDriver, cluster: GridEngine, tmp_path: Path) -> None:
    cluster.run('qsub', '-N', 'other', '-pe', 'MPI', '16', '-b', 'y', 'sleep', '600')
    try:
        driver.submitted(URL, 'job', tmp_path / 'box', 'true', cores=16)
        state = driver.event('state')
        assert (state['state'], state['unschedulable']) == ('QUEUED', False)
    finally:
        cluster.run('qdel', 'other')
    assert driver.event('ended')['state'] == 'DONE'


@pytest.mark.parametrize('requeue', [False, True])
def test_jobs_that_may_be_started_again(driver: BatchDriver, cluster: GridEngine, tmp_path: Path,
                                        requeue: bool) -> None:
    job = driver.submitted(URL, 'job', tmp_path / 'box', 'sleep 600', requeue=requeue, **PARALLEL)
    found = re.search(r'^restart: +(\w)', cluster.run('qstat', '-j', job), re.MULTILINE)
    assert found
    assert found[1] == ('y' if requeue else 'n')
    driver.ask('cancel', URL, keys=[driver.last])
    driver.event('ended')


@pytest.mark.long
def test_submitted_again_when_the_master_is_back(tmp_path: Path) -> None:
    with grid_engine() as cluster, batch_driver(cluster.environ, tmp_path) as driver:
        cluster.stop_master()
        driver.ask('submit', URL, jobs=[driver.job('job', tmp_path / 'box', 'true', **PARALLEL)])
        assert 'Grid Engine cannot be reached' in driver.event('delayed')['reason']
        cluster.start_master()
        driver.event('submitted')


def test_a_job_is_found_again(driver: BatchDriver, cluster: GridEngine, tmp_path: Path) -> None:
    """By an application that does not know its id, beside one of the same name."""
    jobs = [driver.submitted(URL, 'job', tmp_path / name, 'sleep 600', **PARALLEL) for name in ('one', 'other')]
    driver.ask('submit', URL, jobs=[driver.job('job', tmp_path / 'one', 'true', **PARALLEL) | {'earlier': ['a']}])
    assert driver.event('submitted', 'refused')['job'] == jobs[0]
    cluster.run('qdel', *jobs)
    cluster.wait(lambda: not cluster.run('qstat'), 'an empty queue')
