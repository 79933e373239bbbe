"""Whole workers, manager and ranks, with a scripted master: functions that misbehave, and MPI functions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rank_support import worker_file
from worker_support import DEADLINE, Master

from rp_api.system.processes import process_table, variable
from rp_raptor.wire import payload
from rp_raptor.wire.batch import Payloads
from rp_raptor.wire.rank_protocol import RUN_VARIABLE

KINDS = ['DefaultWorker', 'MPIWorker']


class Whole:
    """A worker that runs, as its master sees it."""

    def __init__(self, master: Master, process: subprocess.Popen[bytes]) -> None:
        self.master = master
        self.process = process
        self._ids = 0

    def define(self, func: Callable[..., Any]) -> bytes:
        """Send a function; gives its identifier."""
        fid, blob = payload.define(func)
        self.master.send('define', fid, blob)
        return fid

    def give(self, *calls: bytes, **attributes: Any) -> list[int]:
        """Send calls, all with these attributes; gives their ids."""
        ids = list(range(self._ids, self._ids + len(calls)))
        self._ids += len(calls)
        self.master.send('calls', array('Q', ids), Payloads(calls),
                         dict.fromkeys(ids, attributes) if attributes else None)
        return ids

    def outcome(self, id: int) -> Any:
        """The value of a call, when it is there; raises what it has raised."""
        return payload.decode_result(self.master.wait_results(id)[0])

    def call(self, func: Callable[..., Any], *args: Any, **attributes: Any) -> Any:
        """Have a function called."""
        return self.outcome(self.give(payload.encode_call(self.define(func), args), **attributes)[0])


@contextmanager
def a_whole_worker(path: Path, class_name: str, ranks: int = 2, file: str = '') -> Iterator[Whole]:
    """A worker whose ranks are ready; nothing of it is left afterwards."""
    master = Master(path)
    runtime = path / 'tmp'
    runtime.mkdir()
    environ = {**os.environ, 'RP_TASK_ID': 'raptor.0000.0000', 'RP_PILOT_SANDBOX': str(path), 'RP_RANKS': str(ranks),
               'TMPDIR': str(runtime)}
    process = subprocess.Popen([sys.executable, '-m', 'rp_raptor.cli', 'worker', file, class_name, 'raptor.0000'],
                               env=environ, cwd=path, start_new_session=True)
    try:
        master.wait(lambda: list(master.ranks.values()) == ['ACTIVE'] * ranks, 'ranks are ready')
        yield Whole(master, process)
        master.send('stop')
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        process.wait()
        master.close()
    assert master.twice == []
    assert _left(str(runtime)) == []


def _left(runtime: str) -> list[int]:
    return [pid for pid in process_table() if variable(pid, RUN_VARIABLE).startswith(runtime)]


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Whole]:
    """A DefaultWorker with two ranks."""
    with a_whole_worker(tmp_path, 'DefaultWorker') as whole:
        yield whole


@pytest.mark.parametrize('kind', KINDS)
def test_many_calls_of_all_kinds(tmp_path: Path, kind: str) -> None:
    """Short and long ones, asynchronous ones, errors: each has one result."""
    async def later(n: int) -> int:
        import asyncio

        await asyncio.sleep(n / 1000)
        return n

    def sleep(n: int) -> int:
        time.sleep(n / 10000)
        return n

    with a_whole_worker(tmp_path, kind) as whole:
        functions = [whole.define(abs), whole.define(later), whole.define(sleep), whole.define(lambda n: 1 // (n % 7))]
        ids = whole.give(*(payload.encode_call(functions[n % 4], (n % 100,)) for n in range(1000)))
        for n, result in enumerate(whole.master.wait_results(*ids)):
            number = n % 100
            if n % 4 == 3 and number % 7 == 0:
                with pytest.raises(ZeroDivisionError):
                    payload.decode_result(result)
            else:
                expected = 1 // (number % 7) if n % 4 == 3 else number
                assert payload.decode_result(result) == expected


@pytest.mark.fault
@pytest.mark.parametrize('kind', KINDS)
def test_a_function_that_kills_its_rank(tmp_path: Path, kind: str) -> None:
    """The master hears which call it was and why; the others have results, and the rank comes back.

    That is so in an MPI job as well, which takes the other ranks with it.
    """
    def die(how: int) -> None:
        if how:
            os.kill(os.getpid(), how)
        os._exit(3)

    with a_whole_worker(tmp_path, kind) as whole:
        die_fid, abs_fid = whole.define(die), whole.define(abs)
        for how, reason in ((0, '3'), (signal.SIGABRT, 'SIGABRT')):
            *ids, last = whole.give(*[payload.encode_call(abs_fid, (-n,)) for n in range(100)],
                                    payload.encode_call(die_fid, (how,)))
            more = whole.give(*[payload.encode_call(abs_fid, (-n,)) for n in range(100)])
            whole.master.wait(partial(whole.master.died.__contains__, last), 'the call has died')
            assert reason in whole.master.died[last]
            results = whole.master.wait_results(*ids, *more)
            assert [payload.decode_result(result) for result in results] == [*range(100)] * 2
        assert set(whole.master.died) == {100, 301}


@pytest.mark.fault
@pytest.mark.parametrize('kind', KINDS)
def test_calls_that_do_not_end(tmp_path: Path, kind: str) -> None:
    """They are interrupted at their timeout, or canceled, and killed if that does not help."""
    def sleep() -> None:
        time.sleep(60)

    def ignore() -> None:
        while True:
            try:
                time.sleep(60)
            except Exception:
                continue

    async def wait() -> None:
        import asyncio

        await asyncio.sleep(60)

    with a_whole_worker(tmp_path, kind) as whole:
        for func in (sleep, wait, ignore):
            with pytest.raises(TimeoutError):
                whole.call(func, timeout=0.1)
        ids = whole.give(*[payload.encode_call(whole.define(sleep))] * 3, payload.encode_call(whole.define(wait)))
        whole.master.send('cancel', array('Q', ids))
        for id in ids:
            with pytest.raises(CancelledError):
                whole.outcome(id)
        assert whole.call(abs, -2) == 2
        assert whole.master.died == {}


def test_interruptions_at_any_moment(whole: Whole) -> None:
    """Calls that take about as long as they may have one result each, and no rank is harmed."""
    def work(n: int) -> int:
        end = time.perf_counter() + n * 1e-5
        while time.perf_counter() < end:
            pass
        return n

    fid = whole.define(work)
    ids = whole.give(*(payload.encode_call(fid, (n % 200,)) for n in range(600)), timeout=0.001)
    for n, result in enumerate(whole.master.wait_results(*ids)):
        with suppress(TimeoutError):
            assert payload.decode_result(result) == n % 200
    assert whole.master.died == {}


@pytest.mark.fault
@pytest.mark.parametrize('kind', KINDS)
def test_programs_end_with_their_rank(tmp_path: Path, kind: str) -> None:
    """What a killed rank has started is killed, too."""
    def run(name: str) -> None:
        command = f'echo $$ > {name}.new; mv {name}.new {name}; exec sleep 300'
        from rp_raptor.rank.programs import run_command

        run_command(command, '', '')

    with a_whole_worker(tmp_path, kind) as whole:
        name = tmp_path / 'pid'
        (id,) = whole.give(payload.encode_call(whole.define(run), (str(name),)))
        whole.master.wait(name.exists, 'the program runs')
        program = int(name.read_text())
        rank = process_table()[program].parent
        os.kill(rank, signal.SIGKILL)
        whole.master.wait(lambda: id in whole.master.died, 'the call has died')
        whole.master.wait(lambda: program not in process_table() or not process_table()[program].alive,
                          'the program ends')


def test_functions_of_several_ranks(tmp_path: Path) -> None:
    """They have a communicator, a place in it, and one result."""
    def add(comm: Any, n: int) -> int:
        return int(comm.allreduce(n + comm.rank))

    text = 'from rp_raptor.rank.worker import MPIWorker\n\nclass Mine(MPIWorker):\n    pass\n'
    with a_whole_worker(tmp_path, 'Mine', 3, worker_file(tmp_path, text)) as whole:
        assert whole.master.said[0][1][4]['mpi'] is True
        for ranks in (2, 3):
            assert whole.call(add, 5, ranks=ranks) == [5 * ranks + sum(range(ranks))] * ranks
        task = {'uid': 'task.0', 'sandbox': str(tmp_path / 'task.0'),
                'description': {'mode': 'task.method', 'method': 'hello_mpi', 'args': ['x'], 'ranks': 2,
                                'stdout': 'out'}}
        (id,) = whole.give(payload.encode_described(task), ranks=2)
        result = payload.as_result(whole.master.wait_results(id)[0])
        assert sorted(result['return_value']) == ['hello 0/2: x', 'hello 1/2: x']
        assert sorted((tmp_path / 'task.0' / 'out').read_text().splitlines()) == ['hello 0/2: x', 'hello 1/2: x']
        assert whole.call(abs, -1) == 1


@pytest.mark.fault
def test_functions_of_several_ranks_that_fail(tmp_path: Path) -> None:
    """One rank that raises, hangs or dies ends the call of all of them."""
    def part(comm: Any, what: str) -> None:
        if comm.rank == 1:
            if what == 'raise':
                raise KeyError('rank 1')
            if what == 'die':
                os._exit(5)
            time.sleep(60)

    with a_whole_worker(tmp_path, 'MPIWorker', 2) as whole:
        with pytest.raises(KeyError):
            whole.call(part, 'raise', ranks=2)
        with pytest.raises(TimeoutError):
            whole.call(part, 'hang', ranks=2, timeout=0.1)
        (id,) = whole.give(payload.encode_call(whole.define(part), ('die',)), ranks=2)
        whole.master.wait(lambda: id in whole.master.died, 'the call has died')
        assert whole.call(abs, -1) == 1


@pytest.mark.parametrize('kind', KINDS)
def test_a_script_of_the_older_style(tmp_path: Path, kind: str) -> None:
    """It becomes the manager, and its ranks run the same script."""
    script = tmp_path / 'script.py'
    script.write_text('import sys\nimport rp_raptor.rank.worker as w\n\n'
                      f'class Own(w.{kind}):\n    def own(self, n):\n        return [n, self._rank, self._ranks]\n\n'
                      'if __name__ == "__main__":\n    own = Own(sys.argv[1])\n    own.start()\n    own.join()\n')
    master = Master(tmp_path)
    environ = {**os.environ, 'RP_TASK_ID': 'raptor.0000.0000', 'RP_PILOT_SANDBOX': str(tmp_path), 'RP_RANKS': '1'}
    process = subprocess.Popen([sys.executable, str(script), 'raptor.0000'], env=environ, cwd=tmp_path)
    try:
        master.wait(lambda: master.ranks == {0: 'ACTIVE'}, 'the rank is ready')
        task = {'uid': 'task.0', 'sandbox': '', 'description': {'mode': 'task.method', 'method': 'own', 'args': [3]}}
        master.send('calls', array('Q', [1]), Payloads([payload.encode_described(task)]), None)
        assert payload.as_result(master.wait_results(1)[0])['return_value'] == [3, 0, 1]
        master.send('stop')
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        process.wait()
        master.close()
