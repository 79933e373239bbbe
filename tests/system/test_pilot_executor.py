"""`rp.Executor` on real pilots: functions and programs, dependencies, shared cores, and the end."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from conftest import Run, processes_with, wait_until

import radical.pilot as rp
from rp_api.errors import SerializationError

LONG = 60.0

cloudpickle.register_pickle_by_value(sys.modules[__name__])   # workers cannot import this module


@pytest.fixture
def ex(shared: Run) -> Iterator[rp.Executor]:
    """An executor on the pilot with four cores and two GPUs that the tests of the module share."""
    with rp.Executor(pilot=shared.pilot) as executor:
        yield executor
    assert {task.state for task in shared.tmgr.get_tasks()} <= set(rp.FINAL)
    assert shared.pilot.state == rp.PMGR_ACTIVE


def add(*numbers: int) -> int:
    return sum(numbers)


def failing(text: str) -> None:
    raise KeyError(text)


def append(path: str, text: str, most: int = 0) -> int:
    """Append a line to a file; raise an error unless it has more than `most` lines then."""
    with open(path, 'a') as file:
        file.write(text + '\n')
    lines = len(Path(path).read_text().splitlines())
    if lines <= most:
        raise OSError(f'{lines} lines')
    return lines


def wait_for_file(path: str) -> str:
    while not os.path.exists(path):
        time.sleep(0.01)
    return path


def test_functions(ex: rp.Executor) -> None:
    assert ex.submit(pow, 2, 10).result(LONG) == 1024
    assert ex.submit(lambda *args, **kwargs: (args, kwargs), 1, fn=2, timeout=3).result(LONG) == ((1,), {
        'fn': 2, 'timeout': 3})
    error = ex.submit(failing, 'no key').exception(LONG)
    assert isinstance(error, KeyError)
    assert 'in failing' in str(error.__cause__)
    with pytest.raises(TypeError, match="'true' is not callable: run"):
        ex.submit('true')   # type: ignore[arg-type]


def test_programs(ex: rp.Executor, tmp_path: Path) -> None:
    future = ex.run('sh', '-c', 'echo out; echo err >&2; pwd', 7, tmp_path)
    result = future.result(LONG)
    assert result == rp.TaskResult(0, f'out\n{result.sandbox}\n', 'err\n', result.sandbox)
    assert future.task
    assert future.task.state == rp.DONE
    assert ex.run('printenv', 'COLOUR', environment={'COLOUR': 'red'}).result(LONG).stdout == 'red\n'
    value = 'p$5 $(echo x) `y` $HOME'
    assert ex.run('printenv', 'COLOUR', environment={'COLOUR': value}).result(LONG).stdout == f'{value}\n'
    assert ex.run('echo', '$RP_RANK', '`date`').result(LONG).stdout == '$RP_RANK `date`\n'
    assert ex.run('echo', '$RP_RANK', literal_arguments=False).result(LONG).stdout == '0\n'
    assert ex.run('seq', 10_000).result(LONG).stdout.split() == [str(number) for number in range(1, 10_001)]
    with pytest.raises(rp.TaskError) as caught:
        ex.run('sh', '-c', 'exit 3').result(LONG)
    assert (caught.value.kind, caught.value.exit_code) == ('exit', 3)
    assert ex.run('sh', '-c', 'exit 3', check=False).result(LONG).returncode == 3
    assert ex.run('sh', '-c', 'kill -9 $$', check=False).result(LONG).returncode == -9
    with pytest.raises(rp.TaskError, match='no/such/program'):
        ex.run('/no/such/program', check=False).result(LONG)
    with pytest.raises(rp.TaskTimeoutError):
        ex.options(timeout=0.2).run('sleep', 100).result(LONG)


def test_programs_in_the_working_directory(ex: rp.Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = Path('./program')   # without its './'
    program.write_text('#!/bin/sh\necho $0\n')
    program.chmod(0o700)
    for name in (program, './program'):
        assert ex.run(name).result(LONG).stdout == f'{tmp_path}/program\n'
    with pytest.raises(rp.TaskError, match='executable not found: program'):
        ex.run('program').result(LONG)


def test_dependencies(ex: rp.Executor) -> None:
    one, two = ex.submit(add, 1), ex.submit(add, 2)
    program = ex.run('echo', one, 'and', two)
    three = ex.submit(lambda found, program, more: (sum(found), program.stdout, more['key']), [one, two], program,
                      more={'key': two})
    assert three.result(LONG) == (3, '1 and 2\n', 2)
    assert ex.submit(add, program.task and 1, futures_of_a_thread()).result(LONG) == 8
    task = program.task
    assert ex.submit(lambda result: result.returncode, task).result(LONG) == 0


def futures_of_a_thread() -> futures.Future[int]:
    with futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(add, 7)


def test_futures_deep_inside_of_arguments_and_executors_are_refused(ex: rp.Executor) -> None:
    call, program = ex.submit(add, 1), ex.run('true')
    deferred = ex.submit(add, call)
    for future in (call, program, deferred):
        with pytest.raises(TypeError, match='a future cannot be pickled'):
            pickle.dumps(future)
        with pytest.raises(SerializationError, match='passes the values of futures that are arguments, or items'):
            ex.submit(len, [[future]]).result(LONG)
    with pytest.raises(SerializationError, match='functions that run on workers cannot use it'):
        ex.submit(lambda: ex.submit(add, 1)).result(LONG)
    assert deferred.result(LONG) == 1


VERSION, LOCK = 0, threading.Lock()


def version(_: object = None) -> int:
    return helper()


def helper() -> int:
    return VERSION


def locked(_: object = None) -> object:
    return LOCK


def test_functions_are_called_as_they_are_at_the_call(ex: rp.Executor, tmp_path: Path) -> None:
    """Through every door, however late the call is made."""
    global VERSION
    calls: list[futures.Future[int]] = []
    mapped, expected = [], [1, 1, 1, 2, 2, 2, 1, 1, 1]
    gate = ex.submit(wait_for_file, str(tmp_path / 'go'))
    for now in expected:
        VERSION = now
        calls += [ex.submit(version), ex.options(timeout=LONG).submit(version), ex.options(retries=1).submit(version),
                  ex.submit(version, gate), ex.options(retries=1).submit(again, str(tmp_path / f'file.{len(calls)}'))]
        mapped += [*ex.map(version, [0]), *ex.map(version, [0, 1], chunksize=2)]
    VERSION = 7
    (tmp_path / 'go').touch()
    assert [call.result(LONG) for call in calls] == [number for number in expected for _ in range(5)]
    assert mapped == [number for number in expected for _ in range(3)]


def again(path: str) -> int:
    """Fail at the first call."""
    if not os.path.exists(path):
        Path(path).touch()
        raise OSError
    return helper()


def test_what_cannot_be_sent_is_the_error_of_the_future(ex: rp.Executor) -> None:
    first = ex.submit(add, 1)
    for call in (ex.submit(locked), ex.submit(locked, first), ex.options(retries=3).submit(locked),
                 ex.options(retries=3).submit(add, LOCK), ex.submit(add, LOCK, first)):
        assert isinstance(call.exception(LONG), SerializationError)
    for chunksize in (1, 2):
        with pytest.raises(SerializationError, match=r'function locked: global variable LOCK \(_thread.lock\)'):
            next(ex.map(locked, [1, 2, 3], chunksize=chunksize))
    assert first.result(LONG) == 1


def test_failed_dependencies(ex: rp.Executor) -> None:
    bad, exits = ex.submit(failing, 'first'), ex.run('sh', '-c', 'exit 2')
    last = ex.submit(add, ex.submit(add, bad, 1), 2)
    error = last.exception(LONG)
    assert isinstance(error, rp.TaskError)
    assert error.kind == 'dependency'
    assert 'add: an argument has no value' in str(error)
    cause = error.__cause__
    assert isinstance(cause, rp.TaskError)
    assert isinstance(cause.__cause__, KeyError)
    assert 'exit' in str(ex.run('echo', exits).exception(LONG))


def test_cancelled_dependencies(ex: rp.Executor, tmp_path: Path) -> None:
    first = ex.submit(wait_for_file, str(tmp_path / 'never'))
    second = ex.run('echo', ex.submit(add, first))
    assert first.cancel()
    wait_until(second.cancelled)
    assert ex.submit(add, 1).result(LONG) == 1   # the rank is free again
    program = ex.run('sleep', 1000)
    wait_until(lambda: program.task)
    assert program.cancel()
    assert futures.wait([program], LONG).done == {program}
    wait_until(lambda: program.task and program.task.state == rp.CANCELED)


def test_a_chain(ex: rp.Executor) -> None:
    future = ex.submit(add, 0)
    for _ in range(2_000):
        future = ex.submit(add, future, 1)
    assert future.result(LONG) == 2_000


@pytest.mark.long
def test_a_chain_that_fails_or_is_cancelled(ex: rp.Executor, tmp_path: Path) -> None:
    first = last = ex.submit(wait_for_file, str(tmp_path / 'never'))
    bad = ex.submit(lambda path: failing(wait_for_file(path)), str(tmp_path / 'bad'))
    for _ in range(10_000):
        last = ex.submit(add, last, 1)
        bad = ex.submit(add, bad, 1)
    first.cancel()
    (tmp_path / 'bad').touch()
    assert isinstance(bad.exception(LONG), rp.TaskError)
    wait_until(last.cancelled)


def test_requirements(ex: rp.Executor, tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        ex.options(timeout=0.2).submit(time.sleep, 100).result(LONG)
    assert ex.options(retries=2).submit(append, str(tmp_path / 'lines'), 'line', most=2).result(LONG) == 3
    program = ex.options(retries=1).run('sh', '-c', f'echo >> {tmp_path}/attempts; exit 1')
    assert isinstance(program.exception(LONG), rp.TaskError)
    assert (tmp_path / 'attempts').read_text() == '\n\n'
    with pytest.raises(OSError, match='2 lines'):
        ex.options(retries=1).submit(append, str(tmp_path / 'more'), 'line', most=2).result(LONG)
    with pytest.raises(ValueError, match='ranks is 0'):
        ex.options(ranks=0)
    with pytest.raises(ValueError, match='a call needs 5 ranks'):
        ex.options(cores_per_rank=5).submit(add, 1)


def test_calls_with_gpus(ex: rp.Executor) -> None:
    one = ex.options(gpus_per_rank=1).submit(lambda: os.environ['CUDA_VISIBLE_DEVICES'])
    assert one.result(LONG) in ('0', '1')


def test_map(ex: rp.Executor) -> None:
    assert list(ex.map(add, range(10), range(10))) == list(range(0, 20, 2))
    assert list(ex.map(add, range(10), range(9), chunksize=4)) == list(range(0, 18, 2))
    assert list(ex.map(add, [ex.submit(add, 1), 2], [3, 4], chunksize=2)) == [4, 6]
    assert list(ex.map(lambda n: n + 1, [1, 2], chunksize=2)) == [2, 3]
    taken: list[int] = []

    def endless() -> Iterator[int]:
        while True:
            taken.append(0)
            yield 0

    results = ex.map(add, endless(), buffersize=5)
    assert len(taken) == 5
    assert [next(results) for _ in range(3)] == [0, 0, 0]
    assert len(taken) == 8
    for options, error in (({'buffersize': 0}, ValueError), ({'chunksize': 0}, ValueError),
                           ({'buffersize': 'x'}, TypeError)):
        with pytest.raises(error, match=next(iter(options))):
            ex.map(add, [1], **options)


def test_asyncio(ex: rp.Executor) -> None:
    async def campaign() -> Any:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(asyncio.wrap_future(ex.submit(add, 1)), loop.run_in_executor(ex, add, 2),
                                    asyncio.wrap_future(ex.run('echo', 3)))

    one, two, three = asyncio.run(campaign())
    assert (one, two, three.stdout) == (1, 2, '3\n')


def test_programs_that_need_the_cores_of_workers(ex: rp.Executor, tmp_path: Path) -> None:
    """They wait for the calls that run, and other calls wait for them."""
    running = ex.submit(wait_for_file, str(tmp_path / 'go'))
    wide = ex.run('echo', 'wide', cores_per_rank=4)
    (tmp_path / 'go').touch()
    assert wide.result(LONG).stdout == 'wide\n'
    assert running.result(LONG)
    assert ex.submit(add, 1).result(LONG) == 1
    mixed = [ex.submit(add, number) if number % 3 else ex.run('echo', number, cores_per_rank=1 + number % 4)
             for number in range(60)]
    assert len(futures.wait(mixed, LONG).done) == 60
    assert not any(future.exception() for future in mixed)


def test_programs_beside_workers(ex: rp.Executor, tmp_path: Path) -> None:
    ex.run('true', cores_per_rank=4).result(LONG)   # no worker is left
    held = [ex.run('sh', '-c', f'while [ ! -e {tmp_path}/end ]; do sleep 0.05; done') for _ in range(2)]
    wait_until(lambda: all(future.task and future.task.state == rp.AGENT_EXECUTING
                           for future in held))
    assert ex.submit(add, 2).result(LONG) == 2
    (tmp_path / 'end').touch()
    futures.wait(held, LONG)


def test_a_pilot_of_one_core(base: Path) -> None:
    with rp.Executor(cores=1) as ex:
        future = ex.submit(add, 1)
        assert ex.run('echo', future).result(LONG).stdout == '1\n'
        assert ex.submit(add, future, 2).result(LONG) == 3
        with pytest.raises(ValueError, match='a call needs 2 ranks'):
            ex.options(ranks=2).submit(add, 1)


def test_the_end_waits_for_everything(base: Path) -> None:
    with rp.Executor(cores=2) as ex:
        first = ex.submit(time.sleep, 0.2)
        later = ex.submit(lambda _: 'later', first)
        program = ex.run('echo', later)
    assert program.result(0).stdout == 'later\n'
    with pytest.raises(RuntimeError, match='cannot schedule new futures after shutdown'):
        ex.submit(add, 1)
    with pytest.raises(RuntimeError, match='cannot schedule new futures after shutdown'):
        ex.run('true')
    assert not processes_with(str(base))


def test_nothing_starts_without_work(base: Path) -> None:
    with rp.Executor(cores=2) as ex:
        assert repr(ex.options(ranks=2, timeout=3)) == '<rp.Executor on local.exact with ranks=2, timeout=3>'
    assert repr(ex) == '<rp.Executor on local.exact (shut down)>'
    assert list(base.iterdir()) == []


def test_the_end_of_pending_work(base: Path) -> None:
    ex = rp.Executor(cores=1)
    running = ex.submit(wait_for_file, str(base / 'go'))
    pending = [ex.submit(add, n) for n in range(100)]
    waiting = ex.run('echo', running)
    wait_until((base / 'go').parent.exists)
    assert ex.options(timeout=1).submit(add, 1)
    threading.Timer(0.5, (base / 'go').touch).start()
    ex.shutdown(cancel_futures=True)
    assert waiting.cancelled()
    assert all(future.cancelled() for future in pending)
    assert running.done()


def test_a_lost_pilot_breaks_the_executor(base: Path) -> None:
    with rp.Session(cfg={'base': str(base)}) as session, rp.Executor(cores=2, session=session) as ex:
        program, call = ex.run('sleep', 1000), ex.submit(time.sleep, 1000)
        wait_until(lambda: program.task)
        pmgr = session.get_pilot_managers()[0]
        pmgr.cancel_pilots()
        with pytest.raises((rp.BrokenPilotExecutor, futures.CancelledError)):   # the second one if the agent was faster
            program.result(LONG)
        assert isinstance(call.exception(LONG), rp.BrokenPilotExecutor)
        with pytest.raises(futures.BrokenExecutor, match='the executor is broken'):
            ex.submit(add, 1)
        with pytest.raises(futures.BrokenExecutor):
            ex.run('true')


def test_a_session_that_fails_breaks_the_executor(base: Path) -> None:
    with rp.Session(cfg={'base': str(base)}) as session, rp.Executor(cores=2, session=session) as ex:
        program, call = ex.run('sleep', 1000), ex.submit(time.sleep, 1000)
        wait_until(lambda: program.task)
        session._owner.engine.loop.call_soon(lambda: failing('a defect'))
        with pytest.raises(RuntimeError, match='the session cannot go on'):   # its task may be the first to know
            program.result(LONG)
        with pytest.raises(rp.BrokenPilotExecutor, match='the session cannot go on'):
            call.result(LONG)
        with pytest.raises(rp.BrokenPilotExecutor, match='the session cannot go on'):
            ex.submit(add, 1)


def test_a_killed_worker_is_the_reason_why_an_executor_is_broken(base: Path) -> None:
    with rp.Executor(cores=1) as ex:
        assert ex.submit(add, 1).result(LONG) == 1
        worker = ex.submit(os.getppid).result(LONG)
        call = ex.submit(time.sleep, 1000)
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(rp.BrokenPilotExecutor, match=r'raptor\.0000\.0000 is FAILED: killed by signal 9'):
            call.result(LONG)


def test_a_pilot_that_has_ended_is_refused(base: Path) -> None:
    with rp.Session(cfg={'base': str(base)}) as session:
        pilot = rp.PilotManager(session).submit_pilots(
            rp.PilotDescription(resource='local.exact', cores=1, runtime=10))
        pilot.cancel()
        pilot.wait()
        with rp.Executor(pilot=pilot) as ex:
            for _ in range(2):
                with pytest.raises(rp.BrokenPilotExecutor, match=f'{pilot.uid} is CANCELED'):
                    ex.run('true')
                with pytest.raises(rp.BrokenPilotExecutor, match=f'{pilot.uid} is CANCELED'):
                    ex.submit(add, 1)


def test_a_program_requested_as_the_pilot_ends_fails(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with rp.Executor(cores=1) as ex:
        assert ex.run('true').result(LONG).returncode == 0
        manager = ex._manager

        def open_and_break() -> None:
            manager.fail('a test')

        monkeypatch.setattr(manager, 'open', open_and_break)
        with pytest.raises(rp.BrokenPilotExecutor, match='a test'):
            ex.run('true').result(LONG)


def test_an_exception_in_the_body(base: Path) -> None:
    made = []

    def body() -> None:
        with rp.Executor(cores=1) as ex:
            made.append(ex.submit(add, 1))
            raise KeyError

    with pytest.raises(KeyError):
        body()
    assert made[0].result(0) == 1
    assert not processes_with(str(base))


def test_ctrl_c_in_the_body(base: Path) -> None:
    made: list[futures.Future[Any]] = []

    def body() -> None:
        with rp.Executor(cores=1) as ex:
            made.extend([ex.submit(time.sleep, 1000), ex.run('sleep', 1000)])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        body()
    assert all(future.cancelled() for future in made)
    assert not processes_with(str(base))


END = '''
import sys, time, signal
import radical.pilot as rp
from rp_api.errors import SerializationError
ex = rp.Executor(cores=1)
call = ex.submit(lambda: time.sleep(0.3) or 7)
program = ex.run('sh', '-c', 'echo program > {base}/out', call)
call.add_done_callback(lambda _: print('apple'))
print('made', flush=True)
if {ended}:
    ex.shutdown(wait=False)
'''


@pytest.mark.parametrize('ended', [False, True])
def test_the_end_of_the_interpreter_waits(base: Path, ended: bool) -> None:
    done = subprocess.run([sys.executable, '-c', END.format(base=base, ended=ended)], capture_output=True, text=True,
                          timeout=LONG)
    assert (done.stdout, done.stderr, done.returncode) == ('made\napple\n', '', 0)
    assert (base / 'out').read_text() == 'program\n'
    assert not processes_with(str(base))


def test_ctrl_c_at_the_end_of_the_interpreter(base: Path) -> None:
    text = END.replace('0.3', '1000').format(base=base, ended=False)
    process = subprocess.Popen([sys.executable, '-c', text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == 'made\n'
    process.send_signal(signal.SIGINT)
    assert 'KeyboardInterrupt' in process.communicate(timeout=LONG)[1]
    wait_until(lambda: not processes_with(str(base)))


def test_a_dropped_executor_ends(base: Path) -> None:
    ex = rp.Executor(cores=1)
    future = ex.submit(add, 1)
    del ex
    assert future.result(LONG) == 1
    wait_until(lambda: not processes_with(str(base)))


def test_an_initializer_runs_once_on_each_rank(base: Path) -> None:
    with rp.Executor(cores=2, initializer=append, initargs=(str(base / 'ranks'), 'started')) as ex:
        found = [ex.submit(lambda n: (n, Path('started').exists()), n) for n in range(20)]
        assert [future.result(LONG)[0] for future in found] == list(range(20))
        assert len((base / 'ranks').read_text().splitlines()) <= 2


MODEL = '''
import radical.pilot as rp
from rp_api.errors import SerializationError
model = None

def load(name):
    global model
    model = name

def predict(n):
    return f'{model} {n}'

if __name__ == '__main__':
    with rp.Executor(cores=1, initializer=load, initargs=('model.pt',)) as ex:
        print(ex.submit(predict, 1).result(), *ex.map(predict, [2, 3], chunksize=2), sep=', ')
'''


def test_functions_of_a_script_find_what_its_initializer_has_loaded(base: Path) -> None:
    done = subprocess.run([sys.executable, '-c', MODEL], capture_output=True, text=True, timeout=LONG)
    assert (done.stdout, done.stderr) == ('model.pt 1, model.pt 2, model.pt 3\n', '')


def test_a_failing_initializer_breaks_the_executor(base: Path) -> None:
    with rp.Executor(cores=1, initializer=failing, initargs=('no model',)) as ex:
        made = [ex.submit(add, n) for n in range(3)]
        for future in made:
            with pytest.raises(rp.BrokenPilotExecutor, match='no model'):
                future.result(LONG)
        with pytest.raises(rp.BrokenPilotExecutor, match='the initializer has failed'):
            ex.submit(add, 1)
    with pytest.raises(TypeError, match='initializer is 3'):
        rp.Executor(initializer=3)   # type: ignore[arg-type]


def test_sizes_beside_a_pilot_are_refused(shared: Run) -> None:
    with pytest.raises(TypeError, match='pilot is given, and so is cores, runtime'):
        rp.Executor(2, pilot=shared.pilot, runtime='1h')
    with pytest.raises(TypeError, match='pilot is 3'):
        rp.Executor(pilot=3)   # type: ignore[arg-type]
    with pytest.raises(TypeError, match='session is 3'):
        rp.Executor(session=3)   # type: ignore[arg-type]


def test_mpi_functions_and_programs(ex: rp.Executor) -> None:
    """Workers without MPI are replaced when the first call needs it; both kinds of calls run on the new ones."""
    assert ex.submit(add, 1).result(LONG) == 1
    wide = ex.options(ranks=2)
    futures_of_both = [wide.submit(lambda comm, n: comm.allreduce(n) + comm.rank, n) if n % 2 else ex.submit(add, n)
                       for n in range(10)]
    assert [future.result(LONG) for future in futures_of_both] == [
        [2 * n, 2 * n + 1] if n % 2 else n for n in range(10)]
    assert sorted(wide.run('printenv', 'RP_RANK').result(LONG).stdout.split()) == ['0', '1']
    assert wide.submit(lambda comm: comm.size).result(LONG) == [2, 2]


def test_an_initializer_of_mpi_functions(base: Path) -> None:
    with rp.Executor(cores=2, initializer=append, initargs=(str(base / 'ranks'), 'started', -1)) as ex:
        assert ex.options(ranks=2).submit(lambda comm, n: comm.rank + n, 1).result(LONG) == [1, 2]


def meet(directory: str, number: int) -> int:
    """Return when that many calls run at the same time."""
    Path(directory, str(os.getpid())).touch()
    while len(os.listdir(directory)) < number:
        time.sleep(0.01)
    return number


def test_functions_get_the_cores_that_programs_leave(ex: rp.Executor, tmp_path: Path) -> None:
    meeting = tmp_path / 'meeting'
    meeting.mkdir()
    program = ex.run('sh', '-c', f'while [ ! -e {tmp_path}/end ]; do sleep 0.05; done')
    assert ex.submit(add, 1).result(LONG) == 1   # on two cores
    calls = [ex.submit(meet, str(meeting), 4) for _ in range(4)]
    (tmp_path / 'end').touch()
    assert [call.result(LONG) for call in calls] == [4] * 4
    assert program.done()


@pytest.mark.parametrize('endless', ['calls', 'programs'])
def test_neither_calls_nor_programs_starve(ex: rp.Executor, monkeypatch: pytest.MonkeyPatch, endless: str) -> None:
    """Both need all cores, and one of them never ends."""
    monkeypatch.setattr('rp_client.executor.manager.TURN_S', 0.2)
    over = threading.Event()
    first = threading.Event()

    def call() -> futures.Future[Any]:
        return ex.submit(time.sleep, 0.01)

    def program() -> futures.Future[Any]:
        return ex.run('true', ranks=1, cores_per_rank=4)

    def again(_: object = None) -> None:
        if not over.is_set():
            make_endless().add_done_callback(again)
            first.set()

    make_endless, make_other = (call, program) if endless == 'calls' else (program, call)
    for _ in range(8):
        again()
    try:
        for _ in range(3):
            assert make_other().exception(LONG) is None
    finally:
        over.set()


def test_a_pilot_of_two_nodes(base: Path) -> None:
    with rp.Executor(nodes=2, resource='local.localhost') as ex:
        assert ex._max_workers == 16
        mixed = [ex.submit(add, n) if n % 2 else ex.run('echo', n, cores_per_rank=n % 8 + 1) for n in range(20)]
        assert not any(future.exception(LONG) for future in mixed)
        error = ex.run('true', cores_per_rank=9).exception(LONG)
        assert isinstance(error, rp.TaskError)
        assert ex.submit(add, 1).result(LONG) == 1
