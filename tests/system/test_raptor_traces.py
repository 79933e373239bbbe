"""The traces that function calls leave, and what is made of them."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import pytest
from conftest import Run, wait_until

import radical.pilot as rp
from rp_profiling.calls import Calls, figures, read_calls
from rp_profiling.check import check_session
from rp_profiling.read.calls import read_file
from rp_profiling.read.files import profiles_below
from rp_profiling.read.session import read_trace
from rp_profiling.write.calls import DONE, FAILED, RECORD

EVENTS = ('task_start', 'task_run_start', 'task_run_ok', 'exec_start', 'rank_start', 'rank_stop', 'exec_stop',
          'task_run_stop')
STREAMED, NAPS, CHUNKED, DESCRIBED = 300, 20, 60, 12
CALLS = STREAMED + NAPS + CHUNKED + DESCRIBED

cloudpickle.register_pickle_by_value(sys.modules[__name__])   # workers cannot import this module


def inverse(number: int) -> float:
    return 1 / number


async def nap(number: int) -> int:
    await asyncio.sleep(0.001)
    return number


def recorded(path: Path) -> int:
    """The number of records in a file, which may just be made."""
    try:
        return len(read_file(path).what)
    except ValueError:
        return 0


def finished(run: Run, worker: dict[str, object] | None = None) -> Path:
    """The directory of a session with calls of several kinds, into which the traces of its pilot were moved."""
    master = run.pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))[0]
    master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': 2, **(worker or {})}))
    assert sum(call.exception is not None for call in rp.raptor.stream(master, inverse, range(STREAMED))) == 1
    assert len(list(rp.raptor.stream(master, nap, range(NAPS)))) == NAPS
    assert len(list(rp.raptor.stream(master, abs, range(CHUNKED), chunksize=20))) == CHUNKED
    described = [{'mode': rp.TASK_EVAL, 'code': '6 * 7'}, {'mode': rp.TASK_SHELL, 'command': 'true'},
                 {'mode': rp.TASK_EXEC, 'code': 'import asyncio'}]
    tasks = run.tmgr.submit_tasks([rp.TaskDescription({'raptor_id': master.uid, **described[number % 3]})
                                   for number in range(DESCRIBED)])
    assert set(run.tmgr.wait_tasks([task.uid for task in tasks], timeout=50)) == {rp.DONE}
    sandbox = run.pilot.pilot_sandbox
    if worker is None:   # idle ranks write their records by themselves
        wait_until(lambda: sum(map(recorded, Path(sandbox).rglob('*.calls'))) >= CALLS)
    run.session.close(download=True)
    shutil.rmtree(sandbox)
    return Path(run.session.path)


def calls_of(directory: Path) -> Calls:
    calls = read_calls(read_trace(directory))
    assert calls.remarks == []
    return calls


def without_event(name: str) -> Callable[[Path], None]:
    """Take all rows of an event out of the profiles of ranks."""
    def change(directory: Path) -> None:
        for path in profiles_below(directory):
            if path.name.startswith('raptor.0000.0000.'):
                path.write_text(''.join(line for line in path.read_text().splitlines(keepends=True)
                                        if line.split(',')[1] != name))
    return change


def without_events(directory: Path) -> None:
    for name in EVENTS:
        without_event(name)(directory)


def without_records(directory: Path) -> None:
    next(directory.rglob('*.calls')).unlink()


def without_the_end(directory: Path) -> None:
    path = next(directory.rglob('*.calls'))
    path.write_bytes(path.read_bytes()[:-RECORD])


def test_all_calls_leave_traces(run: Run, tmp_path: Path) -> None:
    directory = finished(run)
    findings = check_session(directory)
    assert not findings, str(findings)
    assert findings.remarks == []
    trace = read_trace(directory)
    tasks = [uid for uid in map(trace.columns.uids.__getitem__, range(len(trace.columns.uids)))
             if uid.startswith('task.')]
    assert len(tasks) == DESCRIBED
    for uid in tasks:
        assert [row.event for row in trace.history(uid) if row.event in EVENTS] == list(EVENTS)
    calls = calls_of(directory)
    assert Counter(calls.outcome.tolist()) == {DONE: CALLS - 1, FAILED: 1}
    assert (int(calls.described.sum()), int(calls.is_async.sum())) == (DESCRIBED, NAPS)
    assert [(rank.worker, rank.rank, rank.closed) for rank in calls.ranks] == [
        ('raptor.0000.0000', number, True) for number in (0, 1)]
    assert figures(calls).calls == CALLS
    for number, change in enumerate([*map(without_event, EVENTS), without_events, without_records, without_the_end]):
        copy = tmp_path / str(number)
        shutil.copytree(directory, copy)
        change(copy)
        assert check_session(copy), change


@pytest.mark.long
def test_calls_are_drawn(run: Run, tmp_path: Path) -> None:
    directory = finished(run)
    for action in ('plot', 'report'):
        done = subprocess.run([sys.executable, '-m', 'rp_client.cli', 'trace', str(directory), action, '-o',
                               str(tmp_path / action)], capture_output=True, text=True, timeout=100)
        assert (done.returncode, done.stderr) == (0, '')
    assert {'call-concurrency.png', 'call-rate.png', 'call-durations.png', 'rank-utilisation.png'} <= {
        path.name for path in (tmp_path / 'plot').iterdir()}
    assert 'Use of the ranks of RAPTOR workers' in (tmp_path / 'report').read_text()
    done = subprocess.run([sys.executable, '-m', 'rp_client.cli', 'trace', str(directory), 'stats'],
                          capture_output=True, text=True, timeout=100)
    assert f'{CALLS} on 2 ranks, 1 failed' in done.stdout


@pytest.mark.parametrize('detail', ['states', 'off'])
def test_a_worker_with_less_detail_leaves_no_records(run: Run, detail: str) -> None:
    directory = finished(run, {'environment': {'RADICAL_PILOT_RAPTOR_WORKER_PROFILE': detail}})
    findings = check_session(directory)
    assert not findings, str(findings)
    assert len(calls_of(directory)) == 0
    assert len(findings.remarks) == 1   # which says so
