"""Ranks that are an MPI job: functions of several of them, with communicators of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rank_support import Manager, a_manager, worker_file

from rp_api.description.python_task import PythonTask
from rp_profiling.read.calls import read_file
from rp_profiling.read.profile import read_profile
from rp_profiling.write.calls import END, PART, TASK
from rp_raptor.definitions import worker_method
from rp_raptor.rank.modes import BEGUN, ENDED
from rp_raptor.wire import payload
from rp_raptor.worker.mpi_launch import find_launcher

LAUNCHER = find_launcher(os.environ)

WORKER = '''
from rp_raptor.rank.worker import MPIWorker, MPIWorkerRank

def sum_of_ranks(comm, factor):
    print('rank', comm.rank)
    return factor * comm.allreduce(comm.rank)

class OfRank(MPIWorkerRank):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_mode('foo', self._dispatch_foo)
    def gather(self, comm, item):
        return comm.allgather([self._rank, item])
    async def gather_later(self, comm, item):
        return self.gather(comm, item)
    def _dispatch_foo(self, task):
        return '', '', 0, [self._rank, self._ranks], (None, None)

class Mine(MPIWorker):
    def get_rank_worker(self):
        return OfRank
'''


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Manager]:
    """A manager with a job of three ranks."""
    with a_manager(tmp_path, ranks=3, mpi=True, file=worker_file(tmp_path, WORKER), class_name='Mine') as manager:
        manager.start(launcher=LAUNCHER)
        manager.wait(lambda: len(manager.ready) == 3)
        yield manager


def _together(job: Manager, call: bytes, group: list[int], tag: int = 1) -> bytes:
    id = job.give_together(call, group, tag)
    job.wait(lambda: len(job.parts.get(id, ())) == len(group))
    return payload.join_parts(job.parts[id])


def test_calls_of_several_ranks(job: Manager) -> None:
    """The communicator is the first argument, or where it was left out; asynchronous functions work as well."""
    def size(comm: Any, more: int) -> list[int]:
        return [comm.allreduce(1), more]

    def product(a: int, comm: Any = None) -> int:
        return int(comm.allreduce(a))

    async def later(comm: Any) -> int:
        import asyncio

        await asyncio.sleep(0)
        return int(comm.allreduce(2))

    for rank in range(3):
        for func in (size, product, later):
            fid = job.define(func, rank)
            assert fid == payload.define(func)[0]
    call = payload.encode_call(payload.define(size)[0], (5,))
    assert payload.decode_result(_together(job, call, [0, 2])) == [[2, 5]] * 2
    call = payload.encode_call(payload.define(product)[0], (5,), {'comm': None})
    assert payload.decode_result(_together(job, call, [0, 1, 2])) == [15] * 3
    assert payload.decode_result(_together(job, payload.encode_call(payload.define(later)[0]), [1, 2], 7)) == [4] * 2


def test_methods_of_several_ranks(job: Manager) -> None:
    """A method of the rank's class gets the communicator first, as a function does."""
    for name, item in (('gather', 5), ('gather_later', 6)):
        for rank in range(3):
            fid = job.define(worker_method(name), rank)
        result = payload.decode_result(_together(job, payload.encode_call(fid, (item,)), [0, 2], item))
        assert result == [[[0, item], [2, item]]] * 2


def test_described_tasks_of_several_ranks(job: Manager) -> None:
    """Output and values are lists; programs run once per rank."""
    task = job.described(mode='task.function', function='sum_of_ranks', args=[10])
    result = payload.as_result(_together(job, task, [0, 1, 2]))
    assert result['return_value'] == [30] * 3
    assert sorted(result['stdout']) == ['rank 0\n', 'rank 1\n', 'rank 2\n']
    assert (result['exit_code'], result['target_state']) == (0, 'DONE')
    hello = payload.as_result(_together(job, job.described(mode='task.method', method='hello_mpi', args=['x']), [1, 2]))
    assert sorted(hello['return_value']) == ['hello 0/2: x', 'hello 1/2: x']
    shell = job.described(mode='task.shell', command='echo $RP_RANK/$RP_RANKS; exit $RP_RANK')
    result = payload.as_result(_together(job, shell, [0, 2]))
    assert sorted(result['stdout']) == ['0/2\n', '1/2\n']
    assert (result['exit_code'], result['target_state']) == (1, 'FAILED')
    lost = job.described(mode='task.function', function=PythonTask(lambda x: x, (3,)))
    assert 'a place for the communicator' in payload.as_result(_together(job, lost, [0, 1]))['exception']
    assert payload.as_result(_together(job, job.described(mode='task.eval', code='comm.allgather(comm.rank)'),
                                       [0, 1]))['return_value'] == [[0, 1]] * 2


@pytest.mark.parametrize('what', [{'mode': 'task.shell', 'command': 'echo $RP_RANK; echo no $RP_RANK >&2'},
                                  {'mode': 'task.proc', 'executable': '/bin/sh',
                                   'arguments': ['-c', r'echo \$RP_RANK; echo no \$RP_RANK >&2']}])
def test_programs_of_several_ranks_share_files(job: Manager, what: dict[str, Any]) -> None:
    """Nothing that one of them has put out is lost, and each result has what its own rank has put out."""
    task = job.described(**what, ranks=3, stdout='all.out', stderr='all.err')
    result = payload.as_result(_together(job, task, [0, 1, 2]))
    assert sorted(result['stdout']) == ['0\n', '1\n', '2\n']
    found = {path.name: sorted(path.read_text().splitlines()) for path in Path(job.directory).glob('task.*/all.*')}
    assert found == {'all.out': ['0', '1', '2'], 'all.err': ['no 0', 'no 1', 'no 2']}


def test_ranks_have_their_own_class(job: Manager) -> None:
    """That of `get_rank_worker`, and its modes; ordinary calls have one rank, and no communicator."""
    results = [job.give([job.described(mode='foo'), job.described(mode='task.eval', code='"comm" in globals()')], rank)
               for rank in range(3)]
    assert [job.result(first)['return_value'] for first, _ in results] == [[rank, 3] for rank in range(3)]
    assert [job.result(second)['return_value'] for _, second in results] == [False] * 3


def test_programs_do_not_take_themselves_for_ranks(job: Manager) -> None:
    """A program that uses MPI is a job of its own."""
    task = job.task(mode='task.shell', command=f'{sys.executable} -c "from mpi4py import MPI; '
                                               'print(MPI.COMM_WORLD.size)"')
    assert task['stdout'] == '1\n'


def test_each_rank_records_its_part(tmp_path: Path) -> None:
    """And all events of a task, so that the first of each name are in order."""
    with a_manager(tmp_path, ranks=2, mpi=True, file=worker_file(tmp_path, WORKER), class_name='Mine') as manager:
        process = manager.start(launcher=LAUNCHER, environ={'RP_TASK_SANDBOX': str(tmp_path)})
        manager.wait(lambda: len(manager.ready) == 2)
        call = manager.described(mode='task.function', function='sum_of_ranks', args=[2], ranks=2)
        assert payload.as_result(_together(manager, call, [0, 1]))['return_value'] == [2, 2]
        for rank in (0, 1):
            manager.send(rank, ['stop'])
        process.wait(30)
    for rank in (0, 1):
        rows = [row.event for row in read_profile(tmp_path / f'raptor.0000.0000.{rank}.prof') if row.uid]
        assert rows == [*BEGUN, *ENDED]
        content = read_file(tmp_path / f'raptor.0000.0000.{rank}.calls')
        assert content.what.tolist() == [TASK | PART if rank else TASK, END]


def test_ranks_that_are_killed_leave_no_shared_memory(tmp_path: Path) -> None:
    """MPICH would leave it."""
    assert LAUNCHER
    script = tmp_path / 'rank.py'
    script.write_text('''import os, signal
from rp_raptor.definitions import start_mpi
rank = start_mpi(2)
maps = {line.split()[5] for line in open('/proc/self/maps') if '/dev/shm/mpich' in line}
open(f'{rank}', 'w').write(' '.join(path for path in maps if os.path.exists(path)) or 'none')
from mpi4py import MPI
own = MPI.COMM_WORLD.Dup()   # takes shared memory
assert own.allgather(bytes(1 << 20)) == [bytes(1 << 20)] * 2
os.kill(os.getpid(), signal.SIGKILL)
''')
    subprocess.run([LAUNCHER.program, '-n', '2', sys.executable, script], cwd=tmp_path, timeout=60)
    assert [(tmp_path / rank).read_text() for rank in '01'] == ['none'] * 2
