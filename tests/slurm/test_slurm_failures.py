"""Pilots on a real Slurm that loses their first node, starts their job again, or is restarted itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from batch_pilots import FINAL, Managers, ends_beside_an_idle_pilot, marking, platform, runs, sandbox, use
from conftest import processes_with, wait_until
from slurm_cluster import SlurmCluster, slurm_cluster

import radical.pilot as rp
from rp_api.system.processes import process_table

TIMEOUT = 60.0

UNTIL_AGAIN = 'test -n "$SLURM_RESTART_COUNT" || exec sleep 600'


@pytest.fixture
def managers(slurm: SlurmCluster, base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managers]:
    """An open session whose platform `test.machine` is this Slurm."""
    use(slurm.environ | platform(base, 'slurm://localhost/', 'SLURM', launch_methods={
        'order': ['FORK', 'SRUN'], 'FORK': {}, 'SRUN': {}}), monkeypatch)
    with rp.Session(cfg={'base': str(base)}) as session:
        yield Managers(session)
    assert not set(slurm.jobs().values()) & {'RUNNING', 'PENDING'}


def job_of(slurm: SlurmCluster) -> str:
    """The only job that runs."""
    (job,) = [job for job, state in slurm.jobs().items() if state == 'RUNNING']
    return job


def node_of(pilot: rp.Pilot) -> str:
    """The only node of a pilot."""
    (node,) = [node['name'] for node in (pilot.resource_details or {})['node_list']]
    return str(node)


def job_of_pilot(slurm: SlurmCluster, pilot: rp.Pilot) -> str:
    """The job of a pilot of one node."""
    return slurm.run('squeue', '-h', '-t', 'running', '-w', node_of(pilot), '-o', '%i').strip()


def busy(managers: Managers, base: Path) -> list[rp.Task]:
    """Two tasks that run on all cores of the pilot, one of which may run again, and one that waits for them."""
    begun = len(runs(base / 'ran'))
    tasks = managers.tmgr.submit_tasks([marking(base, 'exec sleep 600', cores_per_rank=4),
                                        marking(base, UNTIL_AGAIN, cores_per_rank=4, restartable=True)])
    wait_until(lambda: len(runs(base / 'ran')) == begun + 2)
    (waiting,) = managers.tmgr.submit_tasks([marking(base, ':', cores_per_rank=8)])
    waiting.wait([rp.AGENT_SCHEDULING, rp.AGENT_EXECUTING], timeout=40)
    return [*tasks, waiting]


def lose_node(slurm: SlurmCluster, name: str) -> None:
    slurm.run('scontrol', 'update', f'nodename={name}', 'state=down', 'reason=test')


def find_node(slurm: SlurmCluster, name: str) -> None:
    slurm.run('scontrol', 'update', f'nodename={name}', 'state=resume', check=False)   # it may have come back by itself
    slurm.wait(lambda: slurm.run('sinfo', '-h', '-n', name, '-p', 'debug', '-o', '%T') == 'idle\n', f'{name} is idle')


def start_again(slurm: SlurmCluster, job: str) -> None:
    """Have a job that was requeued start soon, when nothing is left of it; it would start two minutes later."""
    slurm.wait(lambda: 'JobState=PENDING Reason=BeginTime' in slurm.run('scontrol', '-o', 'show', 'job', job),
               f'{job} is in the queue again')
    wait_until(lambda: not processes_with(f'slurmstepd: [{job}.'))
    # slurmd launches no second run in the second in which the first one was told to end: the job fails with exit code 1
    slurm.run('scontrol', 'update', f'jobid={job}', 'starttime=now+3')


def test_the_node_of_the_agent_is_lost(managers: Managers, slurm: SlurmCluster, base: Path) -> None:
    pilot = managers.active(cores=0, nodes=1)
    task = managers.tmgr.submit_tasks(marking(base, 'exec sleep 600'))
    task.wait(rp.AGENT_EXECUTING, timeout=40)
    job = job_of(slurm)
    node = node_of(pilot)
    lose_node(slurm, node)
    try:
        said = managers.failed(pilot)
        assert f'job {job} of {pilot.uid} on slurm://localhost/ failed: JobState=NODE_FAIL' in said
        assert 'somebody' not in said
        task.wait(timeout=40)
        assert task.state == rp.FAILED
        assert pilot.uid in str(task.exception)
    finally:
        find_node(slurm, node)


def test_a_job_that_is_cancelled_in_slurm(managers: Managers, slurm: SlurmCluster, base: Path) -> None:
    """Its tasks have not failed: those that may run again, or have not started, run on another pilot."""
    first = managers.active(cores=0, nodes=1, exit_on_error=False)
    job = job_of(slurm)
    runs_once = f'test $(grep -cx $RP_TASK_ID {base}/ran) = 2 || exec sleep 600'
    again, plain = managers.tmgr.submit_tasks([
        marking(base, runs_once, cores_per_rank=4, restartable=True, literal_arguments=True),
        marking(base, 'exec sleep 600', cores_per_rank=4)])
    wait_until(lambda: len(runs(base / 'ran')) == 2)
    (waiting,) = managers.tmgr.submit_tasks([marking(base, ':', cores_per_rank=8)])
    second = managers.active(cores=0, nodes=1, exit_on_error=False)
    slurm.run('scancel', job)
    managers.tmgr.wait_tasks(timeout=TIMEOUT)
    assert [(task.state, task.pilot, task.attempts, task.losses) for task in (again, plain, waiting)] == [
        (rp.DONE, second.uid, 2, 1), (rp.FAILED, first.uid, 1, 0), (rp.DONE, second.uid, 1, 0)]
    assert plain.error is not None
    assert plain.error.kind == 'pilot'


@pytest.mark.parametrize(('how', 'scheduler'), [
    ('scancel', rp.SCHEDULER_ROUND_ROBIN), ('scancel', rp.SCHEDULER_BACKFILLING),
    ('scancel, of what may be started again', rp.SCHEDULER_ROUND_ROBIN), ('walltime', rp.SCHEDULER_ROUND_ROBIN),
    ('preemption', rp.SCHEDULER_BACKFILLING)])
def test_a_job_ends_beside_an_idle_pilot(managers: Managers, slurm: SlurmCluster, base: Path, how: str,
                                         scheduler: str) -> None:
    managers.tmgr = rp.TaskManager(managers.session, scheduler=scheduler)
    size: dict[str, object] = {'cores': 0, 'nodes': 1}

    def end(first: rp.Pilot) -> None:
        job = job_of_pilot(slurm, first)
        if how == 'walltime':
            slurm.run('scontrol', 'update', f'jobid={job}', 'endtime=now+1')
        elif how == 'preemption':
            slurm.run('sbatch', '--partition=urgent', '--exclusive', f'--nodelist={node_of(first)}',
                      '--output=/dev/null', '--wrap=:')
        else:
            slurm.run('scancel', job)

    ends_beside_an_idle_pilot(managers, base, end, size | {'requeue': how not in ('scancel', 'walltime', 'preemption')},
                              size)


def test_a_job_that_is_started_again_goes_on(managers: Managers, slurm: SlurmCluster, base: Path) -> None:
    pilot = managers.active(cores=0, nodes=1, requeue=True)
    (done,) = managers.tmgr.submit_tasks([marking(base, ':')])
    done.wait(timeout=40)
    lost, restartable, waiting = busy(managers, base)
    job = job_of(slurm)
    slurm.run('scontrol', 'requeue', job)
    start_again(slurm, job)
    managers.tmgr.wait_tasks(timeout=TIMEOUT)
    assert [task.state for task in (done, lost, restartable, waiting)] == [rp.DONE, rp.FAILED, rp.DONE, rp.DONE]
    assert f'{pilot.uid} was told to end by a signal' in str(lost.exception)
    assert sorted(runs(base / 'ran')) == sorted([done.uid, lost.uid, restartable.uid, restartable.uid, waiting.uid])
    assert pilot.state == rp.PMGR_ACTIVE
    assert any('the batch system has started the job of' in line for line in pilot.log), pilot.log
    (after,) = managers.tmgr.submit_tasks([marking(base, ':')])
    after.wait(timeout=40)
    assert after.state == rp.DONE


def test_a_job_that_is_started_again_after_it_was_killed(managers: Managers, slurm: SlurmCluster, base: Path) -> None:
    """Its agent could not say anything."""
    pilot = managers.active(cores=0, nodes=1, requeue=True)
    lost, restartable, waiting = busy(managers, base)
    job = job_of(slurm)
    (node,) = [node['name'] for node in (pilot.resource_details or {})['node_list']]
    with killed(pilot):
        lose_node(slurm, node)
    try:
        start_again(slurm, job)
    finally:
        find_node(slurm, node)
    managers.tmgr.wait_tasks(timeout=TIMEOUT)
    assert [task.state for task in (lost, restartable, waiting)] == [rp.FAILED, rp.DONE, rp.DONE]
    assert f'the job of {pilot.uid} was started again after {lost.uid} had started' in str(lost.exception)
    assert sorted(runs(base / 'ran')) == sorted([lost.uid, restartable.uid, restartable.uid, waiting.uid])
    assert pilot.state == rp.PMGR_ACTIVE


def test_a_job_of_two_nodes_that_is_started_again_without_its_first(managers: Managers, slurm: SlurmCluster,
                                                                    base: Path) -> None:
    pilot = managers.active(cores=0, nodes=2, requeue=True)
    tasks = managers.tmgr.submit_tasks([marking(base, UNTIL_AGAIN, cores_per_rank=8, restartable=True)
                                        for _ in range(2)])
    wait_until(lambda: len(runs(base / 'ran')) == 2)
    job = job_of(slurm)
    node = (pilot.resource_details or {})['node_list'][0]['name']
    with killed(pilot):
        lose_node(slurm, node)
    try:
        start_again(slurm, job)
    finally:
        find_node(slurm, node)
    managers.tmgr.wait_tasks(timeout=TIMEOUT)
    assert [task.state for task in tasks] == [rp.DONE, rp.DONE]
    assert sorted(runs(base / 'ran')) == sorted([task.uid for task in tasks] * 2)
    assert pilot.state == rp.PMGR_ACTIVE


def agent_of(pilot: rp.Pilot) -> int:
    (agent,) = [pid for pid, line in processes_with(f'{sandbox(pilot)}/agent_0.cfg').items() if 'rp_agent.cli' in line]
    return agent


@contextmanager
def killed(pilot: rp.Pilot) -> Iterator[None]:
    """Kill the processes of a job, while Slurm is not told of their end, as if the node had crashed."""
    table = process_table()
    pid = agent_of(pilot)
    line: list[int] = []
    while not Path(f'/proc/{pid}/cmdline').read_bytes().startswith(b'slurmstepd'):
        line.insert(0, pid)
        pid = table[pid].parent
    os.kill(pid, signal.SIGSTOP)
    try:
        for each in line:
            os.kill(each, signal.SIGKILL)
        yield
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_job_that_is_started_again_though_it_should_not_be(managers: Managers, slurm: SlurmCluster,
                                                             base: Path) -> None:
    """As sites can have it."""
    pilot = managers.active(cores=0, nodes=1)
    task = managers.tmgr.submit_tasks(marking(base, 'exec sleep 600'))
    task.wait(rp.AGENT_EXECUTING, timeout=40)
    job = job_of(slurm)
    slurm.run('scontrol', 'update', f'jobid={job}', 'requeue=1')
    slurm.run('scontrol', 'requeue', job)
    start_again(slurm, job)
    said = managers.failed(pilot)
    assert 'was told to end by a signal' in said
    slurm.wait(lambda: slurm.jobs()[job] not in ('PENDING', 'RUNNING', 'COMPLETING'), 'the end of the job')
    failed = (sandbox(pilot) / 'bootstrap_0.failed').read_text()
    assert f'the batch system has started the job of {pilot.uid} again (restart 1), after its agent had ended' in failed
    assert runs(base / 'ran') == [task.uid]


def test_slurm_is_restarted_while_a_pilot_runs(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with slurm_cluster(nodes=1) as cluster:
        use(cluster.environ | platform(base, 'slurm://localhost/', 'SLURM'), monkeypatch)
        with rp.Session(cfg={'base': str(base)}) as session:
            managers = Managers(session)
            pilot = managers.active(cores=0, nodes=1)
            go = base / 'go'
            tasks = managers.tmgr.submit_tasks([marking(base, f'until test -e {go}; do sleep 0.1; done')] * 16)
            wait_until(lambda: len(runs(base / 'ran')) == 8)
            cluster.stop_controller()
            go.touch()
            managers.tmgr.wait_tasks(timeout=40)   # Slurm is not needed for that
            assert {task.state for task in tasks} == {rp.DONE}
            assert pilot.state == rp.PMGR_ACTIVE
            cluster.start_controller()
            cluster.wait(lambda: 'UP' in cluster.run('scontrol', 'ping', check=False), 'the controller')
            cluster.run('scancel', job_of(cluster))
            assert 'JobState=CANCELLED' in managers.failed(pilot)


def test_nothing_outlives_the_session_of_the_job(managers: Managers, slurm: SlurmCluster) -> None:
    """As when a batch system kills what it knows of a job, which is the session of its shell."""
    pilot = managers.active(cores=0, nodes=1)
    leaves = 'sleep 1000 & setsid sleep 1000 & sleep 1000'
    tasks = managers.tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', leaves]})] * 2)
    managers.tmgr.wait_tasks(state=rp.AGENT_EXECUTING, timeout=40)
    mark = f'RP_PILOT_SANDBOX={sandbox(pilot)}'
    wait_until(lambda: len([line for line in processes_with(mark).values() if line.startswith('sleep')]) == 6)
    session = process_table()[agent_of(pilot)].session
    for pid in [process.pid for process in process_table().values() if process.session == session]:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not processes_with(mark))
    pilot.wait(FINAL, timeout=40)
    assert {task.state for task in tasks} <= {rp.FAILED, rp.AGENT_EXECUTING}
