"""Failures of tasks as exceptions."""

from __future__ import annotations

import copy
import pickle
import signal
from concurrent.futures import CancelledError
from typing import Any

import pytest

from rp_api import states
from rp_api.errors import PilotError
from rp_api.failures.kinds import KINDS
from rp_api.failures.task_error import (
    TaskCanceledError,
    TaskError,
    TaskLostError,
    TaskMemoryError,
    TaskTimeoutError,
    task_error,
)

OUTPUTS = {'stdout': '/s/t.out', 'stderr': '/s/t.err'}


def failed(**info: Any) -> TaskError:
    error = task_error('task.000007', states.FAILED, info, OUTPUTS)
    assert error is not None
    return error


@pytest.mark.parametrize('state', [states.NEW, states.AGENT_EXECUTING, states.DONE])
def test_a_task_without_failure_has_no_error(state: str) -> None:
    assert task_error('task.000007', state, {'exit_code': 0}, OUTPUTS) is None


def test_a_record_is_taken_as_it_is() -> None:
    error = failed(exit_code=3, exception="RuntimeError('task failed')", exception_detail='exit code: 3', error={
        'kind': 'exit', 'sentence': 'exit code: 3', 'path': '/s/task.000007.err', 'lines': 'no such file'})
    assert (error.uid, error.kind, error.sentence, error.exit_code) == ('task.000007', 'exit', 'exit code: 3', 3)
    assert (error.path, error.last_lines) == ('/s/task.000007.err', 'no such file')
    assert (error.signal, error.signal_number) == (None, None)


def test_the_text_is_the_sentence_the_path_and_the_last_lines() -> None:
    error = failed(error={'kind': 'exit', 'sentence': 'exit code: 3', 'path': '/s/t.err', 'lines': 'one\ntwo'})
    assert str(error) == 'task.000007: exit code: 3\nsee /s/t.err, which ends with:\none\ntwo'
    assert str(failed(error={'kind': 'exit', 'sentence': 'bad', 'path': '/s/t.err'})) == (
        'task.000007: bad\nsee /s/t.err')
    assert str(failed(error={'kind': 'exception', 'sentence': 'bad', 'lines': 'Traceback'})) == (
        'task.000007: bad\nTraceback')
    assert repr(error) == "TaskError('task.000007', 'exit', 'exit code: 3')"


@pytest.mark.parametrize('copied', [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_survive_pickling(copied: Any) -> None:
    error = failed(exit_code=-9, error={'kind': 'memory', 'sentence': 'bad', 'signal': 9, 'path': '/p', 'lines': 'x'})
    again = copied(error)
    assert type(again) is TaskMemoryError
    assert vars(again) == vars(error)
    assert str(again) == str(error)


@pytest.mark.parametrize(('kind', 'expected'), [
    ('node', TaskLostError), ('pilot', TaskLostError), ('lost', TaskLostError), ('timeout', TaskTimeoutError),
    ('memory', TaskMemoryError), ('exit', TaskError), ('staging', TaskError)])
def test_kinds_that_are_caught_apart_have_classes(kind: str, expected: type[TaskError]) -> None:
    assert type(failed(error={'kind': kind})) is expected
    assert issubclass(expected, PilotError)


def test_a_time_limit_is_not_a_wait_that_was_too_short() -> None:
    assert not issubclass(TaskTimeoutError, TimeoutError)


def test_a_cancelled_task_is_told_from_one_that_took_too_long() -> None:
    cancelled = task_error('t', states.CANCELED, {'exit_code': -15, 'exception': 'cancelled before it was sent'}, {})
    assert isinstance(cancelled, TaskCanceledError)
    assert isinstance(cancelled, CancelledError)
    assert (cancelled.kind, cancelled.sentence, cancelled.signal) == ('canceled', 'cancelled before it was sent', None)
    late = task_error('t', states.CANCELED, {'error': {'kind': 'timeout', 'sentence': 'too long'}}, {})
    assert isinstance(late, TaskTimeoutError)
    assert not isinstance(late, CancelledError)
    lost = task_error('t', states.CANCELED, {'error': {'kind': 'pilot', 'sentence': 'its runtime is over'}}, {})
    assert isinstance(lost, TaskLostError)


@pytest.mark.parametrize(('info', 'kind', 'number', 'sentence'), [
    ({'exit_code': 1, 'exception': "RuntimeError('task failed')", 'exception_detail': 'exit code: 1'},
     'exit', None, 'exit code: 1'),
    ({'exit_code': -11, 'exception': "RuntimeError('task failed')", 'exception_detail': 'killed by signal 11\nmore'},
     'signal', 11, 'killed by signal 11'),
    ({'exception': 'it went wrong'}, 'internal', None, 'it went wrong'),
    ({}, 'internal', None, KINDS['internal']),
    ({'exit_code': 1, 'error': {'kind': 'of a later version'}}, 'exit', None, KINDS['exit']),
])
def test_without_a_record_the_kind_follows_from_the_exit_code(info: dict[str, Any], kind: str, number: int | None,
                                                              sentence: str) -> None:
    error = failed(**info)
    assert (error.kind, error.signal_number, error.sentence) == (kind, number, sentence)


def test_a_signal_has_a_name_and_a_number() -> None:
    error = failed(exit_code=139, error={'kind': 'signal', 'signal': 11})
    assert (error.exit_code, error.signal, error.signal_number) == (139, 'SIGSEGV', signal.SIGSEGV)
    assert failed(exit_code=-(signal.SIGRTMIN + 2)).signal == 'SIGRTMIN+2'


@pytest.mark.parametrize(('info', 'path', 'lines'), [
    ({'stdout': 'out\n', 'stderr': 'Traceback\nerr\n'}, '/s/t.err', 'Traceback\nerr'),
    ({'stdout': 'out\n', 'stderr': ' \n'}, '/s/t.out', 'out'),
    ({'stderr': 'err', 'error': {'kind': 'exit', 'path': '/s/t.launch.out', 'lines': 'loading'}}, '/s/t.err', 'err'),
    ({'error': {'kind': 'exit', 'path': '/s/t.launch.out', 'lines': 'loading\n'}}, '/s/t.launch.out', 'loading'),
    ({'stdout': ['of', 'ranks']}, None, ''),
    ({}, None, ''),
    ({'exception_detail': 'Traceback', 'error': {'kind': 'exception'}}, None, 'Traceback'),
])
def test_the_output_explains_the_failure(info: dict[str, Any], path: str | None, lines: str) -> None:
    error = failed(exit_code=1, **info)
    assert (error.path, error.last_lines) == (path, lines)
