"""Errors of tasks on a real pilot: their kinds, and the files that explain them."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, processes_with

import radical.pilot as rp

# the three ways in which a task is started: as it is, by a shell, and by a shell that starts shells
WAYS = {'direct': {}, 'exec': {'pre_exec': ['true']}, 'launch': {'pre_launch': ['true']}}
WAY = pytest.mark.parametrize('way', WAYS.values(), ids=WAYS)


def sh(command: str, **values: Any) -> dict[str, Any]:
    """The description of a task that runs a shell command."""
    return {'executable': '/bin/sh', 'arguments': ['-c', command.replace('$', '\\$')], **values}


def error_of(task: rp.Task) -> rp.TaskError:
    error = task.error
    assert error is not None, task
    return error


@WAY
def test_failed_program(run: Run, way: dict[str, Any]) -> None:
    task = run.one(**sh('echo begin; echo one >&2; echo two >&2; exit 3', **way))
    error = error_of(task)
    assert task.state == rp.FAILED
    assert (error.kind, error.exit_code, error.signal) == ('exit', 3, None)
    assert (error.path, error.last_lines) == (f'{task.sandbox}/{task.uid}.err', 'one\ntwo')
    assert str(error) == f'{task.uid}: exit code: 3\nsee {error.path}, which ends with:\none\ntwo'
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert task.exception == "RuntimeError('task failed')"
    assert str(task.exception_detail).startswith('exit code: 3')
    with pytest.raises(rp.TaskError, match='exit code: 3'):
        raise error


@WAY
def test_program_that_is_killed(run: Run, way: dict[str, Any]) -> None:
    error = error_of(run.one(**sh('kill -SEGV $$', **way)))
    assert (error.kind, error.signal, error.signal_number) == ('signal', 'SIGSEGV', 11)
    assert 'SIGSEGV' in str(error)


@WAY
def test_program_that_writes_only_to_its_standard_output(run: Run, way: dict[str, Any]) -> None:
    task = run.one(**sh('echo it went wrong; exit 1', stdout='log.txt', **way))
    error = error_of(task)
    assert (error.path, error.last_lines) == (f'{task.sandbox}/log.txt', 'it went wrong')


def test_launch_script_that_fails(run: Run) -> None:
    task = run.one(executable='/bin/true', pre_launch=['echo no such module', 'false'])
    error = error_of(task)
    assert error.kind == 'exit'
    assert error.path == f'{task.sandbox}/{task.uid}.launch.out'
    assert error.last_lines == 'no such module\npre_launch failed with exit code 1: false'


@WAY
def test_relative_program_that_is_missing(run: Run, way: dict[str, Any]) -> None:
    task = run.one(executable='./sim.sh', **way)
    error = error_of(task)
    assert error.kind == 'launch'
    assert f'./sim.sh was looked for in the sandbox of the task, {task.sandbox}' in error.sentence
    assert 'absolute path, or copy it into the sandbox with input_staging' in error.sentence


def test_unknown_program(run: Run) -> None:
    error = error_of(run.one(executable='not-there'))
    assert (error.kind, error.exit_code, error.path) == ('launch', None, None)
    assert 'executable not found: not-there' in str(error)


def test_timeout_and_cancellation_are_told_apart(run: Run) -> None:
    late = run.one(**sh('echo waiting; sleep 60', timeout=0.5))
    assert late.state == rp.CANCELED
    assert isinstance(late.error, rp.TaskTimeoutError)
    assert (late.error.kind, late.error.last_lines) == ('timeout', 'waiting')
    assert 'longer than 0.5 s' in late.error.sentence

    stopped = run.tmgr.submit_tasks(rp.TaskDescription(sh('sleep 60')))
    stopped.wait(rp.AGENT_EXECUTING, timeout=30)
    stopped.cancel()
    stopped.wait(timeout=30)
    assert isinstance(stopped.error, rp.TaskCanceledError)
    assert stopped.error.kind == 'canceled'


def test_end_of_the_pilot(run: Run) -> None:
    task = run.tmgr.submit_tasks(rp.TaskDescription(sh('sleep 60')))
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    run.pilot.cancel()
    task.wait(timeout=30)
    assert isinstance(task.error, rp.TaskCanceledError)   # the user has ended it with its pilot


def test_description_that_can_never_run(run: Run) -> None:
    error = error_of(run.one(executable='/bin/true', cores_per_rank=1000))
    assert error.kind == 'description'
    assert 'can never run' in str(error)


def test_input_that_is_missing(run: Run, base: Path) -> None:
    for action in (rp.TRANSFER, rp.COPY):
        error = error_of(run.one(executable='/bin/true', input_staging=[
            {'source': f'{base}/missing.dat', 'target': 'in.dat', 'action': action}]))
        assert error.kind == 'staging'
        assert 'missing.dat' in str(error)


def test_dependency_that_failed(run: Run) -> None:
    service = run.tmgr.submit_tasks(rp.TaskDescription(
        sh('echo no port >&2; exit 2', uid='db', mode=rp.TASK_SERVICE)))
    user = run.one(executable='/bin/true', services=['db'])
    service.wait(timeout=30)
    assert error_of(user).kind == 'dependency'
    assert (error_of(service).kind, error_of(service).exit_code) == ('exit', 2)


def test_tasks_without_failure_have_no_error(run: Run) -> None:
    task = run.tmgr.submit_tasks(rp.TaskDescription(sh('sleep 0.5')))
    assert task.error is None
    task.wait(timeout=30)
    assert (task.state, task.error) == (rp.DONE, None)


def test_mpi_program_and_serial_program_say_the_same(run: Run) -> None:
    command = 'echo from rank $RP_RANK >&2; exit 4'
    serial, ranks = run.one(**sh(command)), run.one(**sh(command, ranks=2, use_mpi=False))
    for task in (serial, ranks):
        error = error_of(task)
        assert (error.kind, error.exit_code, error.path) == ('exit', 4, f'{task.sandbox}/{task.uid}.err')
        assert 'from rank 0' in error.last_lines


def test_lost_pilot(run: Run) -> None:
    task = run.tmgr.submit_tasks(rp.TaskDescription(sh('sleep 60')))
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    (agent,) = [pid for pid, command in processes_with(run.pilot.pilot_sandbox).items() if 'rp_agent.cli' in command]
    os.kill(agent, signal.SIGKILL)
    assert task.wait(timeout=30) == rp.FAILED
    assert isinstance(task.error, rp.TaskLostError)
    assert task.error.kind == 'pilot'
