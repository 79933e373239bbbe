"""Objects of applications and masters on a real pilot: put once, used by calls and tasks, gone at the end."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from conftest import Run, wait_until

import radical.pilot as rp

LONG = 40.0
COUNT = 6_000_000   # elements of 8 bytes

MASTER = """
import numpy
import radical.pilot as rp

class Summing(rp.raptor.Master):
    def __init__(self, cfg=None):
        super().__init__(cfg)
        self.register_rpc_cb('total', self.total)

    def total(self, size):
        with self.put_object([numpy.arange(size)]) as ref:
            one = self.submit(lambda found: int(found[0].sum()), ref).result()
            many = list(self.map(lambda found, n: int(found[0][n]), [ref] * 10, range(10)))
        return [one, sum(many), ref.released]
"""

cloudpickle.register_pickle_by_value(sys.modules[__name__])   # workers cannot import this module


def row(table: Any, number: int = 3) -> list[Any]:
    return [float(table[number]), table.flags.writeable, os.getpid()]


def total(table: Any) -> float:
    return float(table.sum())


def maps(pid: int) -> set[str]:
    """The files of objects that a process maps."""
    lines = Path(f'/proc/{pid}/maps').read_text().splitlines()
    return {line.split()[-1] for line in lines if '/radical.pilot.' in line}


@pytest.fixture(scope='module')
def master(shared: Run) -> Any:
    """A master with a worker of two ranks."""
    made = shared.pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))[0]
    made.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': 2}))
    with rp.raptor.Executor(made) as executor:
        assert executor.submit(abs, -1).result(LONG) == 1
    return made


def pss(pid: int, path: str) -> int:
    """The bytes of a file in the memory of a process, shared pages divided among the processes."""
    total, counts = 0, False
    for line in Path(f'/proc/{pid}/smaps').read_text().splitlines():
        if '-' in line.split(' ')[0]:
            counts = line.endswith(path)
        elif counts and line.startswith('Pss:'):
            total += int(line.split()[1]) << 10
    return total


def test_ten_thousand_calls_with_one_array(master: Any) -> None:
    """It is in one file, and once in the memory of all ranks together."""
    with master.put_object(np.arange(COUNT, dtype='f8')) as ref:
        calls = list(rp.raptor.stream(master, row, (ref for _ in range(10_000))))
        assert {tuple(call.result()[:2]) for call in calls} == {(3.0, False)}
        pids = {call.result()[2] for call in calls}
        path, = {path for pid in pids for path in maps(pid)}
        for call in rp.raptor.stream(master, total, [ref] * 40):
            assert call.result() == COUNT * (COUNT - 1) / 2
        assert len(pids) == 2
        assert 0.9 * 8 * COUNT < sum(pss(pid, path) for pid in pids) < 1.1 * 8 * COUNT
        assert os.path.exists(path)
    assert not os.path.exists(path)


def test_tasks_with_a_reference(shared: Run, master: Any) -> None:
    """A described task gets the object while the application keeps the reference, and an error some time afterwards."""
    ref = master.put_object(np.arange(100.))
    functions = [rp.PythonTask(row, (ref,), {'number': number}) for number in range(100)]

    def ended() -> Any:
        task, = master.submit_tasks([rp.TaskDescription({'mode': rp.TASK_FUNCTION, 'function': functions.pop()})])
        shared.tmgr.wait_tasks(task.uid, timeout=LONG)
        return task

    task = ended()
    assert task.return_value[:2] == [99.0, False], task.exception_detail
    assert ref.get()[5] == 5
    ref.release()

    def failed() -> Any:
        return late if (late := ended()).state == rp.FAILED else None

    failed_task = wait_until(failed, LONG)
    assert f'{master.uid} has no such object' in failed_task.exception


def test_objects_of_a_master(run: Run, tmp_path: Path) -> None:
    """For the calls that it makes itself."""
    (tmp_path / 'masters.py').write_text(MASTER)
    made = run.pilot.submit_raptors(rp.TaskDescription({
        'mode': rp.RAPTOR_MASTER, 'raptor_file': str(tmp_path / 'masters.py'), 'raptor_class': 'Summing'}))[0]
    made.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': 1}))
    made.wait(rp.AGENT_EXECUTING, timeout=LONG)
    assert made.rpc('total', 1000, rpc_timeout=LONG) == [499500, 45, True]
    run.tmgr.cancel_tasks(made.uid)
    made.wait(timeout=LONG)


def test_a_master_that_has_ended(shared: Run) -> None:
    """`put_object` says so instead of waiting."""
    made = shared.pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))[0]
    shared.tmgr.cancel_tasks(made.uid)
    wait_until(lambda: made.state in rp.FINAL, LONG)
    with pytest.raises(RuntimeError, match=f'{made.uid} cannot be reached any more: it is CANCELED'):
        made.put_object(1)
