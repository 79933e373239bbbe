"""A rank runs calls: real ranks, with a stand-in for their manager."""

from __future__ import annotations

import gzip
import os
import signal
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rank_support import Manager, a_manager, worker_file

from rp_api.description.python_task import PythonTask
from rp_api.errors import DeserializationError, SerializationError
from rp_api.system.shared_directory import place
from rp_profiling.read.calls import read_file
from rp_profiling.read.profile import read_profile
from rp_profiling.write.calls import ASYNC, DONE, FAILED, FUNCTION, TASK
from rp_raptor.errors import RemoteError
from rp_raptor.rank.modes import BEGUN, ENDED
from rp_raptor.wire import payload
from rp_raptor.wire.rank_protocol import CANCEL, TIMEOUT


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """A manager with one rank of a DefaultWorker."""
    with a_manager(tmp_path) as manager:
        manager.start()
        yield manager


def test_calls_have_results(manager: Manager) -> None:
    """Values and exceptions come back, each for its own call."""
    def divide(a: float, b: float = 1) -> float:
        return a / b

    fid = manager.define(divide)
    calls = [payload.encode_call(fid, (n,), {'b': n % 3}) for n in range(300)]
    for n, id in enumerate(manager.give(calls)):
        if n % 3:
            assert manager.outcome(id) == n / (n % 3)
        else:
            with pytest.raises(ZeroDivisionError) as caught:
                manager.outcome(id)
            assert 'divide' in str(caught.value.__cause__)
            assert 'rp_raptor' not in str(caught.value.__cause__)
    assert manager.seconds > 0


def test_chunks_have_a_result_per_call(manager: Manager) -> None:
    """One that fails leaves the others alone."""
    def invert(n: int) -> float:
        return 1 / n

    chunk = payload.encode_chunk(manager.define(invert), [((n,), None) for n in (1, 0, 2)])
    (id,) = manager.give([chunk])
    manager.wait(lambda: id in manager.results)
    first, second, third = payload.outcomes_of(manager.results[id], 3)
    assert (payload.decode_result(first), payload.decode_result(third)) == (1, 0.5)
    with pytest.raises(ZeroDivisionError):
        payload.decode_result(second)


def test_what_a_function_does_to_the_rank(manager: Manager) -> None:
    """Exits are errors of the call; values that do not pickle, missing functions and broken calls are, too."""
    with pytest.raises(RemoteError, match='SystemExit'):
        manager.call(lambda: exit(3))
    with pytest.raises(SerializationError, match='generator'):
        manager.call(lambda: (n for n in range(3)))
    with pytest.raises(DeserializationError, match='never defined'):
        manager.outcome(manager.give([payload.encode_call(bytes(16))])[0])
    manager.send(0, ['define', bytes(16), b'nonsense'])
    with pytest.raises(DeserializationError, match='cannot restore'):
        manager.outcome(manager.give([payload.encode_call(bytes(16))])[0])
    with pytest.raises(DeserializationError, match='unknown'):
        manager.outcome(manager.give([b'X'])[0])
    assert manager.call(os.getpid) == manager.ready[0]


@pytest.mark.parametrize('kind', [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_arguments_that_raise_when_they_are_unpickled(manager: Manager, kind: type[BaseException]) -> None:
    class Raises:
        def __reduce__(self) -> tuple[Any, ...]:
            return _raise, (kind,)

    def _raise(kind: type[BaseException]) -> None:
        raise kind

    with pytest.raises(DeserializationError):
        manager.call(len, Raises())
    assert manager.call(len, [1]) == 1


@pytest.mark.parametrize('ends', ['return 1', 'raise ValueError', 'raise SystemExit(3)'])
def test_a_fork_of_a_function_ends_with_the_function(manager: Manager, ends: str) -> None:
    """In calls, chunks, asynchronous calls and described tasks: the result is that of the rank."""
    source = f'''
import os
def f(n=0):
    child = os.fork()
    if not child:
        {ends}
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
async def g():
    return f()
'''
    variables: dict[str, Any] = {'__name__': '__main__'}
    exec(source, variables)
    code = {'return 1': 0, 'raise ValueError': 1, 'raise SystemExit(3)': 3}[ends]
    f, g = variables['f'], variables['g']
    assert manager.call(f) == code
    (id,) = manager.give([payload.encode_chunk(manager.define(f), [((n,), None) for n in range(3)])])
    manager.wait(lambda: id in manager.results)
    assert list(map(payload.decode_result, payload.outcomes_of(manager.results[id], 3))) == [code] * 3
    assert manager.call(g) == code
    assert manager.task(mode='task.function', function=PythonTask(f))['return_value'] == code
    assert manager.task(mode='task.function', function=PythonTask(g))['return_value'] == code
    assert manager.call(os.getpid) == manager.ready[0]


def test_threads_and_processes_that_functions_leave_end_with_the_rank(manager: Manager) -> None:
    """The rank goes on, and ends without them, also if it fails."""
    def leave() -> int:
        import multiprocessing
        import threading

        threading.Thread(target=threading.Event().wait).start()
        process = multiprocessing.get_context('fork').Process(target=threading.Event().wait)
        process.start()
        return process.pid or 0

    left = manager.call(leave)
    assert manager.call(len, [1]) == 1
    manager.send(0, ['stop'])
    assert manager.processes[0].wait(20) == 0
    assert not os.path.exists(f'/proc/{left}')


def test_a_rank_that_fails_ends_in_spite_of_threads(manager: Manager) -> None:
    def leave() -> None:
        import threading

        from rp_raptor.rank.rank import Rank

        threading.Thread(target=threading.Event().wait).start()
        Rank._next = None   # type: ignore[assignment,method-assign]

    manager.give([payload.encode_call(manager.define(leave))])
    assert manager.processes[0].wait(20) == 1


@pytest.mark.parametrize('method', ['fork', 'spawn'])
def test_pools_run_functions_that_have_come_by_value(manager: Manager, method: str) -> None:
    variables: dict[str, Any] = {'__name__': '__main__', 'method': method}
    exec('''
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
K = 3
class Made:
    def __init__(self, n): self.n = n
    def more(self, by): return self.n + by
def make(n): return Made(n * K)
def f():
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        made = pool.map(make, [1, 2])
        more = pool.map(made[0].more, [1])
    with ProcessPoolExecutor(1, context) as executor:
        made += executor.map(make, [3])
    return [each.n for each in made], more, {type(each) for each in made} == {Made}
''', variables)
    assert manager.call(variables['f']) == ([3, 6, 9], [4], True)


def test_classes_are_those_of_the_call(manager: Manager) -> None:
    """Whatever other functions with the same class have come meanwhile, as calls or as tasks."""
    variables: dict[str, Any] = {'__name__': '__main__'}
    exec('class C:\n    k = 0\ndef f(): return C.k\ndef g(): return C.k', variables)
    calls, tasks = [], []
    for k, function in (1, 'f'), (2, 'g'), (3, 'f'):
        variables['C'].k = k
        calls.append((k, payload.encode_call(manager.define(variables[function]))))
        tasks.append((k, PythonTask(variables[function])))
    for k, call in calls * 2:
        assert manager.outcome(manager.give([call])[0]) == k
    for k, task in tasks * 2:
        assert manager.task(mode='task.function', function=task)['return_value'] == k


def test_large_results_come_as_files(manager: Manager, tmp_path: Path) -> None:
    """In the directory of the caller, which they leave when they are read, or in messages to another host."""
    values = tmp_path / 'values'
    values.mkdir()
    for where in place(), 'another host':
        fid = manager.define(np.arange, results=f'{where}\n{values}')
        (id,) = manager.give([payload.encode_call(fid, (500_000,))])
        manager.wait(partial(manager.results.__contains__, id))
        assert len(list(values.iterdir())) == (where == place())
        assert np.array_equal(manager.outcome(id), np.arange(500_000))
        assert list(values.iterdir()) == []
    values.rmdir()   # the caller leaves
    (id,) = manager.give([payload.encode_call(manager.define(np.arange, results=f'{place()}\n{values}'), (500_000,))])
    assert np.array_equal(manager.outcome(id), np.arange(500_000))


def test_calls_that_were_taken_back_are_not_run(manager: Manager, tmp_path: Path) -> None:
    """The rank says nothing of them, and goes on at the new position."""
    go = tmp_path / 'go'

    def wait(name: str) -> str:
        while not os.path.exists(name):
            time.sleep(0.001)
        return name

    fid = manager.define(wait)
    first, _, _ = manager.give([payload.encode_call(fid, (str(go),))] * 3)
    manager.wait(lambda: manager.cursors.position(0) == (1 << 32) + 1)
    assert manager.cursors.move(0, 2 << 32) == (1 << 32) + 1
    manager._positions[0] = 2 << 32
    (last,) = manager.give([payload.encode_call(fid, (str(go),))])
    go.touch()
    assert manager.outcome(last) == str(go)
    assert set(manager.results) == {first}


def test_results_do_not_wait_for_a_long_call(manager: Manager) -> None:
    """A signal that is not for the running call has the rank send what it has."""
    quick, slow = manager.define(abs), manager.define(time.sleep)
    done, last = manager.give([payload.encode_call(quick, (-1,)), payload.encode_call(slow, (60,))])
    manager.wait(lambda: manager.cursors.position(0) == (1 << 32) + 2)
    os.kill(manager.ready[0], signal.SIGUSR1)
    assert manager.outcome(done) == 1
    manager.interrupt(1, TIMEOUT)
    with pytest.raises(TimeoutError):
        manager.outcome(last)


@pytest.mark.parametrize(('reason', 'error'), [(TIMEOUT, TimeoutError), (CANCEL, CancelledError)])
def test_calls_are_interrupted(manager: Manager, reason: int, error: type[Exception]) -> None:
    """Each in its own way, chunks and described tasks as well, and programs are ended."""
    def sleep() -> None:
        time.sleep(60)

    fid = manager.define(sleep)
    calls = [payload.encode_call(fid), payload.encode_chunk(fid, [((), None)] * 2),
             manager.described(mode='task.eval', code='__import__("time").sleep(60)'),
             manager.described(mode='task.shell', command='sleep 60; echo')]
    for position, call in enumerate(calls):
        (id,) = manager.give([call])
        manager.wait(partial(lambda position: manager.cursors.position(0) == (1 << 32) + position + 1, position))
        manager.interrupt(position, reason)
        with pytest.raises(error):
            manager.outcome(id)
    assert _children(manager.ready[0]) == []


def test_a_signal_that_comes_late_does_no_harm(manager: Manager) -> None:
    """Only the call that it was meant for is interrupted."""
    fid = manager.define(time.sleep)
    manager.outcome(manager.give([payload.encode_call(fid, (0,))])[0])
    (id,) = manager.give([payload.encode_call(fid, (0.1,))])
    manager.wait(lambda: manager.cursors.position(0) == (1 << 32) + 2)
    for _ in range(20):
        manager.interrupt(0, TIMEOUT)
    assert manager.outcome(id) is None


def test_asynchronous_calls_go_on_side_by_side(manager: Manager, tmp_path: Path) -> None:
    """They are parked, other calls run meanwhile, and each has its result."""
    async def meet(name: str, go: str) -> str:
        import asyncio

        Path(name).touch()
        while not os.path.exists(go):
            await asyncio.sleep(0.001)
        return name

    fid = manager.define(meet)
    names, go = [str(tmp_path / f'{n}') for n in range(20)], tmp_path / 'go'
    ids = manager.give([payload.encode_call(fid, (name, str(go))) for name in names])
    manager.wait(lambda: len(manager.parked) == 20)
    assert all(map(os.path.exists, names))
    assert manager.call(abs, -3) == 3
    go.touch()
    assert [manager.outcome(id) for id in ids] == names


def test_asynchronous_calls_fail_and_are_given_up(manager: Manager) -> None:
    """An exception is a result; so is the reason for which one is given up."""
    async def fail() -> None:
        raise KeyError('x')

    async def wait() -> None:
        import asyncio

        await asyncio.sleep(60)

    with pytest.raises(KeyError):
        manager.call(fail)
    fid = manager.define(wait)
    ids = manager.give([payload.encode_call(fid)] * 3)
    manager.wait(lambda: manager.parked.issuperset(ids))
    manager.send(0, ['cancel', array('Q', ids[:1]), TIMEOUT])
    manager.send(0, ['cancel', array('Q', ids[1:2]), CANCEL])
    with pytest.raises(TimeoutError):
        manager.outcome(ids[0])
    with pytest.raises(CancelledError):
        manager.outcome(ids[1])


def test_chunks_of_asynchronous_calls(manager: Manager) -> None:
    """They run side by side; their result is one."""
    async def double(n: int) -> int:
        import asyncio

        await asyncio.sleep(0)
        return 2 * n if n else 1 // n

    (id,) = manager.give([payload.encode_chunk(manager.define(double), [((n,), None) for n in range(3)])])
    manager.wait(lambda: id in manager.results)
    outcomes = payload.outcomes_of(manager.results[id], 3)
    assert [payload.decode_result(outcome) for outcome in outcomes[1:]] == [2, 4]
    assert payload.is_error(outcomes[0])


def test_calls_that_have_devices_to_themselves(tmp_path: Path) -> None:
    """The variable names those of the call, and those of the rank otherwise."""
    def visible() -> str:
        return os.environ['CUDA_VISIBLE_DEVICES']

    async def later() -> str:
        return os.environ['CUDA_VISIBLE_DEVICES']

    with a_manager(tmp_path, device_variable='CUDA_VISIBLE_DEVICES', devices=[['0', '1']]) as manager:
        manager.start()
        assert manager.call(visible) == '0,1'
        for func in (visible, later):
            call = payload.encode_call(manager.define(func))
            assert manager.outcome(manager.give_alone(call, ['0', '1', '2'])) == '0,1,2'
        assert manager.call(visible) == '0,1'
        echo = manager.described(mode='task.shell', command='echo $CUDA_VISIBLE_DEVICES')
        assert manager.result(manager.give_alone(echo, ['3']))['stdout'] == '3\n'


def test_a_rank_ends_with_its_manager(tmp_path: Path) -> None:
    """Also in the middle of a call, and when it is started too late."""
    with a_manager(tmp_path) as manager:
        process = manager.start()
        manager.give([payload.encode_call(manager.define(time.sleep), (60,))])
        manager.wait(lambda: manager.cursors.position(0) == (1 << 32) + 1)
        manager._socket.close(linger=0)
        assert process.wait(30) == 1
        manager._socket = manager._context.socket(9)
        manager._identities.clear()


def test_an_idle_rank_sleeps(manager: Manager) -> None:
    """It uses no processor time while nothing happens, also with asynchronous calls under way."""
    def used() -> float:
        return time.process_time()

    async def wait() -> None:
        import asyncio

        await asyncio.sleep(60)

    manager.give([payload.encode_call(manager.define(wait))])
    manager.wait(lambda: manager.parked)
    before = manager.call(used)
    Path('/proc/self/stat').read_text()
    select_for_a_while(0.3)
    assert manager.call(used) - before < 0.1


def select_for_a_while(seconds: float) -> None:
    """Let time pass: that nothing happens meanwhile is what is tested."""
    import select

    select.select([], [], [], seconds)


@pytest.mark.parametrize(('text', 'name', 'reason'), [
    ('class W: pass', 'W', 'no class derived from Worker'),
    ('x = 1', 'W', 'has no class'),
    ('import nonexistent_module', 'W', 'nonexistent_module'),
    ('import radical.pilot as rp\nclass W(rp.raptor.DefaultWorker):\n    def __init__(self, cfg): 1 / 0', 'W',
     'ZeroDivisionError')])
def test_workers_that_cannot_be_made_say_why(tmp_path: Path, text: str, name: str, reason: str) -> None:
    """The reason comes to the manager."""
    text = text.replace('radical.pilot as rp', 'rp_raptor.rank.worker as w').replace('rp.raptor.', 'w.')
    with a_manager(tmp_path, file=worker_file(tmp_path, text), class_name=name) as manager:
        process = manager.start()
        manager.wait(lambda: manager.failed)
        assert reason in manager.failed
        assert process.wait(30) == 1


EVENTS = '''
from rp_raptor.rank.worker import DefaultWorker

class Recording(DefaultWorker):
    def work(self, uid):
        self._log.info('work')
        self._prof.prof('app_start', uid=uid)
        self._prof.prof('app_stop', uid=uid, msg='done')
        self._prof.flush()
        return self._rank

class Other(DefaultWorker):
    def __init__(self, cfg):
        super().__init__(cfg)
        self._prof = 'mine'

    def work(self, uid):
        return self._prof
'''


def test_they_are_compressed_as_all_profiles_are(tmp_path: Path) -> None:
    """And recorded with any detail."""
    with a_manager(tmp_path, ranks=1, file=worker_file(tmp_path, EVENTS), class_name='Recording') as manager:
        process = manager.start(0, environ={'RP_TASK_SANDBOX': str(tmp_path), 'RADICAL_PILOT_PROFILE': 'states,gzip'})
        call = manager.described(mode='task.method', method='work', args=['task.7'])
        assert manager.result(manager.give([call], rank=0)[0])['return_value'] == 0
        rows = gzip.decompress((tmp_path / 'raptor.0000.0000.0.prof.gz').read_bytes()).decode().splitlines()
        assert [row.split(',')[1] for row in rows[2:]] == [
            'trace_detail', 'task_run_start', 'rank_start', 'app_start', 'app_stop']
        manager.send(0, ['stop'])
        assert process.wait(30) == 0


def test_workers_record_events_of_their_own(tmp_path: Path) -> None:
    """In the profile of their rank, in the directory of the worker and not in that of a call."""
    there = tmp_path / 'there'
    there.mkdir()
    with a_manager(tmp_path, ranks=2, file=worker_file(tmp_path, EVENTS), class_name='Recording') as manager:
        processes = [manager.start(rank, environ={'RP_TASK_SANDBOX': str(there)}) for rank in (0, 1)]
        call = manager.described(mode='task.method', method='work', args=['task.7'])
        assert manager.result(manager.give([call], rank=1)[0])['return_value'] == 1
        file = there / 'raptor.0000.0000.1.prof'
        rows = [line.split(',')[1:] for line in file.read_text().splitlines()]
        assert [[row[0], row[3], row[5]] for row in rows if row[0].startswith('app_')] == [
            ['app_start', 'task.7', ''], ['app_stop', 'task.7', 'done']]
        for rank, process in enumerate(processes):
            manager.send(rank, ['stop'])
            assert process.wait(30) == 0
    assert ',END,' in file.read_text()


def test_a_rank_records_the_events_of_its_tasks(tmp_path: Path) -> None:
    with a_manager(tmp_path, file=worker_file(tmp_path, EVENTS), class_name='Recording') as manager:
        process = manager.start(environ={'RP_TASK_SANDBOX': str(tmp_path)})
        for _ in range(2):
            manager.task(mode='task.eval', code='1 / 0')
        manager.send(0, ['stop'])
        assert process.wait(30) == 0
    rows = [row for row in read_profile(tmp_path / 'raptor.0000.0000.0.prof') if row.uid]
    tasks = list(dict.fromkeys(row.uid for row in rows))
    assert len(tasks) == 2
    assert [(row.uid, row.event) for row in rows] == [(task, event) for task in tasks for event in (*BEGUN, *ENDED)]
    assert {row.comp for row in rows} == {'raptor_worker.raptor.0000.0000.0'}


def test_calls_of_all_kinds_are_recorded_before_a_rank_is_killed(tmp_path: Path) -> None:
    """An idle rank writes them by itself."""
    async def later(number: int) -> int:
        return 1 // number

    def sooner(number: int) -> int:
        return 1 // number

    with a_manager(tmp_path) as manager:
        process = manager.start(environ={'RP_TASK_SANDBOX': str(tmp_path)})
        waiting, function = manager.define(later), manager.define(sooner)
        calls = [payload.encode_call(waiting, (number,)) for number in (0, 1)]
        calls += [payload.encode_chunk(fid, [((number,), None) for number in (0, 1)]) for fid in (function, waiting)]
        calls += [payload.encode_call(function, (1,)), manager.described(mode='task.eval', code='1')]
        ids = manager.give(calls)
        manager.wait(lambda: manager.results.keys() >= set(ids))
        path = tmp_path / 'raptor.0000.0000.0.calls'
        manager.wait(lambda: len(read_file(path).what) == 8)
        process.kill()
        assert process.wait(30) == -signal.SIGKILL
    content = read_file(path)
    assert sorted(content.what.tolist()) == sorted([*[FUNCTION | ASYNC | outcome for outcome in (DONE, FAILED)] * 2,
                                                    FUNCTION | FAILED, FUNCTION, FUNCTION, TASK])
    assert not content.closed
    rows = [row.event for row in read_profile(tmp_path / 'raptor.0000.0000.0.prof')]
    assert rows == ['sync_abs', *BEGUN, *ENDED]


def test_a_rank_that_is_terminated_writes_its_traces(tmp_path: Path) -> None:
    with a_manager(tmp_path) as manager:
        process = manager.start(environ={'RP_TASK_SANDBOX': str(tmp_path)})
        manager.task(mode='task.eval', code='1')
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM
    rows = read_profile(tmp_path / 'raptor.0000.0000.0.prof')
    assert [row.event for row in rows] == ['sync_abs', *BEGUN, *ENDED, 'END']
    assert read_file(tmp_path / 'raptor.0000.0000.0.calls').closed


@pytest.mark.parametrize('detail', ['off', 'states'])
def test_less_detail_leaves_out_the_records_of_calls(tmp_path: Path, detail: str) -> None:
    with a_manager(tmp_path) as manager:
        process = manager.start(environ={'RP_TASK_SANDBOX': str(tmp_path),
                                         'RADICAL_PILOT_RAPTOR_WORKER_PROFILE': detail})
        assert manager.call(abs, -1) == 1
        manager.task(mode='task.eval', code='1')
        manager.send(0, ['stop'])
        assert process.wait(30) == 0
    assert list(tmp_path.glob('*.calls')) == []
    assert len(list(tmp_path.glob('*.prof'))) == (detail == 'states')


def test_workers_may_have_a_profile_of_another_kind(tmp_path: Path) -> None:
    with a_manager(tmp_path, file=worker_file(tmp_path, EVENTS), class_name='Other') as manager:
        process = manager.start()
        assert manager.task(mode='task.method', method='work', args=['task.7'])['return_value'] == 'mine'
        manager.send(0, ['stop'])
        assert process.wait(30) == 0


def test_own_script_as_rank(tmp_path: Path) -> None:
    """The older style: a script that makes its worker itself."""
    script = tmp_path / 'script.py'
    script.write_text('import sys\nfrom rp_raptor.rank.worker import DefaultWorker\n\n'
                      'class Own(DefaultWorker):\n    def own(self, n):\n        return n + len(sys.argv)\n\n'
                      'if __name__ == "__main__":\n    own = Own(sys.argv[1])\n    own.start()\n    own.join()\n')
    with a_manager(tmp_path) as manager:
        process = manager.start(command=['python3', str(script), 'raptor.0000'])
        assert manager.task(mode='task.method', method='own', args=[3])['return_value'] == 5
        manager.send(0, ['stop'])
        assert process.wait(30) == 0


def _children(pid: int) -> list[str]:
    return Path(f'/proc/{pid}/task/{pid}/children').read_text().split()




def test_ranks_are_bound_and_calls_with_the_cores_of_several_too(tmp_path: Path) -> None:
    """A rank without GPUs sees none."""
    own = sorted(os.sched_getaffinity(0))

    def where() -> tuple[list[int], str, str]:
        return (sorted(os.sched_getaffinity(0)), os.environ['CUDA_VISIBLE_DEVICES'], os.environ['ROCR_VISIBLE_DEVICES'])

    with a_manager(tmp_path, device_variable='ROCR_VISIBLE_DEVICES', devices=[[]], cpus=[own[-1:]]) as manager:
        manager.start()
        assert manager.call(where) == (own[-1:], '', '')
        call = payload.encode_call(manager.define(where))
        assert manager.outcome(manager.give_alone(call, ['a', 'b'], cpus=own)) == (own, '', 'a,b')
        assert manager.call(where) == (own[-1:], '', '')
