"""Pilots on a real Slurm, from submission to the last task."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from batch_pilots import FINAL, Managers, platform, sandbox, use
from conftest import processes_with, wait_until
from slurm_cluster import SlurmCluster

import radical.pilot as rp
from rp_api.coordination import sessions

ROOT = Path(__file__).parents[2]


@pytest.fixture
def managers(slurm: SlurmCluster, base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managers]:
    """An open session whose platform `test.machine` is this Slurm."""
    use(slurm.environ | platform(base, 'slurm://localhost/', 'SLURM', gpus_per_node=2), monkeypatch)
    with rp.Session(cfg={'base': str(base)}) as session:
        yield Managers(session)
    assert not set(slurm.jobs().values()) & {'RUNNING', 'PENDING'}


def last_job(slurm: SlurmCluster) -> str:
    """The job that was submitted last, once there is one that has not ended."""
    def found() -> list[int]:
        return [int(number) for number, state in slurm.jobs().items() if state in ('PENDING', 'RUNNING')]

    return str(max(wait_until(found)))


def test_tasks_run_on_the_nodes_of_the_job(managers: Managers) -> None:
    pilot = managers.active(gpus=2)
    assert len(list(sandbox(pilot).iterdir())) <= 15
    details = pilot.resource_details or {}
    assert ([node['name'][0] for node in details['node_list']], details['cores_per_node'],
            details['gpus_per_node']) == (['n'], 8, 2)
    node = details['node_list'][0]['name']
    assert managers.outputs(16, 'echo $SLURMD_NODENAME $SLURM_JOB_NUM_NODES') == [f'{node} 1'] * 16
    seen = managers.outputs(4, 'echo $CUDA_VISIBLE_DEVICES', gpus_per_rank=1, gpu_type=rp.CUDA)
    assert set(seen) == {'0', '1'}


def test_tasks_see_the_environment_of_the_job(managers: Managers) -> None:
    managers.active()
    assert managers.outputs(1, 'echo ${SLURM_JOB_ID:+job} ${VIRTUAL_ENV:-none}') == ['job none']


def test_a_job_that_is_killed_in_the_queue(managers: Managers, slurm: SlurmCluster) -> None:
    pilot = managers.submitted(queue='closed')
    slurm.run('scancel', last_job(slurm))
    said = managers.failed(pilot)
    assert 'CANCELLED' in said, said


def test_why_a_pilot_waits_in_the_queue(managers: Managers, slurm: SlurmCluster) -> None:
    other_job = slurm.run('sbatch', '--parsable', '-N4', '--exclusive', '-p', 'debug', '-t', '30', '--wrap',
                          'sleep 600').strip()
    pilot, closed = managers.submitted(), managers.submitted(queue='closed')
    wait_until(lambda: 'the nodes that it needs are in use' in str(pilot.reason))
    wait_until(lambda: 'Reason=PartitionDown' in str(closed.reason))
    reason, other = pilot.reason, closed.reason
    assert reason is not None
    assert other is not None
    job = reason.evidence['job']
    assert (reason.kind, other.kind) == ('waiting.queue', 'waiting.unschedulable')
    assert reason.sentence.startswith(f'{pilot.uid} is in the queue: job {job} waits because the nodes that it needs '
                                      'are in use (JobState=PENDING Reason=Resources)')
    tmgr = rp.TaskManager(managers.session)
    tmgr.add_pilots(pilot)
    task = tmgr.submit_tasks(rp.TaskDescription({'executable': 'true'}))
    wait_until(lambda: str(task.reason).startswith(f'waits for {pilot.uid}: {pilot.uid} is in the queue: job {job}'))
    slurm.run('scontrol', 'update', f'jobid={job}', 'starttime=now+3600')
    wait_until(lambda: 'its start at' in str(pilot.reason))
    with sessions.records(managers.session.path) as records:
        assert records.note(f'job.{pilot.uid}')['queue']['job'] == job
    slurm.run('scancel', other_job, job, str(other.evidence['job']))
    pilot.wait(timeout=60)
    assert pilot.reason is not None
    assert pilot.reason.kind == 'canceled' or pilot.reason.kind.startswith('failed.')


def busy(managers: Managers) -> tuple[rp.Pilot, list[rp.Task]]:
    """A pilot with tasks that do not end."""
    pilot = managers.active()
    tasks = managers.tmgr.submit_tasks([rp.TaskDescription({'executable': 'sleep', 'arguments': ['600']})] * 3)
    wait_until(lambda: {task.state for task in tasks} == {rp.AGENT_EXECUTING})
    return pilot, tasks


def test_a_job_that_is_cancelled_while_it_runs(managers: Managers, slurm: SlurmCluster) -> None:
    pilot, tasks = busy(managers)
    slurm.run('scancel', last_job(slurm))
    said = managers.failed(pilot)
    assert 'was told to end by a signal, before its runtime was over; job ' in said
    assert 'JobState=CANCELLED' in said
    managers.tmgr.wait_tasks(timeout=40)
    assert {task.state for task in tasks} == {rp.FAILED}


def test_a_job_whose_processes_are_killed(managers: Managers) -> None:
    pilot, tasks = busy(managers)
    for pid in processes_with(f'RP_PILOT_SANDBOX={sandbox(pilot)}'):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    said = managers.failed(pilot)
    assert 'JobState=FAILED' in said, said
    managers.tmgr.wait_tasks(timeout=40)
    assert {task.state for task in tasks} == {rp.FAILED}


def test_a_job_that_slurm_refuses(managers: Managers) -> None:
    said = managers.failed(managers.submitted(queue='nowhere'))
    assert 'invalid partition specified: nowhere' in said


def test_a_bootstrap_that_fails(slurm: SlurmCluster, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(slurm.environ | platform(base, 'slurm://localhost/', 'SLURM', pre_bootstrap_0=['echo no luck >&2; false']),
        monkeypatch)
    with rp.Session(cfg={'base': str(base)}) as session:
        managers = Managers(session)
        said = managers.failed(managers.submitted())
    assert 'a command of pre_bootstrap_0 failed with exit code 1: echo no luck >&2; false' in said
    assert 'no luck' in said.splitlines()[-1]


@pytest.mark.parametrize('queue', ['closed', 'debug'])
def test_cancel(managers: Managers, slurm: SlurmCluster, queue: str) -> None:
    """In the queue, and at any moment of the start."""
    pilot = managers.submitted(queue=queue)
    number = last_job(slurm)
    managers.pmgr.cancel_pilots(pilot.uid)
    assert pilot.state == rp.CANCELED
    wait_until(lambda: slurm.jobs()[number] not in ('PENDING', 'RUNNING', 'COMPLETING'))


def test_many_pilots_at_once(managers: Managers, slurm: SlurmCluster) -> None:
    description = rp.PilotDescription({'resource': 'test.machine', 'cores': 8, 'runtime': 10, 'queue': 'debug'})
    pilots = managers.pmgr.submit_pilots([description] * 6)
    wait_until(lambda: [pilot.state for pilot in pilots].count(rp.PMGR_ACTIVE) == 4)
    waiting = [pilot for pilot in pilots if pilot.state != rp.PMGR_ACTIVE]
    assert not {pilot.state for pilot in waiting} & set(FINAL)
    managers.pmgr.cancel_pilots()
    assert {pilot.state for pilot in pilots} == {rp.CANCELED}


def test_quickstart(slurm: SlurmCluster, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(slurm.environ | platform(base, 'slurm://localhost/', 'SLURM'), monkeypatch)
    command = [sys.executable, f'{ROOT}/examples/quickstart.py', '--resource', 'test.machine', '--cores', '8']
    done = subprocess.run([*command, '--limit', '40'], cwd=base, capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '40 of 40 files compressed and verified' in done.stdout


@pytest.mark.long
def test_the_benchmark(base: Path) -> None:
    command = [sys.executable, f'{ROOT}/benchmarks/platforms.py', '--runs', '1', 'slurm']
    done = subprocess.run(command, cwd=base, text=True, capture_output=True, timeout=55)
    figures = [line.split('|')[1].strip() for line in done.stdout.splitlines() if line.startswith('|')]
    assert 'slurm: ours / s' in figures, done.stderr
