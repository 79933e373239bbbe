"""The executor FLUX, with a program on PATH that answers as Flux does, or the one that TEST_FLUX names.

What it has in common with the others is in test_executor_contract.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from backend_support import CORES, FLUX_PATH, REAL_FLUX, backends, twice
from backend_support import FluxHarness as Harness
from executor_support import said, sh, text
from launch_support import is_gone
from leftovers import must_end

from rp_agent.executor.backends import jobs
from rp_agent.executor.backends.flux import flux_runner
from rp_agent.executor.backends.flux.executor import EnclosingFlux, NestedFlux, jobspec
from rp_agent.executor.launching.rank_script import host_of
from rp_agent.task import Description
from rp_api import states
from rp_api.constants import RAPTOR_WORKER
from rp_api.system import processes


def wait_for(path: Path) -> None:
    """Until a program has written a line there."""
    deadline = time.monotonic() + 60
    while not said(path):
        assert time.monotonic() < deadline, f'nothing was written to {path}'
        time.sleep(0.01)


@pytest.fixture
def brokers() -> Iterator[str]:
    """A directory whose name is short enough for sockets, for brokers that are killed before they remove theirs."""
    with tempfile.TemporaryDirectory() as path:
        yield path


@pytest.fixture
def make(tmp_path: Path, brokers: str) -> Iterator[Callable[..., Harness]]:
    with backends(Harness, tmp_path, brokers) as made:
        yield made


@contextmanager
def a_flux(brokers: str) -> Iterator[dict[str, str]]:
    """An instance that is not the agent's, with a job of somebody else, and the environment of a process in it."""
    environment = {**os.environ, 'PATH': FLUX_PATH, 'TMPDIR': brokers}
    with subprocess.Popen(['flux', 'start', 'sh', '-c', 'echo $FLUX_URI; read nothing'], env=environment, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        inside = {**environment, 'FLUX_URI': broker.stdout.readline().strip()}
        yield inside
        assert broker.poll() is None
        broker.communicate('\n')


@contextmanager
def a_runner(environment: dict[str, str], directory: Path) -> Iterator[Callable[[str], None]]:
    """What submits a job to a runner in this directory, which is killed in the end."""
    directory.mkdir()
    with subprocess.Popen(['flux', 'python', flux_runner.__file__], env=environment, cwd=directory, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        assert json.loads(runner.stdout.readline()) == {'ready': True}

        def submit(script: str) -> None:
            spec = jobspec(Description(), ('/bin/sh', '-c', script), environment, '/', ('/dev/null', '/dev/null'))
            assert runner.stdin is not None
            assert runner.stdout is not None
            runner.stdin.write(json.dumps({'run': 'task', 'jobspec': spec}) + '\n')
            runner.stdin.flush()
            assert json.loads(runner.stdout.readline()) == {'started': 'task'}

        try:
            yield submit
            assert runner.poll() is None
        finally:
            runner.kill()


def test_a_task(make: Callable[..., Harness], tmp_path: Path, brokers: str) -> None:
    harness = make(profile=tmp_path / 'agent_executing.0000.prof')
    task = harness.run_one(**sh('echo $RP_RANK of $RP_RANKS in $(pwd); echo no >&2; echo $FOO'),
                           environment={'FOO': 'bar'}, pre_exec=['echo before'], post_exec=['echo after'])
    assert (task.target_state, task.exit_code) == (states.DONE, 0), task.exception_detail
    assert text(task, 'task.000000.out').split('\n')[:-1] == ['before', f'0 of 1 in {task.sandbox}', 'bar', 'after']
    assert text(task, 'task.000000.err') == 'no\n'
    events = [event for event in harness.events() if not event.startswith('dvm')]
    assert events == ['task_start', 'task_mkdir', 'task_mkdir_done', 'task_run_start', 'task_run_ok', 'launch_start',
                      'launch_pre', 'launch_submit', 'launch_collect', 'launch_post', 'launch_stop', 'task_run_stop']
    harness.stop()
    assert not harness.instances()
    assert not os.listdir(brokers), 'files are left'


def test_ranks_know_their_numbers_and_wait_for_each_other(make: Callable[..., Harness]) -> None:
    harness = make()
    task = harness.run_one(**sh('echo $RP_RANK/$RP_RANKS'), ranks=2, pre_exec_sync=True)
    assert task.target_state == states.DONE
    assert sorted(text(task, 'task.000000.out').split()) == ['0/2', '1/2']


def test_how_else_tasks_fail(make: Callable[..., Harness]) -> None:
    harness = make()
    tasks = {name: harness.task(name, **description) for name, description in {
        'rank': {**sh('exit $((RP_RANK * 7))'), 'ranks': 2}, 'large': {'ranks': CORES + 1},
        'half': {'gpus_per_rank': 0.5}, 'pre': {'pre_launch': ['true']}, 'partition': {'partition': 1}}.items()}
    harness.run(*tasks.values())
    assert {task.target_state for task in tasks.values()} == {states.FAILED}
    assert tasks['rank'].exit_code == 7
    assert 'FLUX does not accept the task: alloc: ' in str(tasks['large'].exception_detail)
    assert 'unsatisfiable' in str(tasks['large'].exception_detail)
    assert 'whole GPUs' in str(tasks['half'].exception_detail)
    assert 'use pre_exec' in str(tasks['pre'].exception_detail)
    assert 'partition is 1, the pilot has 1 instance(s) of FLUX' in str(tasks['partition'].exception_detail)


def test_tasks_are_spread_over_instances(make: Callable[..., Harness]) -> None:
    harness = make(instances=2)
    tasks = [harness.task(f'task.{number}', **sh('echo $PPID')) for number in range(8)]
    pinned = [harness.task(f'pinned.{number}', **sh('echo $PPID'), partition=1) for number in range(2)]
    harness.run(*tasks, *pinned)
    assert {task.target_state for task in harness.out} == {states.DONE}
    assert len(harness.instances()) == 2


def test_a_cancelled_task_leaves_nothing(make: Callable[..., Harness], tmp_path: Path) -> None:
    harness = make()
    tasks = [harness.task(f'task.{number}', **sh(f'echo $$ >{tmp_path}/pid.{number}; exec sleep 1000'),
                          cores_per_rank=CORES) for number in range(2)]
    harness.when(lambda: any(tmp_path.glob('pid.*')),
                 lambda: harness.executor.cancel(['task.0', 'task.1', 'unknown']))
    harness.run(*tasks)
    assert [task.target_state for task in tasks] == [states.CANCELED] * 2
    assert all(is_gone(int(path.read_text())) for path in tmp_path.glob('pid.*') if path.read_text())


def test_time_limits(make: Callable[..., Harness]) -> None:
    harness = make()
    first = harness.task('first', **sh('exec sleep 1000'), timeout=0.2, cores_per_rank=CORES)
    late = harness.task('late', startup_timeout=0.1, cores_per_rank=CORES)
    harness.run(first, late)
    assert {task.target_state for task in harness.out} == {states.CANCELED}
    assert first.exception_detail == 'timeout: the task ran longer than 0.2 s'
    assert late.exception_detail == 'startup_timeout: the task did not start to execute within 0.1 s'


def test_a_rank_that_fails_ends_its_task_once(make: Callable[..., Harness], tmp_path: Path) -> None:
    """Flux tells an exception first, as it does when it could not start a job."""
    harness = make()
    task = harness.run_one(**sh(f'echo >>{tmp_path}/runs; test $RP_RANK = 0 && exec sleep 1000; '
                                rf'while test \$(wc -l <{tmp_path}/runs) != 2; do sleep 0.05; done; exit 7'), ranks=2)
    assert (task.target_state, task.exit_code) == (states.FAILED, 7), task.exception_detail
    assert 'exit code: 7 of rank 1' in str(task.exception_detail)
    assert len((tmp_path / 'runs').read_text()) == 2


def test_many_tasks_of_a_broker_that_dies_run_again(make: Callable[..., Harness], tmp_path: Path) -> None:
    """Those that have not started wait for the next instance; the runner tells that this one cannot be reached."""
    harness = make()
    script = f'echo >>{tmp_path}/runs.$RP_TASK_ID; test -e {tmp_path}/killed || exec sleep 1000'
    tasks = [harness.task(f'task.{number}', **sh(script), cores_per_rank=CORES) for number in range(8)]

    def kill() -> None:
        (tmp_path / 'killed').touch()
        live, = harness.executor.supervisor._live.values()
        assert live.process.process is not None
        for process in processes.sweep({'RP_INSTANCE': harness.executor.supervisor._mark(live.number)}, 0):
            if 'broker' in Path(f'/proc/{process}/cmdline').read_text():
                os.kill(process, signal.SIGKILL)

    harness.when(lambda: any(tmp_path.glob('runs.*')), kill)
    harness.run(*tasks)
    assert [task.target_state for task in tasks] == [states.DONE] * 8, [task.exception_detail for task in tasks]
    assert sorted(len(path.read_text()) for path in tmp_path.glob('runs.*')) == [1] * 7 + [2]


def test_runners_that_are_never_ready_use_up_no_launches(make: Callable[..., Harness], tmp_path: Path) -> None:
    harness = make()
    task = harness.task(**twice(tmp_path))
    killed: list[int] = []

    def kill() -> None:
        """Kill each runner as soon as it is there, and the broker with the last one."""
        runner = harness.executor._runners.get(0)
        process = runner._process.process if runner is not None else None   # type: ignore[attr-defined]
        if process is not None and process.pid not in killed:
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)
        if len(killed) < jobs.RUNNERS + 1:
            harness.loop.call_later(0.005, kill)

    harness.when(lambda: said(tmp_path / 'pids'), kill)
    harness.run(task)
    assert task.target_state == states.DONE, task.exception_detail
    assert len(killed) == jobs.RUNNERS + 1


def test_a_worker_has_one_manager(make: Callable[..., Harness]) -> None:
    task = make().run_one(**sh('echo $RP_RANK of $RP_RANKS'), mode=RAPTOR_WORKER, ranks=2)
    assert (task.target_state, text(task, 'task.000000.out')) == (states.DONE, '0 of 2\n'), task.exception_detail


def test_the_first_rank_tells_its_host(make: Callable[..., Harness]) -> None:
    """Nothing else knows where Flux has placed a service."""
    task = make().run_one(ranks=2, use_mpi=False)
    assert host_of(task.sandbox, task.uid) == 'localhost'


def test_a_runner_that_dies_costs_nothing(make: Callable[..., Harness], tmp_path: Path) -> None:
    harness = make()
    task = harness.task(**twice(tmp_path))

    def kill() -> None:
        process = harness.executor._runners[0]._process.process   # type: ignore[attr-defined]
        os.kill(process.pid, signal.SIGKILL)

    harness.when(lambda: said(tmp_path / 'pids'), kill)
    harness.run(task)
    assert task.target_state == states.DONE


def test_what_a_runner_has_submitted_does_not_run_twice(make: Callable[..., Harness], tmp_path: Path) -> None:
    """Jobs that wait would start although their tasks are launched again; and the instance is not to blame."""
    harness = make()
    tasks = [harness.task(f'task.{number}', **sh(f'echo >>{tmp_path}/runs.{number}; test {number} != 0 || '
                                                 f'mkdir {tmp_path}/again || exit 0; '
                                                 f'test {number} != 0 || exec sleep 1000'),
                          cores_per_rank=CORES) for number in range(5)]
    broker: list[int] = []

    def kill() -> None:
        broker.extend(harness.instances())
        process = harness.executor._runners[0]._process.process   # type: ignore[attr-defined]
        os.kill(process.pid, signal.SIGKILL)

    harness.when((tmp_path / 'again').exists, kill)
    harness.run(*tasks)
    assert [task.target_state for task in tasks] == [states.DONE] * 5, [task.exception_detail for task in tasks]
    assert [len((tmp_path / f'runs.{number}').read_text()) for number in range(5)] == [2, 1, 1, 1, 1]
    assert harness.instances() == broker


def test_a_cancelled_task_of_which_nothing_is_heard_is_not_started_again(
        make: Callable[..., Harness], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, 'CANCEL_TIMEOUT', 0.05)
    harness = make()
    task = harness.task(**sh(f'echo >>{tmp_path}/runs; exec sleep 1000'))
    runner: list[int] = []

    def cancel() -> None:
        runner.append(harness.executor._runners[0]._process.process.pid)   # type: ignore[attr-defined]
        os.kill(runner[0], signal.SIGSTOP)
        harness.executor.cancel([task.uid])

    harness.when((tmp_path / 'runs').exists, cancel)
    harness.run(task)
    assert task.target_state == states.CANCELED
    os.kill(runner[0], signal.SIGCONT)
    harness.run(harness.task('next'))   # which its runner hears of after all that was said before
    harness.stop()
    assert len((tmp_path / 'runs').read_text()) == 1


def test_a_job_that_does_not_reach_flux_is_not_refused(brokers: str) -> None:
    """Its broker has died, which the agent may not know yet."""
    environment = {**os.environ, 'PATH': FLUX_PATH, 'TMPDIR': brokers}
    started: dict[str, Any] = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
    with subprocess.Popen(['flux', 'start', 'sh', '-c', 'echo $FLUX_URI; read nothing'], env=environment,
                          **started) as broker:
        uri = broker.stdout.readline().strip()   # type: ignore[union-attr]
        with subprocess.Popen(['flux', 'python', flux_runner.__file__], env={**environment, 'FLUX_URI': uri},
                              **started) as runner:
            assert runner.stdout is not None
            assert runner.stdin is not None
            assert json.loads(runner.stdout.readline()) == {'ready': True}
            broker.kill()
            broker.wait()
            spec = jobspec(Description(), ('true',), {}, '/', ('/dev/null', '/dev/null'))
            runner.stdin.write(json.dumps({'run': 'task', 'jobspec': spec}) + '\n')
            runner.stdin.flush()
            assert 'unreachable' in json.loads(runner.stdout.readline())


@pytest.mark.skipif(bool(REAL_FLUX), reason='the real one works')
def test_no_flux(make: Callable[..., Harness], tmp_path: Path) -> None:
    harness = make(FLUX_STAND_IN_FAILS=str(tmp_path / 'never'))
    tasks = [harness.task(f'task.{number}') for number in range(2)]
    harness.run(*tasks)
    for task in tasks:
        assert task.target_state == states.FAILED
        assert 'no instance is left' in str(task.exception_detail)
        assert 'flux-broker: bootstrap failed' in str(task.exception_detail)


@pytest.mark.parametrize(('kind', 'level'), [(EnclosingFlux, 'same'), (NestedFlux, 'another')], ids=str)
def test_in_an_instance(make: Callable[..., Harness], tmp_path: Path, brokers: str,
                        kind: type[EnclosingFlux | NestedFlux], level: str) -> None:
    """The agent is in one that goes on, and has jobs of others."""
    with a_flux(brokers) as environment:
        uri = environment['FLUX_URI']
        with a_runner(environment, tmp_path / 'other') as submit:
            other_pid = tmp_path / 'other.pid'
            if kind is EnclosingFlux:   # a nested one has all cores
                submit(f'echo $$ >{other_pid}; exec sleep 1000')
                wait_for(other_pid)
            harness = make(launcher=kind(uri))
            tasks = [harness.task(f'task.{number}', **sh('echo $FLUX_URI')) for number in range(3)]
            fails = harness.task('fails', **sh('exit 3'))
            late = harness.task('late', **sh('exec sleep 1000'), timeout=0.2)
            harness.run(*tasks, fails, late)
            assert [task.target_state for task in tasks] == [states.DONE] * 3, tasks[0].exception_detail
            assert {text(task, f'{task.uid}.out').strip() == uri for task in tasks} == {level == 'same'}
            assert (fails.target_state, fails.exit_code, late.target_state) == (states.FAILED, 3, states.CANCELED)
            harness.stop()
            assert not harness.instances()
            if kind is EnclosingFlux:
                assert processes.read_process(int(other_pid.read_text())) is not None


def test_jobs_end_with_a_runner_that_is_killed(tmp_path: Path, brokers: str) -> None:
    """Also if no other runner follows, as when the agent is killed, too; those of others go on."""
    with a_flux(brokers) as environment, a_runner(environment, tmp_path / 'other') as submit:
        submit(f'echo $$ >{tmp_path}/other.pid; exec sleep 1000')
        with a_runner(environment, tmp_path / 'one') as submit_one:
            submit_one(f'echo $$ >{tmp_path}/one.pid; exec sleep 1000')
            wait_for(tmp_path / 'one.pid')
            wait_for(tmp_path / 'other.pid')
        one, other = (int((tmp_path / f'{name}.pid').read_text()) for name in ('one', 'other'))
        must_end([one])
        assert not is_gone(other)
