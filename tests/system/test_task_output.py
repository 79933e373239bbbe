"""The whole output of tasks, as `read_stdout` and `open_stdout` return it."""

from __future__ import annotations

import pytest
from conftest import Run, wait_until

import radical.pilot as rp

LONG = 'i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo line $i; done'
LINES = ''.join(f'line {number}\n' for number in range(1, 2001))


def sh(command: str) -> dict[str, object]:
    return {'executable': '/bin/sh', 'arguments': ['-c', command.replace('$', '\\$')]}


def test_all_of_an_output_is_read(run: Run) -> None:
    task = run.one(**sh(f'{LONG}; ({LONG}) >&2'), stderr='err.txt')
    assert task.read_stdout() == task.read_stderr() == LINES
    assert len(task.stdout) < 1100
    with task.open_stdout() as file:
        assert (file.readline(), file.seek(-5, 2), file.read()) == (b'line 1\n', len(LINES) - 5, LINES[-5:].encode())
    with task.open_stderr() as file:
        assert file.read().decode() == LINES


def test_bytes_that_are_no_text(run: Run) -> None:
    task = run.one(**sh(r"printf 'a\377b'"))
    assert task.read_stdout() == 'a�b'
    with task.open_stdout() as file:
        assert file.read() == b'a\xffb'


def test_output_of_a_failed_task_and_of_one_that_runs(run: Run) -> None:
    failed = run.one(**sh('echo no; exit 1'))
    assert (failed.state, failed.read_stdout(), failed.read_stderr()) == (rp.FAILED, 'no\n', '')
    task = run.tmgr.submit_tasks(rp.TaskDescription(sh('echo so far; exec sleep 60')))
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    wait_until(lambda: task.read_stdout() == 'so far\n')
    task.cancel()
    task.wait(timeout=30)


def test_output_that_is_not_there(run: Run) -> None:
    full = [run.tmgr.submit_tasks(rp.TaskDescription(sh('exec sleep 60'))) for _ in range(4)]
    waits = run.tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true'}))
    with pytest.raises(RuntimeError, match=f'{waits.uid} has no stdout yet: it has not started, its state is'):
        waits.read_stdout()
    for task in full:
        task.cancel()
    assert waits.wait(timeout=30) == rp.DONE
    removed = run.one(executable='/bin/true', cleanup=True)
    with pytest.raises(FileNotFoundError, match=rf'sandbox of {removed.uid} was removed.*cleanup.*{removed.uid}\.out'):
        removed.read_stdout()
    refused = run.one(executable='/bin/true', cores_per_rank=1000)
    with pytest.raises(FileNotFoundError, match='is FAILED and has not written this file'):
        refused.open_stderr()
