"""Which failures are followed by another attempt, when, and with which description."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError
from rp_api.failures.kinds import KINDS
from rp_api.failures.retry_rules import BY_DEFAULT, LONGEST_DELAY, NEVER, RetryRules


def rules(**description: Any) -> RetryRules:
    return RetryRules({'retries': 1, **description})


def covers(kind: str, retry_on: list[Any], code: int | None = 1, number: int | None = None, stderr: str = '') -> bool:
    record = {'kind': kind, 'signal': number} if number else {'kind': kind}
    return rules(retry_on=retry_on).covers(record, code, lambda: stderr)


@pytest.mark.parametrize('kind', KINDS)
def test_kinds_that_are_retried_by_default(kind: str) -> None:
    assert covers(kind, []) == (kind in BY_DEFAULT)
    assert BY_DEFAULT | NEVER | {'launch'} == set(KINDS)
    if kind in NEVER:
        assert not covers(kind, [1, 'exit', 'signal', 'stderr:.*'])


@pytest.mark.parametrize(('kind', 'retry_on', 'code', 'number', 'stderr', 'expected'), [
    ('exit', [3], 3, None, '', True), ('exit', [3], 4, None, '', False), ('exit', ['exit'], 4, None, '', True),
    ('signal', ['SIGBUS'], -7, signal.SIGBUS, '', True), ('signal', ['SIGBUS'], 135, signal.SIGBUS, '', True),
    ('signal', ['SIGBUS'], -9, signal.SIGKILL, '', False), ('signal', [-9], -9, signal.SIGKILL, '', True),
    ('exit', ['stderr:CUDA (error|failure)'], 1, None, 'bad: CUDA failure', True),
    ('exit', ['stderr:^CUDA'], 1, None, 'bad: CUDA failure', False), ('launch', ['launch'], None, None, '', True),
    ('exit', ['stderr:^CUDA error$'], 1, None, 'trace:\nCUDA error\n', True),   # of any line, as with grep
    ('output', ['output'], 0, None, '', True)])
def test_rules(kind: str, retry_on: list[Any], code: int | None, number: int | None, stderr: str,
               expected: bool) -> None:
    assert covers(kind, retry_on, code, number, stderr) == expected


def test_standard_error_is_read_only_if_a_rule_needs_it() -> None:
    assert covers('exit', [1])
    assert not rules(retry_on=[1]).reads_stderr
    assert rules(retry_on=['stderr:x']).reads_stderr
    assert rules(retry_on=[3, 'stderr:x']).covers({'kind': 'exit'}, 3, lambda: pytest.fail('it was read'))


def test_restartable_tasks_and_retries_count_together() -> None:
    assert (RetryRules({}).most, rules(retries=5).most, RetryRules({'restartable': True}).most) == (1, 6, 1)
    assert RetryRules({'restartable': True, 'retries': 1}).most == 2
    for kind, expected in (('node', True), ('pilot', True), ('exit', False)):
        assert RetryRules({'restartable': True}).restarts(kind) == expected
        assert not RetryRules({}).restarts(kind)
    assert RetryRules({'restartable': True, 'retries': 1, 'retry_on': [3]}).covers({'kind': 'pilot'}, None, str)
    assert not rules(retry_on=[3]).covers({'kind': 'pilot'}, None, str)


def test_delays_double_up_to_a_limit() -> None:
    assert [rules(retry_delay=0.5).delay(number) for number in (1, 2, 3)] == [0.5, 1, 2]
    assert rules(retry_delay=0.5).delay(1000) == LONGEST_DELAY
    assert rules(retry_delay=2 * LONGEST_DELAY).delay(3) == 2 * LONGEST_DELAY
    assert rules(retry_delay=0.0).delay(5) == 0


@pytest.mark.parametrize(('change', 'old', 'limits', 'expected'), [
    ({'mem_per_rank': '*2'}, {'mem_per_rank': 300}, {}, {'mem_per_rank': 600}),
    ({'mem_per_rank': '*1.5'}, {'mem_per_rank': 333}, {'mem_per_rank': 4096}, {'mem_per_rank': 499}),
    ({'mem_per_rank': '*2'}, {'mem_per_rank': 300}, {'mem_per_rank': 500}, {'mem_per_rank': 500}),
    ({'mem_per_rank': '*2'}, {'mem_per_rank': 600}, {'mem_per_rank': 500}, {'mem_per_rank': 600}),
    ({'cores_per_rank': '+1', 'timeout': '*2'}, {'cores_per_rank': 1, 'timeout': 1.5}, {'cores_per_rank': 8},
     {'cores_per_rank': 2, 'timeout': 3.0}),
    ({'arguments': ['*2'], 'timeout': 5.0}, {'arguments': ['a'], 'timeout': 1.0}, {},
     {'arguments': ['*2'], 'timeout': 5.0})])
def test_changes(change: dict[str, Any], old: dict[str, Any], limits: dict[str, float], expected: dict[str, Any],
                 ) -> None:
    found = rules(retry_with=change).changes(old, limits)
    assert found == expected
    assert [type(value) for value in found.values()] == [type(value) for value in expected.values()]


@pytest.mark.parametrize(('values', 'complaint'), [
    ({'retries': 1001}, 'a number from 0 to 1000'), ({'retries': -1}, 'a number from 0 to 1000'),
    ({'retry_on': [3]}, 'retries is 0: set retries'), ({'retries': 1, 'retry_on': ['SIGFOO']}, 'name of a signal'),
    ({'retries': 1, 'retry_on': ['canceled']}, 'exit code other than 0'), ({'retries': 1, 'retry_on': [0]}, 'than 0'),
    ({'retries': 1, 'retry_on': ['stderr:(']}, 'valid regular expression'), ({'retry_delay': -1}, '0 or more'),
    ({'retries': 1, 'retry_with': {'sandbox': 'x'}}, 'new values of some of'),
    ({'retries': 1, 'retry_with': {'timeout': '2x'}}, r'such as "\*2"'),
    ({'retries': 1, 'retry_with': {'cores_per_rank': 0}}, 'retry_with is .*cores_per_rank'),
    ({'expect': ['command: ']}, '"command:" with a command'), ({'expect': ['x'], 'mode': 'task.service'}, 'unset')])
def test_values_that_are_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DescriptionError, match=complaint):
        TaskDescription({'executable': 'x', **values}).verify()


def test_signals_and_new_values_are_cast() -> None:
    description = TaskDescription({'executable': 'x', 'retries': 1, 'retry_on': signal.SIGBUS,
                                   'retry_with': {'arguments': [1], 'timeout': 3}})
    description.verify()
    assert (description.retry_on, description.retry_with) == (['SIGBUS'], {'arguments': ['1'], 'timeout': 3.0})
