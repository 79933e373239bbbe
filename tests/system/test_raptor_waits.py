"""Waits for RAPTOR masters, workers and resources that may never come are reported; what can never work fails."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, wait_until

import radical.pilot as rp
from rp_raptor.errors import CallLost

LONG = 40.0
EVAL = {'mode': rp.TASK_EVAL, 'code': '6 * 7'}
WORKER = {'mode': rp.RAPTOR_WORKER}

MASTER = """
import radical.pilot as rp

class Greedy(rp.raptor.Master):
    def start(self):
        super().start()
        self.submit_workers([rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': 2}) for _ in range(2)])
"""


def _described(*values: dict[str, Any], **more: Any) -> rp.TaskDescription:
    return rp.TaskDescription({name: value for each in (*values, more) for name, value in each.items()})


def _master(run: Run, **values: Any) -> Any:
    master, = run.pilot.submit_raptors(_described(mode=rp.RAPTOR_MASTER, **values))
    master.wait(rp.AGENT_EXECUTING, timeout=LONG)
    return master


NO_WORKERS = 'workers (there is none, and none is expected)'


def _logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Wait until that was logged once."""
    wait_until(lambda: text in caplog.messages)
    assert caplog.messages.count(text) == 1


def test_a_master_that_was_not_submitted(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    tasks = [run.tmgr.submit_tasks(_described(EVAL, raptor_id='late')) for _ in range(3)]
    worker, = run.tmgr.submit_workers(_described(WORKER, raptor_id='late'))
    any_one = run.tmgr.submit_tasks(_described(EVAL, raptor_id='*'))
    assert str(tasks[0].reason) == str(worker.reason) == 'waits for RAPTOR master late (was not submitted)'
    assert str(any_one.reason) == 'waits for a RAPTOR master (none was submitted)'
    _logged(caplog, f'{tasks[0].uid} waits for RAPTOR master late (was not submitted)')
    _logged(caplog, f'{any_one.uid} waits for a RAPTOR master (none was submitted)')
    run.tmgr.submit_raptors(_described(mode=rp.RAPTOR_MASTER, uid='late'))
    run.tmgr.wait_tasks([task.uid for task in (*tasks, any_one)], timeout=LONG)
    assert [task.return_value for task in (*tasks, any_one)] == [42] * 4
    assert tasks[0].reason is None
    assert worker.reason is None


def test_a_task_that_is_not_a_master(run: Run) -> None:
    plain = run.tmgr.submit_tasks(_described(executable='/bin/true'))
    task = run.tmgr.submit_tasks(_described(EVAL, raptor_id=plain.uid))
    worker, = run.tmgr.submit_workers(_described(WORKER, raptor_id=plain.uid))
    assert [each.wait(timeout=LONG) for each in (task, worker)] == [rp.FAILED] * 2
    assert f'{plain.uid}, which is not a RAPTOR master' in str(task.exception)


def test_a_master_that_has_ended(run: Run) -> None:
    master = _master(run)
    master.rpc('stop')
    assert master.wait(timeout=LONG) == rp.DONE
    task, worker = master.submit_tasks(_described(EVAL))[0], master.submit_workers(_described(WORKER))[0]
    assert [each.wait(timeout=LONG) for each in (task, worker)] == [rp.FAILED] * 2
    assert str(task.exception) == f'{master.uid} has ended before it ran the task: it was done (exit code 0)'
    with rp.raptor.Executor(master) as executor, pytest.raises(CallLost, match='it is DONE'):
        executor.submit(abs, -1).result(LONG)


def test_calls_at_a_master_without_workers(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    master = _master(run)
    with rp.raptor.Executor(master) as executor:
        future = executor.submit(abs, -1)
        task, = master.submit_tasks(_described(EVAL))
        wait_until(lambda: master.reason)
        assert str(master.reason) == f'waits for {NO_WORKERS}'
        assert str(task.reason) == f'waits for RAPTOR master {master.uid} ({NO_WORKERS})'
        _logged(caplog, f'{master.uid} {master.reason}')
        master.submit_workers(_described(WORKER))
        assert (future.result(LONG), task.wait(timeout=LONG)) == (1, rp.DONE)
        wait_until(lambda: not master.reason)


@pytest.mark.parametrize(('wants', 'words'), [
    ({'cores_per_rank': 100}, 'none of the 1 node(s) of the pilot has 100 cores for a rank'),
    ({'gpus_per_rank': 1}, 'has 1 GPUs for a rank'),
    ({'ranks': 100}, '100 ranks of 1 cores are requested, the 1 node(s) of the pilot hold 4'),
    ({'ranks': 4}, 'hold 3 beside its master')])
def test_a_worker_that_can_never_be_placed(run: Run, wants: dict[str, int], words: str) -> None:
    master = _master(run)
    worker, = master.submit_workers(_described(WORKER, wants))
    assert worker.wait(timeout=LONG) == rp.FAILED
    assert words in str(worker.exception)
    with rp.raptor.Executor(master) as executor:
        error = executor.submit(abs, -1).exception(LONG)
        assert isinstance(error, rp.raptor.CallLost)
        assert f'no worker is left: worker {worker.uid} is FAILED: {worker.uid} can never run' in str(error)


def test_workers_that_wait_for_resources_of_others(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Each fits beside its own master, but not beside both."""
    first, second = _master(run), _master(run)
    worker, = first.submit_workers(_described(WORKER, ranks=3))
    wait_until(lambda: 'until they end' in str(worker.reason))
    reason = worker.reason
    assert reason is not None
    assert (reason.kind, reason.sentence) == (
        'waiting.place', 'needs 3 ranks with 1 core each, there is room for 2; RAPTOR masters and workers hold the '
        'other 2 cores until they end')
    assert reason.evidence['holders'] == [first.uid, second.uid]
    _logged(caplog, f'{worker.uid} waits for resources for 3 ranks with 1 cores and 0 GPUs each')
    second.cancel()
    worker.wait(rp.AGENT_EXECUTING, timeout=LONG)
    assert worker.reason is None


def test_a_worker_of_a_master_of_ones_own_that_waits(run: Run, tmp_path: Path) -> None:
    (tmp_path / 'masters.py').write_text(MASTER)
    master = _master(run, raptor_file=str(tmp_path / 'masters.py'), raptor_class='Greedy')
    wait_until(lambda: master.reason)
    assert 'waits for resources for 2 ranks with 1 cores' in str(master.reason)


def test_calls_that_no_worker_can_run(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    master = _master(run)
    master.submit_workers(_described(WORKER, ranks=2))
    for needs, words in (({'gpus': 1}, 'needs 1 GPUs, and this worker has 0'),
                         ({'cores': 9}, 'needs 9 ranks with 1 cores each, and this worker has 2')):
        with rp.raptor.Executor(master, **needs) as executor, pytest.raises(ValueError, match=words):
            executor.submit(os.getpid).result(LONG)
    with rp.raptor.Executor(master, ranks=3) as executor:
        future = executor.submit(os.getpid)
        wait_until(lambda: master.reason)
        assert str(master.reason) == 'waits for workers (no worker can run a call over 3 ranks: none of them uses MPI)'
        _logged(caplog, f'{master.uid} {master.reason}')
        future.cancel()
        wait_until(lambda: not master.reason)
