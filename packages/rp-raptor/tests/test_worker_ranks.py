"""A manager with real ranks of the worker classes, and a scripted master."""

from __future__ import annotations

import os
import select
import shutil
import time
from array import array
from collections.abc import Callable
from concurrent.futures import CancelledError
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from worker_support import DEADLINE, Master, a_worker

from rp_raptor.wire.batch import Payloads
from rp_raptor.wire.payload import decode_result, define, encode_call

DEFAULT = ('', 'DefaultWorker')
MPI = ('', 'MPIWorker')
numbers = count()


def call(master: Master, func: Callable[..., Any], *args: Any, **attributes: Any) -> int:
    """Have the worker call the function; gives the id of the call."""
    fid, blob = define(func)
    id = next(numbers)
    master.send('define', fid, blob)
    master.send('calls', array('Q', [id]), Payloads([encode_call(fid, args)]), {id: attributes} if attributes else None)
    return id


def result(master: Master, id: int) -> Any:
    """The value of a call, or what it has raised."""
    master.wait_results(id)
    return decode_result(master.results[id])


def double(x: int) -> int:
    return 2 * x


def wait_for(path: str) -> str:
    directory, name = os.path.split(path)
    while name not in os.listdir(directory):   # os.path.exists() would take an interruption for an OSError
        time.sleep(0.01)
    return 'there'


async def wait_long(path: str) -> None:
    import asyncio

    open(path, 'w').close()
    await asyncio.sleep(1000)


def mark_and_wait(path: str) -> None:
    open(path, 'w').close()
    while True:
        time.sleep(100)


def restored_slowly() -> Callable[[], None]:
    """What takes longer to be restored than the call may take, and would take an interruption for an OSError."""
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        os.path.exists('/')
    return sleep_long


def sleep_long() -> None:
    while True:
        time.sleep(100)


def own_pid() -> int:
    """The process of the rank, which imports this module for it: on a busy machine, longer than a call may take."""
    return os.getpid()


class Slow:
    def __reduce__(self) -> Any:
        return restored_slowly, ()

    def __call__(self) -> None:
        """What is called is what this is restored as."""


def test_a_call_whose_function_is_still_restored_is_interrupted_after_that(tmp_path: Path) -> None:
    with a_worker(tmp_path, ranks=1, of_class=DEFAULT) as worker:
        master = worker.master
        pid = result(master, call(master, own_pid))
        with pytest.raises(TimeoutError):
            result(master, call(master, Slow(), timeout=0.1))
        assert result(master, call(master, own_pid)) == pid


def test_calls_of_all_outcomes(tmp_path: Path) -> None:
    with a_worker(tmp_path, of_class=DEFAULT) as worker:
        master = worker.master
        good = [call(master, double, number) for number in range(50)]
        bad = call(master, double)
        assert [result(master, id) for id in good] == [2 * number for number in range(50)]
        with pytest.raises(TypeError, match='missing 1 required positional'):
            result(master, bad)
        assert worker.stop() == 0
        assert worker.errors == ''


def test_a_call_that_takes_too_long_is_interrupted_and_the_rank_goes_on(tmp_path: Path) -> None:
    with a_worker(tmp_path, ranks=1, of_class=DEFAULT) as worker:
        master = worker.master
        pid = result(master, call(master, os.getpid))
        late = call(master, wait_for, str(tmp_path / 'never'), timeout=0.1)
        late_too = call(master, wait_long, str(tmp_path / 'begun'), timeout=0.1)
        for id in (late, late_too):
            with pytest.raises(TimeoutError):
                result(master, id)
        assert result(master, call(master, os.getpid)) == pid


@pytest.mark.parametrize('func', [mark_and_wait, wait_long])
def test_a_call_that_runs_is_canceled_and_the_rank_goes_on(tmp_path: Path, func: Callable[..., Any]) -> None:
    with a_worker(tmp_path, ranks=1, of_class=DEFAULT) as worker:
        master = worker.master
        pid = result(master, call(master, os.getpid))
        id = call(master, func, str(tmp_path / 'begun'))
        deadline = time.monotonic() + DEADLINE
        master.wait(lambda: (tmp_path / 'begun').exists() or time.monotonic() > deadline, 'the call runs')
        master.send('cancel', array('Q', [id]))
        with pytest.raises(CancelledError):
            result(master, id)
        assert result(master, call(master, os.getpid)) == pid


@pytest.mark.parametrize(('func', 'argument', 'words'), [
    (os._exit, 7, 'ended with exit code 7'), (os.abort, None, 'was killed by SIGABRT')])
def test_a_call_that_ends_its_rank(tmp_path: Path, func: Callable[..., Any], argument: Any, words: str) -> None:
    with a_worker(tmp_path, of_class=DEFAULT) as worker:
        master = worker.master
        id = call(master, func, *([] if argument is None else [argument]))
        master.wait(lambda: id in master.died, 'its death')
        assert words in master.died[id]
        assert result(master, call(master, double, 4)) == 8
        master.wait(lambda: list(master.ranks.values()) == ['ACTIVE'] * 2, 'the rank is back')


def test_a_worker_whose_class_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    (tmp_path / 'mine.py').write_text('import radical.pilot as rp\nclass Mine(rp.raptor.Worker): pass\n')
    with a_worker(tmp_path, of_class=('mine.py', 'Other'), ready=False) as worker:
        assert worker.process.wait(DEADLINE) == 1
        assert "its ranks cannot work: raptor_class 'Other': mine.py has no class Other" in worker.errors


@pytest.mark.parametrize('base', ['DefaultWorker', 'MPIWorker'])
def test_ranks_that_end_without_a_call_again_and_again_end_the_worker(tmp_path: Path, base: str) -> None:
    (tmp_path / 'mine.py').write_text(f'import os\nimport radical.pilot as rp\n\nclass Mine(rp.raptor.{base}):\n'
                                      '    def join(self):\n        if self._rank == 1:\n            os._exit(4)\n'
                                      '        super().join()\n')
    with a_worker(tmp_path, of_class=('mine.py', 'Mine'), ready=False) as worker:
        assert worker.process.wait(DEADLINE) == 1
        assert 'rank 1 ended with exit code 4, 3 times before it has taken a call' in worker.errors


def test_ranks_end_when_their_manager_is_killed(tmp_path: Path) -> None:
    with a_worker(tmp_path, ranks=1, of_class=DEFAULT) as worker:
        pid = result(worker.master, call(worker.master, os.getpid))
        pidfd = os.pidfd_open(pid)
        call(worker.master, wait_for, str(tmp_path / 'never'))
        worker.process.kill()
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        assert poll.poll(DEADLINE * 1000)
        os.close(pidfd)
        for directory in (tmp_path / 'tmp').iterdir():   # which it had no time to remove
            shutil.rmtree(directory)


def test_functions_of_several_ranks_have_a_communicator(tmp_path: Path) -> None:
    def total(comm: Any, start: int) -> list[int]:
        return [comm.size, comm.allreduce(comm.rank + start)]

    with a_worker(tmp_path, ranks=3, of_class=MPI) as worker:
        master = worker.master
        ids = [call(master, total, 10, ranks=ranks) for ranks in (2, 3, 2, 3)]
        assert [result(master, id) for id in ids] == [[[2, 21]] * 2, [[3, 33]] * 3] * 2
        died = call(master, lambda comm: comm.rank and os._exit(3), ranks=2)
        master.wait(lambda: died in master.died, 'its death')
        assert result(master, call(master, total, 1, ranks=3)) == [[3, 6]] * 3
        assert worker.stop() == 0
