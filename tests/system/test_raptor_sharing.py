"""Several masters share the calls of an application, and the tasks for any master."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from conftest import Run, pilot_description, processes_of, wait_until

import radical.pilot as rp

LONG = 40.0

cloudpickle.register_pickle_by_value(sys.modules[__name__])   # workers cannot import this module


def nap(seconds: float) -> int:
    """Sleep, and return the process of the worker's manager."""
    time.sleep(seconds)
    return os.getppid()


def meet(directory: str, number: int, others: int) -> int:
    """Wait until so many calls run at the same time, and return the process of the worker's manager."""
    os.makedirs(directory, exist_ok=True)
    Path(directory, str(number)).touch()
    while len(os.listdir(directory)) < others:
        time.sleep(0.005)
    return os.getppid()


def _master(pilot: rp.Pilot, *ranks: int) -> Any:
    """A master with one worker for each of these numbers of ranks, which are up."""
    master = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))[0]
    for number in ranks:
        _hire(master, number)
    return master


def _hire(master: Any, ranks: int) -> None:
    worker, = master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': ranks}))
    with rp.raptor.Executor(master) as executor:
        assert executor.submit(abs, -1).result(LONG) == 1
    assert worker.state == rp.AGENT_EXECUTING


@pytest.fixture(scope='module')
def masters(shared: Run) -> Any:
    """Two masters, each with a worker of one rank."""
    return [_master(shared.pilot, 1), _master(shared.pilot, 1)]


def test_a_stream_is_shared_evenly(masters: Any) -> None:
    done = Counter(call.result() for call in rp.raptor.stream(masters, nap, [0.005] * 400))
    assert len(done) == 2
    assert min(done.values()) > 50, done


def test_an_executor_is_shared_evenly(masters: Any) -> None:
    with rp.raptor.Executor(masters) as executor:
        done = Counter(executor.map(nap, [0.005] * 400))
    assert len(done) == 2
    assert min(done.values()) > 50, done


def test_calls_that_take_long_are_not_left_behind_others(masters: Any, tmp_path: Path) -> None:
    """The masters accept thousands of short calls; the last two wait for each other, wherever they were sent."""
    place = f'{tmp_path}/meeting'

    def run(number: int) -> int:
        return meet(place, number, 2) if number >= 3000 else os.getppid()

    calls = rp.raptor.stream(masters, run, range(3002))
    assert len({call.result() for call in calls if call.item >= 3000}) == 2


def test_ranks_of_all_masters_work_at_the_same_time(masters: Any, tmp_path: Path) -> None:
    """Calls that wait for each other would wait for ever if one master kept both."""
    with rp.raptor.Executor(masters) as executor:
        for number in range(10):
            pair = [executor.submit(meet, f'{tmp_path}/{number}', each, 2) for each in range(2)]
            assert len({future.result(LONG) for future in pair}) == 2


def test_a_worker_that_comes_late_gets_calls(run: Run, tmp_path: Path) -> None:
    """All calls are at the first master, which alone has a worker; the second call begins at the other one's."""
    masters = [_master(run.pilot, 1), _master(run.pilot)]
    with rp.raptor.Executor(masters) as executor:
        futures = [executor.submit(meet, f'{tmp_path}/meeting', number, 2) for number in range(2)]
        masters[1].submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER}))
        assert len({future.result(LONG) for future in futures}) == 2


def test_masters_with_more_ranks_get_more_calls(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, cores=5))
    tmgr.add_pilots(pilot)
    masters = [_master(pilot, 1), _master(pilot, 2)]
    done = Counter(call.result() for call in rp.raptor.stream(masters, nap, [0.01] * 300))
    few, many = sorted(done.values())
    assert many > few, done


def test_tasks_for_any_master_go_where_ranks_are_idle(masters: Any, shared: Run) -> None:
    tasks = shared.tmgr.submit_tasks([rp.TaskDescription({
        'mode': rp.TASK_FUNCTION, 'function': rp.PythonTask(nap, 0.005), 'raptor_id': '*'}) for _ in range(200)])
    shared.tmgr.wait_tasks([task.uid for task in tasks], timeout=LONG)
    done = Counter(task.return_value for task in tasks)
    assert len(done) == 2
    assert min(done.values()) > 25, done


def test_tasks_for_any_master_go_to_a_worker_that_comes_late(run: Run, tmp_path: Path) -> None:
    """Both are at the first master, which alone has a worker, and wait for each other."""
    masters = [_master(run.pilot, 1), _master(run.pilot)]
    tasks = run.tmgr.submit_tasks([rp.TaskDescription({
        'mode': rp.TASK_FUNCTION, 'raptor_id': '*',
        'function': rp.PythonTask(meet, f'{tmp_path}/meeting', number, 2)}) for number in range(2)])
    tasks[0].wait(rp.AGENT_EXECUTING, timeout=LONG)
    masters[1].submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER}))
    run.tmgr.wait_tasks([task.uid for task in tasks], timeout=LONG)
    assert len({task.return_value for task in tasks}) == 2


def test_closing_a_stream_frees_the_ranks_of_all_masters(masters: Any, tmp_path: Path) -> None:
    """Calls that run are interrupted, and those that wait are dropped, at each of them."""
    calls = rp.raptor.stream(masters, nap, chain([0.0], repeat(2 * LONG)), window=50)
    assert next(calls).result()
    calls.close()   # type: ignore[attr-defined]
    with rp.raptor.Executor(masters) as executor:
        pair = [executor.submit(meet, f'{tmp_path}/meeting', number, 2) for number in range(2)]
        assert len({future.result(LONG) for future in pair}) == 2


def test_sources_at_one_master_take_turns(masters: Any) -> None:
    """An executor gets its results while a stream that never ends keeps all ranks busy, and the other way round."""
    ended = threading.Event()
    calls: Iterator[Any] = rp.raptor.stream(masters, nap, (0.002 for _ in count() if not ended.is_set()), window=1000)
    assert next(calls).result()
    with rp.raptor.Executor(masters[0]) as executor, rp.raptor.Executor(masters[1]) as second:
        results = [each.submit(nap, 0.002) for each in (executor, second) for _ in range(20)]
        taken = 0
        while not all(future.done() for future in results):
            next(calls).result()
            taken += 1
    assert 0 < taken < 3000
    calls.close()   # type: ignore[attr-defined]
    with rp.raptor.Executor(masters) as executor:   # no call of the stream is left
        assert executor.submit(abs, -2).result(LONG) == 2


@pytest.mark.parametrize('how', ['cancel', 'stop', 'SIGTERM'])
def test_calls_of_a_master_that_is_ended_go_to_the_other(run: Run, tmp_path: Path, how: str) -> None:
    """Those that run there when it is ended wait for the others, and run once more."""
    masters = [_master(run.pilot, 1), _master(run.pilot, 1)]
    go = tmp_path / 'go'

    def wait(number: int) -> int:
        Path(tmp_path, f'begun.{number}').touch()
        while number < 2 and not go.exists():
            time.sleep(0.01)
        return number

    with rp.raptor.Executor(masters) as executor:
        futures = [executor.submit(wait, number) for number in range(40)]
        wait_until(lambda: all(Path(tmp_path, f'begun.{number}').exists() for number in range(2)))
        if how == 'cancel':
            masters[0].cancel()
        elif how == 'stop':
            masters[0].rpc('stop')
        else:
            (pid,) = (pid for pid, command in processes_of(masters[0]).items() if 'raptor-master' in command)
            os.kill(pid, signal.SIGTERM)
        masters[0].wait(timeout=LONG)
        go.touch()
        assert [future.result(LONG) for future in futures] == list(range(40))
