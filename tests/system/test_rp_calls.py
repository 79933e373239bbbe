"""`rp calls`: described calls by function, and those of an executor by worker."""

from __future__ import annotations

from pathlib import Path

from conftest import Run
from watching import as_json, rp_command

import radical.pilot as rp


def test_described_calls(run: Run) -> None:
    def square(number: int) -> int:
        if number == 3:
            raise ValueError('three is wrong')
        return number * number

    master, = run.tmgr.submit_raptors([rp.TaskDescription({'mode': rp.RAPTOR_MASTER})])
    master.submit_workers([rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': 2})])
    tasks = master.submit_tasks([
        *(rp.TaskDescription({'mode': rp.TASK_FUNCTION, 'function': rp.PythonTask(square, (number,))})
          for number in range(5)),
        rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': '1 + 1'})])
    run.tmgr.wait_tasks([task.uid for task in tasks], timeout=60)
    found = {row['function']: row for row in as_json('calls')}
    (name,) = [name for name in found if name.endswith('square')]
    row = found[name]
    assert (row['done'], row['failed'], row['running'], row['waiting'], row['worker']) == (4, 1, 0, 0, None)
    assert row['example'] == tasks[3].uid
    assert 'three is wrong' in row['reason']
    assert (found['1 + 1']['done'], found['1 + 1']['reason']) == (1, None)
    assert f'{name} ' in rp_command('calls')


def test_calls_of_an_executor(base: Path) -> None:
    with rp.Executor(cores=2) as executor:
        assert list(executor.map(abs, range(-20, 0)))[-1] == 1
        assert executor.submit(len, 5).exception() is not None
    rows = as_json('calls')
    assert {row['worker'] for row in rows} <= {'raptor.0000.0000', 'raptor.0000.0001'}
    assert sum(row['failed'] for row in rows) == 1
    assert sum(row['done'] for row in rows) >= 1   # of which a chunk counts once
    assert all(row['mean'] > 0 for row in rows)
