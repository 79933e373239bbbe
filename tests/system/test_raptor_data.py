"""Large arguments and results of calls through real masters: as they were, in files that do not stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from array import array
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from conftest import Run, processes_with, wait_until

import radical.pilot as rp
from rp_api.system import shared_directory
from rp_raptor.errors import CallLost

LONG = 40.0
SIZES = [100_000, 1_000_000, 20_000_000]

cloudpickle.register_pickle_by_value(sys.modules[__name__])   # workers cannot import this module


@pytest.fixture(scope='module')
def master(shared: Run) -> Any:
    """A master with a worker of two ranks, for all tests of the module."""
    return _started(shared)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves a file of this process in shared memory, or a directory of a dead process."""
    yield
    shared_directory.sweep()
    assert _of(os.getpid()) == []


def _of(pid: int) -> list[str]:
    """The directories of a process in shared memory, but empty ones, which processes keep."""
    base, start = shared_directory.shared_memory(), f'radical.pilot.{os.geteuid()}.{pid}.'
    found = (f'{base}/{name}' for name in os.listdir(base) if name.startswith(start))
    return [directory for directory in found if os.path.isdir(directory) and os.listdir(directory)]


def _started(run: Run, ranks: int = 2, **worker: Any) -> Any:
    master = run.pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))[0]
    master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': ranks, **worker}))
    with rp.raptor.Executor(master) as executor:
        assert executor.submit(abs, -1).result(LONG) == 1
    return master


def same(value: Any) -> Any:
    return value


def last(value: Any) -> Any:
    return value[-1]


@pytest.mark.parametrize('size', SIZES)
def test_large_values_go_both_ways(master: Any, size: int) -> None:
    numbers, data = np.random.default_rng(1).random(size // 8), os.urandom(size)
    items = [numbers, data, bytearray(data), {'nested': [numbers[::2], data]}, 'text' * (size // 4)]
    calls = {call.index: call.result() for call in rp.raptor.stream(master, same, items)}
    assert np.array_equal(calls[0], numbers)
    assert calls[1] == data
    assert type(calls[1]) is bytes
    assert calls[2] == data
    assert type(calls[2]) is bytearray
    assert np.array_equal(calls[3]['nested'][0], numbers[::2])
    assert calls[3]['nested'][1] == data
    assert calls[4] == items[4]
    calls[0][0] = 1   # it is the application's own


@pytest.mark.parametrize('size', SIZES)
@pytest.mark.parametrize('chunksize', [1, 3])
def test_other_types_go_both_ways(master: Any, size: int, chunksize: int) -> None:
    data = os.urandom(size)
    frame = pd.DataFrame({'a': np.arange(size // 8), 'b': np.arange(size // 8) / 3})
    items = [array('B', data), memoryview(data), memoryview(bytearray(data)).cast('I', (2, size // 8)), [data, (data,)],
             {'deep': [{'er': (bytearray(data), 'text')}]}, frame, SimpleNamespace(content=data)]
    calls = list(rp.raptor.stream(master, same, items, chunksize=chunksize))
    for call in calls:
        assert type(call.result()) is type(call.item)
        if call.item is not frame:
            assert call.result() == call.item
    found: list[Any] = [call.result() for call in sorted(calls, key=lambda call: call.index)]
    assert (found[2].format, found[2].shape) == ('I', (2, size // 8))
    assert found[3][0] is found[3][1][0]
    assert type(found[4]['deep'][0]['er'][0]) is bytearray
    assert found[5].equals(frame)


def test_bytes_that_are_passed_again_are_stored_once(master: Any) -> None:
    data = os.urandom(1_000_000)
    with rp.raptor.Executor(master) as executor:
        futures = [executor.submit(last, [data, number]) for number in range(50)]
        (directory,) = _of(os.getpid())
        assert sum(file.stat().st_size for file in Path(directory).iterdir()) < 2 * len(data)
        assert [future.result(LONG) for future in futures] == list(range(50))


@pytest.mark.parametrize('chunksize', [1, 7])
def test_many_arrays(master: Any, chunksize: int) -> None:
    def changed(numbers: Any) -> Any:
        numbers += 1   # a function may change its own
        return numbers

    arrays = (np.full(12_500, number) for number in range(1000))
    for call in rp.raptor.stream(master, changed, arrays, chunksize=chunksize):
        assert (call.result() == call.index + 1).all()


def test_an_array_that_is_passed_again_is_stored_once(master: Any) -> None:
    numbers = np.zeros(1_000_000)
    with rp.raptor.Executor(master) as executor:
        scale = partial(lambda numbers, more, factor: (numbers.sum() + len(more)) * factor, numbers)
        futures = [executor.submit(scale, numbers, number) for number in range(50)]
        (directory,) = _of(os.getpid())
        assert sum(file.stat().st_size for file in Path(directory).iterdir()) < 2 * numbers.nbytes
        numbers[:] = 1   # calls have the content that it had
        changed = executor.submit(scale, numbers, 1)
        assert [future.result(LONG) for future in futures] == [1_000_000 * number for number in range(50)]
        assert changed.result(LONG) == 2_000_000


def test_a_call_of_several_ranks_has_large_arguments(run: Run) -> None:
    master = _started(run, raptor_class='MPIWorker')

    def total(comm: Any, numbers: Any) -> Any:
        return numbers * comm.allreduce(1)

    with rp.raptor.Executor(master, ranks=2) as executor:
        for result in executor.submit(total, np.ones(100_000)).result(LONG):
            assert (result == 2).all()


@pytest.mark.parametrize('size', [100_000, 2_000_000])
def test_ranks_map_no_files_of_an_executor_that_was_closed(master: Any, size: int) -> None:
    """They map files that are used again, whose memory is free with the last map."""
    def rank(_: bytes) -> int:
        return os.getpid()
    ours = f'/radical.pilot.{os.geteuid()}.{os.getpid()}.'
    with rp.raptor.Executor(master) as executor:
        ranks = {executor.submit(rank, os.urandom(size)).result(LONG) for _ in range(20)}
        assert any(ours in Path(f'/proc/{pid}/maps').read_text() for pid in ranks)
    wait_until(lambda: not any(ours in Path(f'/proc/{pid}/maps').read_text() for pid in ranks), LONG)


def test_calls_of_a_killed_rank_find_their_arguments(run: Run, tmp_path: Path) -> None:
    """Each call has one result, also those that have killed their rank once."""
    marks = tmp_path / 'marks'
    marks.mkdir()

    def work(numbers: Any, directory: str = str(marks)) -> int:
        number = int(numbers[0])
        with open(f'{directory}/{number}', 'a') as file:
            file.write('.')
        if number % 50 == 7 and os.path.getsize(f'{directory}/{number}') == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return number if (numbers == number).all() else -1

    calls = rp.raptor.stream(_started(run), work, (np.full(12_500, number) for number in range(200)))
    assert sorted(call.result() for call in calls) == list(range(200))
    ran = {int(file.name): file.stat().st_size for file in marks.iterdir()}
    assert all(ran[number] >= 2 for number in (7, 57, 107, 157))   # more: its result was not sent when its rank died
    assert len(ran) == 200


@pytest.mark.parametrize('victim', ['radical-pilot-raptor-worker', 'radical-pilot-raptor-master'])
def test_a_killed_manager_or_master_leaves_no_file(run: Run, base: Path, victim: str) -> None:
    """The results are those of the other worker or master."""
    masters = [_started(run, ranks=1), _started(run, ranks=1)]
    if victim.endswith('worker'):
        masters[0].submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': 1}))
    calls = rp.raptor.stream(masters, same, (np.full(12_500, number) for number in range(2000)), window=100)
    results = [int(next(calls).result()[0]) for _ in range(20)]
    of_run = processes_with(str(base))
    pids = [pid for pid, line in of_run.items() if victim in line.partition('\0RP_')[0] and pid != os.getpid()]
    os.kill(pids[0], signal.SIGKILL)
    results += [int(call.result()[0]) for call in calls]
    assert sorted(results) == list(range(2000))


def test_a_master_without_successor_leaves_no_file(run: Run, base: Path) -> None:
    own_master = _started(run)
    calls = rp.raptor.stream(own_master, same, (np.zeros(12_500) for _ in count()), window=100)
    next(calls)
    own_master.rpc('stop')
    with pytest.raises(CallLost):
        for _ in calls:
            pass


APPLICATION = """
import sys
from itertools import count
import numpy
import radical.pilot as rp
from rp_client.handles.raptor import RaptorMaster

class Handle:
    uid, state, exception = 'raptor', 'AGENT_EXECUTING', None
    access = eval(sys.argv[1])

def same(value):
    return value

for call in rp.raptor.stream(Handle(), same, (numpy.full(12_500, n) for n in count())):
    assert (call.result() == call.index).all()
    if call.index == 500:
        print('under way', flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can mount a file system')
def test_an_application_with_a_memory_of_its_own(master: Any) -> None:
    """As on another host, its large arguments and results travel in messages."""
    own_memory = ['unshare', '--mount', 'sh', '-c', 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', 'sh']
    with subprocess.Popen([*own_memory, sys.executable, '-c', APPLICATION, repr(dict(master.access))],
                          stdout=subprocess.PIPE, text=True) as application:
        try:
            assert application.stdout
            assert application.stdout.readline() == 'under way\n'
            assert not _of(application.pid)   # it is elsewhere
        finally:
            application.kill()
    with rp.raptor.Executor(master) as executor:
        assert executor.submit(len, bytes(100_000)).result(LONG) == 100_000


def test_a_killed_application_leaves_no_file(master: Any) -> None:
    """The master removes its directory, without another application."""
    with subprocess.Popen([sys.executable, '-c', APPLICATION, repr(dict(master.access))], stdout=subprocess.PIPE,
                          text=True) as application:
        try:
            assert application.stdout
            assert application.stdout.readline() == 'under way\n'
            assert len(_of(application.pid)) == 1
        finally:
            application.kill()
    wait_until(lambda: not _of(application.pid), LONG)
    with rp.raptor.Executor(master) as executor:
        assert executor.submit(len, bytes(100_000)).result(LONG) == 100_000
