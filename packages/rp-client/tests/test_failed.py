"""What the end of a session says about failures: counts by cause, and an example of each."""

from __future__ import annotations

from typing import Any

import pytest
from client_support import a_task

from rp_api import states
from rp_client.core.task import TaskRecord
from rp_client.failed import MAX_CAUSES, FailureCounts


def failed(uid: str, **info: Any) -> TaskRecord:
    record: TaskRecord = a_task(uid)
    record.state = states.FAILED
    record.learn(info)
    return record


def add(counts: FailureCounts, *records: TaskRecord) -> None:
    for record in records:
        counts.add_task(record, record.uid)


def lines(counts: FailureCounts) -> list[str]:
    return counts.text('session').splitlines()


def exits(uid: str, code: int) -> TaskRecord:
    return failed(uid, exit_code=code, exception=f'exit code: {code}', stderr='first\nlast words\n',
                  error={'kind': 'exit'})


def test_nothing() -> None:
    assert FailureCounts().text('session') == ''


def test_tasks_by_cause() -> None:
    counts = FailureCounts()
    add(counts, exits('task.0', 1), exits('task.1', 2))
    add(counts, exits('task.2', 2))
    assert lines(counts) == [
        'session: 3 failed', '  2 tasks, such as task.1: exit code: 2: last words',
        '  1 task, such as task.0: exit code: 1: last words',
        'see: rp task list --failed --session session; rp why task.1']


def test_causes_that_differ_in_words_only() -> None:
    counts = FailureCounts()
    add(counts, *(failed(f'task.{number}', exception=f'task.{number} can never run: no room',
                         error={'kind': 'description'}) for number in range(20)))
    assert lines(counts)[:2] == ['session: 20 failed', '  20 tasks, such as task.0: task.0 can never run: no room']


def test_functions_by_exception() -> None:
    counts = FailureCounts()
    add(counts, *(failed(f'task.{number}', exit_code=1, exception=f'{kind}({number})', error={'kind': 'exception'})
                  for number, kind in enumerate(['KeyError', 'ValueError', 'KeyError'])))
    assert lines(counts)[1:3] == [
        '  2 tasks, such as task.0: KeyError(0)', '  1 task, such as task.1: ValueError(1)']


def test_a_record_of_many_tasks() -> None:
    counts = FailureCounts()
    counts.add_task(exits('chunk', 1), 'task.0', 100)
    counts.add_task(exits('task.1', 1), 'task.1', 0)
    assert lines(counts)[:2] == ['session: 100 failed', '  100 tasks, such as task.0: exit code: 1: last words']


def test_calls_by_function_and_exception() -> None:
    counts = FailureCounts()
    for number in range(3):
        counts.add_call('work', ValueError(f'bad {number}\nvalue'))
    counts.add_call('work', KeyError())
    assert lines(counts) == [
        'session: 4 failed', '  3 calls of work: ValueError: bad 0 value', '  1 call of work: KeyError']


def test_what_does_not_count_any_more() -> None:
    counts = FailureCounts()
    counts.add_call('work', ValueError('bad'))
    add(counts, exits('task.0', 1))
    counts.drop_call('work', ValueError('bad'))
    counts.drop_task(exits('task.0', 1))
    counts.drop_task(exits('task.1', 2))   # its future was done before
    add(counts, exits('task.1', 2))
    assert lines(counts) == []


def test_many_causes() -> None:
    counts = FailureCounts()
    add(counts, *(exits(f'task.{code}', code) for code in range(1, 100)))
    found = lines(counts)
    assert found[0] == 'session: 99 failed'
    assert len(found) <= MAX_CAUSES + 4
    assert 'other causes' in found[1]


def test_long_sentences_are_cut() -> None:
    counts = FailureCounts()
    counts.add_call('work', ValueError('x' * 10_000))
    assert len(lines(counts)[1]) < 250


@pytest.mark.parametrize('info', [{}, {'exception': 'odd'}, {'error': {'kind': 'unknown'}}])
def test_records_of_earlier_agents(info: dict[str, Any]) -> None:
    counts = FailureCounts()
    add(counts, failed('task.0', **info))
    assert lines(counts)[1].startswith('  1 task, such as task.0: ')
