"""Calls that an application makes at real masters: streams and executors, and what becomes of them in faults."""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import CancelledError
from itertools import count
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from conftest import Run, processes_of, wait_until

import radical.pilot as rp
from rp_raptor.errors import CallLost

LONG = 40.0

SCORER = '''
import radical.pilot as rp

class Scorer(rp.raptor.DefaultWorker):
    loaded = 0
    def __init__(self, raptor_id):
        super().__init__(raptor_id)
        self.loaded += 1
        self.model = 7
    def score(self, number, offset=0):
        return [self.model * number + offset, self.loaded]
    async def score_later(self, number):
        return self.score(number)
'''

cloudpickle.register_pickle_by_value(sys.modules[__name__])   # workers cannot import this module


@pytest.fixture(scope='module')
def master(shared: Run) -> Any:
    """A master with a worker of two ranks, for all tests of the module."""
    return _started(shared)


def _started(run: Run, ranks: int = 2, **worker: Any) -> Any:
    master = run.pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))[0]
    master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': ranks, **worker}))
    with rp.raptor.Executor(master) as executor:
        assert executor.submit(abs, -1).result(LONG) == 1
    return master


def triple(number: int) -> int:
    if number == 7:
        raise KeyError('seven')
    return 3 * number


def test_a_stream(master: Any) -> None:
    calls = {call.index: call for call in rp.raptor.stream(master, triple, range(3000), window=500)}
    assert len(calls) == 3000
    failed = calls.pop(7)
    assert isinstance(failed.exception, KeyError)
    assert 'in triple' in str(failed.exception.__cause__)
    assert all(call.result() == 3 * index for index, call in calls.items())


def test_a_stream_of_chunks_that_is_left(master: Any) -> None:
    calls = rp.raptor.stream(master, abs, count(), chunksize=20)
    assert len({next(calls).result() for _ in range(500)}) == 500


def test_an_executor(master: Any) -> None:
    with rp.raptor.Executor(master) as executor:
        assert list(executor.map(pow, range(200), [2] * 200, chunksize=9)) == [n * n for n in range(200)]
        assert executor.submit(lambda *args, **kwargs: (args, kwargs), 1, two=2).result(LONG) == ((1,), {'two': 2})


def test_async_functions(master: Any) -> None:
    async def later(number: int) -> int:
        import asyncio

        await asyncio.sleep(0.01)
        return number + 1

    with rp.raptor.Executor(master) as executor:
        assert sorted(executor.map(later, range(100))) == list(range(1, 101))


def test_a_large_result_is_an_array_in_a_file(master: Any) -> None:
    import numpy

    def squares(size: int) -> Any:
        import numpy

        return numpy.arange(size) ** 2

    with rp.raptor.Executor(master) as executor:
        array = executor.submit(squares, 500_000).result(LONG)
    assert array.base is not None   # it is a view
    assert numpy.array_equal(array, numpy.arange(500_000) ** 2)


def test_a_running_call_can_be_cancelled(master: Any, tmp_path: Path) -> None:
    mark = tmp_path / 'mark'

    def endless(path: str) -> None:
        open(path, 'w').close()
        while True:
            time.sleep(0.01)

    with rp.raptor.Executor(master) as executor:
        future = executor.submit(endless, str(mark))
        wait_until(mark.exists, LONG)
        assert future.cancel()
        with pytest.raises(CancelledError):
            future.result(0)
        assert list(executor.map(abs, range(10))) == list(range(10))   # by both ranks


def test_a_call_that_takes_too_long(master: Any) -> None:
    with rp.raptor.Executor(master, timeout=0.2) as executor, pytest.raises(TimeoutError):
        executor.submit(time.sleep, 3600).result(LONG)
    with rp.raptor.Executor(master) as executor:   # a busy machine may take as long for anything
        assert executor.submit(abs, -3).result(LONG) == 3


def test_a_call_that_kills_its_rank(run: Run) -> None:
    calls = rp.raptor.stream(_started(run), lambda n: os._exit(3) if n == 5 else n, range(50))
    results = {call.item: call for call in calls}
    assert isinstance(results.pop(5).exception, CallLost)
    assert all(call.result() == item for item, call in results.items())


def test_calls_of_several_ranks(run: Run) -> None:
    master = _started(run, raptor_class='MPIWorker')

    def ranks_of(comm: Any, item: int, factor: int = 1) -> tuple[int, int]:
        return comm.rank, comm.allreduce(item * factor)

    with rp.raptor.Executor(master, ranks=2) as executor:
        for _ in range(3):   # the function travels along, then it is defined
            assert executor.submit(ranks_of, 5, factor=2).result(LONG) == [(0, 20), (1, 20)]
        assert list(executor.map(ranks_of, range(5), chunksize=2)) == [[(0, 2 * n), (1, 2 * n)] for n in range(5)]
    calls = rp.raptor.stream(master, ranks_of, range(5), ranks=2, chunksize=2)
    assert sorted(call.result() for call in calls) == [[(0, 2 * n), (1, 2 * n)] for n in range(5)]


def test_methods_of_the_worker_object(run: Run, tmp_path: Path) -> None:
    """Streams, executors and tasks call a method of the object that each rank has made once."""
    (tmp_path / 'scorer.py').write_text(SCORER)
    master = _started(run, ranks=2, raptor_file=str(tmp_path / 'scorer.py'), raptor_class='Scorer')
    score = rp.raptor.worker_method('score')
    calls = list(rp.raptor.stream(master, score, range(500)))
    assert sorted(call.result()[0] for call in calls) == [7 * n for n in range(500)]
    assert {call.result()[1] for call in calls} == {1}   # the model was loaded once
    with rp.raptor.Executor(master) as executor:
        assert executor.submit(score, 2, offset=1).result(LONG) == [15, 1]
        assert executor.submit(lambda n: score(n)[0] + 1, 2).result(LONG) == 15
        assert list(executor.map(rp.raptor.worker_method('score_later'), range(50), chunksize=7)) == [
            [7 * n, 1] for n in range(50)]
        with pytest.raises(ValueError, match=r"^Scorer has no method 'scrore'; its methods are .*hello, .*score, "):
            executor.submit(rp.raptor.worker_method('scrore'), 2).result(LONG)
    function = rp.PythonTask(score, (3,))
    task = master.submit_tasks(rp.TaskDescription({'mode': rp.TASK_FUNCTION, 'function': function}))[0]
    assert (task.wait(timeout=LONG), task.return_value) == (rp.DONE, [21, 1])


def test_a_master_that_is_killed(run: Run) -> None:
    own_master = _started(run)
    calls = rp.raptor.stream(own_master, abs, count(), window=100)
    next(calls)
    os.kill(pid_of(own_master), signal.SIGKILL)
    with pytest.raises(CallLost, match=rf'{own_master.uid} cannot be reached any more: it is FAILED'):
        for _ in calls:
            pass


def test_another_master_takes_over_from_a_killed_one(run: Run) -> None:
    masters = [_started(run, ranks=1), _started(run, ranks=1)]

    def slow(number: int) -> int:
        time.sleep(0.01)
        return number

    calls = rp.raptor.stream(masters, slow, range(300), window=60)
    results = [next(calls).result() for _ in range(20)]
    os.kill(pid_of(masters[0]), signal.SIGKILL)
    results += [call.result() for call in calls]
    assert sorted(results) == list(range(300))


def pid_of(master: Any) -> int:
    """The process of a master."""
    (pid,) = (pid for pid, command in processes_of(master).items() if 'master' in command)
    return pid
