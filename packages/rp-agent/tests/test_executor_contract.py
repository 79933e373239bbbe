"""What all executors keep to, whatever starts their tasks: this host's processes, jobs of instances, or nothing."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from backend_support import BackendHarness, DragonHarness, FluxHarness, backends, twice
from executor_support import SHELLS, Harness, Make, harnesses, said, sh, text, use_as_sh
from launch_support import is_gone

from rp_agent.executor.launching.outcome import code_of
from rp_agent.executor.popen.component import STARTS_PER_TURN, Executor
from rp_agent.executor.shell import ShellExecutor
from rp_agent.executor.simulated import SimulatedExecutor, launch_model
from rp_api import states

WITH_INSTANCES = ['FLUX', 'DRAGON']
WITH_PROGRAMS = ['POPEN', *SHELLS, *WITH_INSTANCES]
"""Executors that run programs, that with a shell with each that may be it."""
ALL = [*WITH_PROGRAMS, 'SIMULATED']

ENDS = {'exit 0': 0, 'exit 3': 3, 'exit 127': 127, 'exit 255': 255, 'kill -SEGV $$': -signal.SIGSEGV,
        'kill -TERM $$': -signal.SIGTERM, 'kill -KILL $$': -signal.SIGKILL, 'kill -ABRT $$': -signal.SIGABRT}


def simulated(uid: str, tracer: Any, loop: Any, context: Any) -> SimulatedExecutor:
    return SimulatedExecutor(uid, tracer, loop, launch_model({'seconds': 0.0, 'rate': 1.0}))


OTHERS: dict[str, Make] = {'POPEN': Executor, 'SIMULATED': simulated}


@pytest.fixture
def harness(request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory,
            monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    """The executor of that name, or the one with a shell, which is that program."""
    with ExitStack() as stack:
        if request.param == 'FLUX':   # the name of the directory is short enough for sockets
            brokers = stack.enter_context(tempfile.TemporaryDirectory())
            yield stack.enter_context(backends(FluxHarness, tmp_path, brokers))()
        elif request.param == 'DRAGON':
            yield stack.enter_context(backends(DragonHarness, tmp_path))()
        else:
            if request.param in SHELLS:
                use_as_sh(request.param, tmp_path_factory.mktemp('bin'), monkeypatch)
            yield stack.enter_context(harnesses(tmp_path, OTHERS.get(request.param, ShellExecutor)))()


@pytest.mark.parametrize('harness', ALL, indirect=True)
def test_a_task_is_done(harness: Harness) -> None:
    task = harness.task()
    slots = task.slots
    harness.run(task)
    assert (task.target_state, task.exit_code, task.exception, task.exception_detail) == (states.DONE, 0, None, None)
    assert harness.states == [('AGENT_EXECUTING', ['task.000000']), ('AGENT_STAGING_OUTPUT_PENDING', ['task.000000'])]
    assert task.slots == slots, 'the slots are its own until it is out'


@pytest.mark.parametrize('harness', WITH_PROGRAMS, indirect=True)
@pytest.mark.parametrize('more', [{}, {'pre_exec': ['true']}])
def test_literal_arguments(harness: Harness, more: dict[str, Any]) -> None:
    task = harness.run_one(executable='echo', arguments=['$PWD', '`pwd`', r'\$'], literal_arguments=True, **more)
    assert text(task, 'task.000000.out') == '$PWD `pwd` \\$\n'


@pytest.mark.parametrize('harness', WITH_PROGRAMS, indirect=True)
@pytest.mark.parametrize('description', [{}, {'pre_exec': ['true']}], ids=['plain', 'script'])
def test_exit_codes(harness: Harness, description: dict[str, Any]) -> None:
    """They depend neither on the executor nor on commands before the task."""
    tasks = {command: harness.task(f'task.{number}', **sh('ulimit -c 0; ' + command.replace('$', r'\$')), **description)
             for number, command in enumerate(ENDS)}
    harness.run(*tasks.values())
    assert {command: task.exit_code for command, task in tasks.items()} == ENDS
    for command, task in tasks.items():
        code = ENDS[command]
        assert task.target_state == (states.FAILED if code else states.DONE)
        assert (task.error or {}).get('signal') == (-code if code < 0 else None), command


@pytest.mark.parametrize(('code', 'shell', 'told'), [
    (0, True, 0), (3, True, 3), (128, True, 128), (129, True, -1), (139, True, -11), (143, True, -15), (255, True, 255),
    (139, False, 139), (-11, False, -11), (-11, True, -11)])
def test_codes_of_shells(code: int, shell: bool, told: int) -> None:
    assert code_of(code, shell=shell) == told


@pytest.mark.parametrize('harness', WITH_INSTANCES, indirect=True)
def test_a_program_that_does_not_exist(harness: Harness) -> None:
    """The other executors look for it before they start anything."""
    task = harness.run_one(executable='/no/such/program')
    assert (task.target_state, task.exit_code) == (states.FAILED, 127)


@pytest.mark.parametrize('harness', WITH_PROGRAMS, indirect=True)
def test_ranks_are_plain_processes(harness: Harness) -> None:
    task = harness.run_one(**sh(r'echo \$RP_RANK/\$RP_RANKS; exit \$RP_RANK'), ranks=3, use_mpi=False)
    assert sorted(text(task, 'task.000000.out').split()) == ['0/3', '1/3', '2/3']
    assert (task.target_state, task.exit_code) == (states.FAILED, 1)
    assert task.exception_detail == 'exit code: 1 of rank 1 (so did 1 more of 3 ranks)'


@pytest.mark.parametrize('harness', WITH_INSTANCES, indirect=True)
def test_ranks_wait_for_each_other(harness: Harness) -> None:
    task = harness.run_one(**sh('echo $RP_RANK/$RP_RANKS'), ranks=3, use_mpi=False, pre_exec_sync=True)
    assert task.target_state == states.DONE
    assert sorted(text(task, 'task.000000.out').split()) == ['0/3', '1/3', '2/3']


@pytest.mark.parametrize('harness', ALL, indirect=True)
def test_timeout(harness: Harness) -> None:
    task = harness.run_one(executable='sleep', arguments=['1000'], timeout=0.02)
    assert task.target_state == states.CANCELED
    assert task.exception == "TimeoutError('timeout: the task ran longer than 0.02 s')"
    assert task.exception_detail == 'timeout: the task ran longer than 0.02 s'


@pytest.mark.parametrize('harness', WITH_PROGRAMS, indirect=True)
def test_cancel_of_a_task_that_runs(harness: Harness, tmp_path: Path) -> None:
    task = harness.task('cancelled', **sh(f'touch {tmp_path}/runs; exec sleep 1000'))
    harness.when((tmp_path / 'runs').exists, lambda: harness.executor.cancel(['cancelled', 'unknown']))
    harness.run(task)
    assert (task.target_state, task.exception) == (states.CANCELED, None)
    harness.stop()


@pytest.mark.parametrize('harness', ALL, indirect=True)
def test_cancelled_before_it_came(harness: Harness) -> None:
    task = harness.task()
    task.cancelled = True
    harness.run(task)
    assert (task.target_state, task.exit_code) == (states.CANCELED, None)
    assert not Path(task.sandbox).exists()


@pytest.mark.parametrize('harness', [name for name in ALL if name != 'DRAGON'], indirect=True)
def test_stop_ends_all(harness: Harness) -> None:
    """Not with DRAGON: an instance of it that starts takes all of SECONDS_TO_STOP to end."""
    tasks = [harness.task(f'task.{index:02d}', executable='sleep', arguments=['1000'])
             for index in range(STARTS_PER_TURN + 2)]
    late = harness.task('late')
    ended: list[int] = []

    def empty() -> None:
        ended.append(len(harness.out))
        harness.loop.stop()

    def stop() -> None:
        harness.executor.stop(empty, 'the pilot was cancelled')
        harness.executor.put([late])

    harness.wanted = 1000
    harness.executor.put(tasks)
    harness.loop.call_soon(stop)
    harness.wait()
    assert ended == [len(tasks) + 1]
    assert {task.target_state for task in harness.out} == {states.CANCELED}
    assert {task.exception_detail for task in harness.out} == {'the pilot was cancelled'}


@pytest.mark.parametrize('harness', WITH_PROGRAMS, indirect=True)
def test_stop_ends_a_task_that_runs_and_instances(harness: Harness, tmp_path: Path) -> None:
    task = harness.task(**sh(f'echo $$ >{tmp_path}/pid; exec sleep 1000'), literal_arguments=True)
    harness.wanted = 2
    harness.executor.put([task])
    harness.when(lambda: said(tmp_path / 'pid'), harness.loop.stop)
    harness.wait()
    harness.stop()
    assert task.target_state == states.CANCELED
    assert 'the end' in str(task.exception)
    assert is_gone(int((tmp_path / 'pid').read_text()))
    assert not isinstance(harness, BackendHarness) or not harness.instances()


@pytest.mark.parametrize('harness', ALL, indirect=True)
def test_stop_with_nothing_to_do(harness: Harness) -> None:
    harness.executor.stop(harness.loop.stop, 'the pilot was cancelled')
    harness.wait()
    assert harness.out == []


@pytest.mark.parametrize('harness', WITH_INSTANCES, indirect=True)
def test_tasks_of_an_instance_that_dies_run_again(harness: BackendHarness, tmp_path: Path) -> None:
    """And nothing stays of it."""
    task = harness.task(**twice(tmp_path))
    harness.when(lambda: said(tmp_path / 'pids'), lambda: os.kill(harness.instances()[0], signal.SIGKILL))
    harness.run(task)
    assert task.target_state == states.DONE, task.exception_detail
    first, second = map(int, (tmp_path / 'pids').read_text().split())
    assert first != second
    assert is_gone(first)
    harness.stop()
    assert not harness.instances()
    assert not harness.files(), 'files are left'
