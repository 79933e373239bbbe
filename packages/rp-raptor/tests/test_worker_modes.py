"""Described tasks of all modes, run by workers of all kinds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rank_support import Manager, a_manager, worker_file

from rp_api.description.python_task import PythonTask
from rp_api.values import from_plain
from rp_api.wire import codec
from rp_raptor.rank.capture import MAX_STREAM_CHARS
from rp_raptor.rank.worker import DefaultWorker, MPIWorker, Worker
from rp_raptor.wire import payload

WORKER = '''
import os, sys
from rp_raptor.rank.worker import DefaultWorker

counter = 0

def add(a, b=1):
    print('adding', a, b)
    print('carefully', file=sys.stderr)
    return a + b

async def add_later(a, b=1):
    import asyncio
    await asyncio.sleep(0)
    print('adding later')
    return a + b + int(os.environ.get('MORE', 0))

async def add_loudly(a):
    return add(a)

class Mine(DefaultWorker):
    def __init__(self, raptor_id):
        super().__init__(raptor_id)
        self.register_mode('foo', self._dispatch_foo)
        self.register_mode('bar', self._dispatch_bar)
        self.register_mode('broken', lambda task: 3)
    def scale(self, x):
        return 2 * x
    def _dispatch_foo(self, task):
        return 'out', 'err', 7, task['description']['kwargs'], ('no luck', 'because')
    async def _dispatch_bar(self, task):
        out, err, code, value, exc = await super()._dispatch_func(task)
        return out, err, code, [value], exc
    def ask(self, n):
        return self.get_master().run_task({'mode': 'task.function', 'function': 'f', 'args': [n]})
'''


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Manager]:
    """A manager with one rank of the worker above."""
    with a_manager(tmp_path, file=worker_file(tmp_path, WORKER), class_name='Mine') as manager:
        manager.start()
        yield manager


def test_functions_by_name(mine: Manager) -> None:
    """Functions of the module and methods of the class, with what they have put out."""
    done = {'stdout': 'adding 1 2\n', 'stderr': 'carefully\n', 'exit_code': 0, 'return_value': 3,
            'target_state': 'DONE'}
    assert mine.task(mode='task.function', function='add', args=[1], kwargs={'b': 2}) == done
    assert mine.task(mode='task.function', function='scale', args=[4])['return_value'] == 8
    assert mine.task(mode='task.method', method='scale', args=[4])['return_value'] == 8
    assert mine.task(mode='task.function', function='hello', args=['you'])['stdout'] == 'hello you\n'
    for description, reason in (
            ({'mode': 'task.function', 'function': 'nope'}, "no function 'nope'"),
            ({'mode': 'task.method', 'method': 'nope'}, "no method 'nope'"),
            ({'mode': 'nope'}, "mode 'nope' is unknown"),
            ({'mode': 'task.function', 'function': 'add', 'args': ['x']}, 'TypeError')):
        failed = mine.task(**description)
        assert (failed['exit_code'], failed['target_state']) == (1, 'FAILED')
        assert reason in failed['exception']
    assert 'in add' in failed['exception_detail']
    assert 'rp_raptor' not in failed['exception_detail']
    assert failed['stdout'] == 'adding x 1\n'


def test_python_tasks(mine: Manager) -> None:
    """Lambdas, closures and asynchronous functions travel with their arguments."""
    factor = 3

    async def later(x: int) -> int:
        import asyncio

        await asyncio.sleep(0)
        print('later')
        return factor * x

    for func in (later, lambda x: print('later') or factor * x):
        result = mine.task(mode='task.function', function=PythonTask(func, (2,)))
        assert (result['return_value'], result['stdout']) == (6, 'later\n')
    no_call = PythonTask(abs, (1,))
    assert mine.task(mode='task.function', function=no_call)['return_value'] == 1
    from rp_api.functions import serialize_bson
    failed = mine.task(mode='task.function', function=serialize_bson({'x': 1}))
    assert 'not made by PythonTask' in failed['exception']


def test_asynchronous_functions_by_name(mine: Manager) -> None:
    """Those with an environment of their own take turns."""
    calls = [mine.described(mode='task.function', function='add_later', args=[n],
                            environment={'MORE': str(100 * n)} if n % 2 else {}) for n in range(10)]
    results = [mine.result(id) for id in mine.give(calls)]
    assert [result['return_value'] for result in results] == [101 * n + 1 if n % 2 else n + 1 for n in range(10)]
    assert {result['stdout'] for result in results} == {'adding later\n'}


def test_code(mine: Manager) -> None:
    """Expressions and statements see the names of the worker's module."""
    assert mine.task(mode='task.eval', code=' add(1, b=4) ')['return_value'] == 5
    code = 'global counter\ncounter += 1\nif counter:\n    print("""a\n b""")\n    return math.floor(counter + 0.5)'
    result = mine.task(mode='task.exec', code=code, pre_exec=['import math'])
    assert (result['return_value'], result['stdout']) == (1, 'a\n b\n')
    assert mine.task(mode='task.eval', code='counter')['return_value'] == 1
    assert mine.task(mode='task.exec', code='')['target_state'] == 'DONE'
    assert 'SyntaxError' in mine.task(mode='task.eval', code='x =')['exception']
    assert 'SyntaxError' in mine.task(mode='task.exec', code='x =')['exception']
    assert mine.task(mode='task.exec', code='import sys\nsys.exit(4)')['exit_code'] == 4


def test_programs(mine: Manager, tmp_path: Path) -> None:
    """Programs and shell commands run in their sandbox, with what the task has in its environment."""
    result = mine.task(mode='task.proc', executable='/bin/sh', environment={'A': 'b'},
                       arguments=['-c', 'echo "$A $RP_TASK_ID $RP_RANK/$RP_RANKS"; pwd; echo no >&2; exit 3'])
    sandbox = f'{tmp_path}/task.000000'
    assert result == {'stdout': f'b task.000000 0/1\n{sandbox}\n', 'stderr': 'no\n', 'exit_code': 3,
                      'target_state': 'FAILED'}
    words = ['%s|', 'a b', '"', '\\']
    assert mine.task(mode='task.proc', executable='printf', arguments=words)['stdout'] == 'a b|"|\\|'
    assert mine.task(mode='task.proc', executable='printf', arguments=['%s|', '$RP_RANKS"\\'])['stdout'] == '1"\\|'
    shell = mine.task(mode='task.shell', command='echo $((1 + 2)); echo 4 > file', stdout='my.out')
    assert (shell['stdout'], shell['exit_code']) == ('3\n', 0)
    assert Path(tmp_path, 'task.000003', 'my.out').read_text() == '3\n'
    assert Path(tmp_path, 'task.000003', 'file').read_text() == '4\n'
    assert mine.task(mode='task.proc', executable='printf', arguments=['%s|', '$RP_RANKS"\\'],
                     literal_arguments=True)['stdout'] == '$RP_RANKS"\\|'
    missing = mine.task(mode='task.proc', executable='nonexistent-program')
    assert (missing['exit_code'], missing['target_state']) == (1, 'FAILED')
    assert 'nonexistent-program' in missing['exception']
    assert mine.task(mode='task.shell', command='kill -9 $$')['exit_code'] == -9
    command = f'head -c {3 * MAX_STREAM_CHARS} /dev/zero | tr "\\0" x; echo end'
    long = mine.task(mode='task.shell', command=command)['stdout']
    assert (len(long), long[-4:]) == (MAX_STREAM_CHARS, 'end\n')


@pytest.mark.parametrize('description', [
    {'mode': 'task.function', 'function': 'add', 'args': [1]},
    {'mode': 'task.function', 'function': 'add_loudly', 'args': [1]},
    {'mode': 'task.eval', 'code': 'add(1)'},
    {'mode': 'task.exec', 'code': 'return add(1)'},
    {'mode': 'task.shell', 'command': 'echo adding 1 1; echo carefully >&2'},
    {'mode': 'task.proc', 'executable': '/bin/sh', 'arguments': ['-c', 'echo adding 1 1; echo carefully >&2']}])
def test_output_goes_to_files_that_are_named(mine: Manager, tmp_path: Path, description: dict[str, Any]) -> None:
    elsewhere = tmp_path / 'task.err'
    result = mine.task(**description, stdout='my.out', stderr=str(elsewhere))
    assert (result['stdout'], result['stderr']) == ('adding 1 1\n', 'carefully\n')
    assert (tmp_path / 'task.000000' / 'my.out').read_text() == 'adding 1 1\n'
    assert elsewhere.read_text() == 'carefully\n'


def test_all_output_goes_to_the_file(mine: Manager, tmp_path: Path) -> None:
    code = f'print("x" * {3 * MAX_STREAM_CHARS})\nraise ValueError("no")'
    result = mine.task(mode='task.exec', code=code, stdout='my.out')
    assert (len(result['stdout']), result['exception']) == (MAX_STREAM_CHARS, "ValueError('no')")
    assert (tmp_path / 'task.000000' / 'my.out').stat().st_size == 3 * MAX_STREAM_CHARS + 1
    failed = mine.task(mode='task.eval', code='1', stdout='/dev/null/none')
    assert 'cannot write /dev/null/none' in failed['exception']


def test_environment_and_directory(mine: Manager, tmp_path: Path) -> None:
    """They are those of the call, and as before afterwards."""
    code = 'import os\nreturn [os.environ.get("A"), os.getcwd(), os.environ["RP_TASK_ID"]]'
    own = mine.task(mode='task.exec', code=code, environment={'A': 'b'}, sandbox='task.000000')
    assert own['return_value'] == ['b', f'{tmp_path}/task.000000', 'task.000000']
    assert mine.task(mode='task.exec', code=code)['return_value'] == [None, str(tmp_path), 'task.000001']
    assert not (tmp_path / 'task.000001').exists()


def test_dispatchers_of_the_worker(mine: Manager) -> None:
    """Modes can be added; a dispatcher can be a coroutine and await that of the base, and a broken one is told."""
    assert mine.task(mode='foo', kwargs={'a': 1}) == {
        'stdout': 'out', 'stderr': 'err', 'exit_code': 7, 'return_value': {'a': 1}, 'exception': 'no luck',
        'exception_detail': 'because', 'target_state': 'FAILED'}
    assert mine.task(mode='bar', function='add', args=[1])['return_value'] == [2]
    assert 'a dispatcher must return' in mine.task(mode='broken')['exception']


def test_values_that_are_no_plain_data(mine: Manager, tmp_path: Path) -> None:
    """They are restored where they are read; large ones are in a file of the pilot's sandbox until then."""
    small = mine.task(mode='task.eval', code='{1, 2}')
    assert from_plain(small['return_value']) == {1, 2}
    large = mine.task(mode='task.function', function=PythonTask(lambda: np.arange(400_000)))
    assert list(large['return_value']) == ['__rp_file__']
    assert np.array_equal(from_plain(large['return_value']), np.arange(400_000))
    assert len(list(tmp_path.glob('*.value'))) == 1
    failed = mine.task(mode='task.eval', code='(x for x in [1])')
    assert failed['target_state'] == 'FAILED'
    assert 'cannot serialise generator' in failed['exception']


def test_tasks_of_tasks(mine: Manager) -> None:
    """A call has a task run elsewhere, while others come; it ends with the worker if there is no answer."""
    (asking,) = mine.give([mine.described(mode='task.method', method='ask', args=[3])])
    mine.wait(lambda: mine.asked)
    number, description = mine.asked.pop()
    assert codec.unpack(description) == {'mode': 'task.function', 'function': 'f', 'args': [3]}
    (other,) = mine.give([mine.described(mode='task.eval', code='5')])
    mine.send(0, ['ran', number + 7, payload.encode_result({})])
    mine.send(0, ['ran', number, payload.encode_result({'return_value': 9, 'exit_code': 0})])
    assert mine.result(asking)['return_value'] == {
        'description': {'mode': 'task.function', 'function': 'f', 'args': [3]}, 'return_value': 9, 'exit_code': 0}
    assert mine.result(other)['return_value'] == 5
    (asking,) = mine.give([mine.described(mode='task.method', method='ask', args=[4])])
    mine.wait(lambda: mine.asked)
    mine.send(0, ['stop'])
    assert 'the worker ends' in mine.result(asking)['exception']


def test_workers_of_the_older_style(tmp_path: Path) -> None:
    """Overridden dispatchers are plain functions, and the exception is passed on as it is."""
    text = '''
import rp_raptor.rank.worker as w

class Helper:
    def _dispatch_func(self, task):
        try:
            return None, None, 0, str(eval(task['description']['function'])), (None, None)
        except Exception as error:
            return None, None, 1, None, ('encoded ' + str(error), None)

class Odd(w.DefaultWorker):
    def _dispatch_func(self, task):
        return Helper()._dispatch_func(task)

    def _dispatch_proc(self, task):
        out, err, ret, val, exc = super()._dispatch_proc(task)
        return out, err, ret, 'proc', exc
'''
    with a_manager(tmp_path, file=worker_file(tmp_path, text), class_name='Odd') as manager:
        manager.start()
        assert manager.task(mode='task.function', function='1 + 1') == {
            'exit_code': 0, 'return_value': '2', 'target_state': 'DONE'}
        assert manager.task(mode='task.function', function='1 / 0')['exception'] == 'encoded division by zero'
        assert manager.task(mode='task.proc', executable='true')['return_value'] == 'proc'


def test_modes_are_registered_once() -> None:
    """A mode has one dispatcher, and it can be called."""
    worker = DefaultWorker('raptor.0000')
    assert worker.get_dispatcher('task.function') == worker._dispatch_func
    worker.register_mode('new', print)
    assert worker.get_dispatcher('new') is print
    with pytest.raises(ValueError, match="'new' is registered already"):
        worker.register_mode('new', print)
    with pytest.raises(ValueError, match='cannot be called'):
        worker.register_mode('other', 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='is unknown'):
        worker.get_dispatcher('older')
    with pytest.raises(RuntimeError, match='was not started'):
        worker.join()


def test_communicators_have_their_place() -> None:
    """First for named functions; where it was left out for others."""
    worker = MPIWorker('raptor.0000')
    worker._rp_host.comm = 'C'

    def run(function: str | bytes, **description: Any) -> Any:
        return worker._dispatch_func({'description': {'function': function, 'args': [], 'kwargs': {}, **description}})

    worker._rp_namespace['echo'] = lambda *args, **kwargs: (args, kwargs)
    assert run('echo', args=[1], kwargs={'a': 2}).value == (('C', 1), {'a': 2})
    echo = worker._rp_namespace['echo']
    assert run(PythonTask(echo, (1,), {'comm': None})).value == ((1,), {'comm': 'C'})
    assert run(PythonTask(echo, (None, 2), {})).value == (('C', 2), {})
    with pytest.raises(RuntimeError, match='a place for the communicator'):
        run(PythonTask(echo, (1,), {}))
    packed = PythonTask(echo, (None, 2), {})
    assert run(packed.function, args=packed.arguments).value == (('C', 2), {})


@pytest.mark.parametrize('mode', ['task.eval', 'task.exec'])
def test_code_knows_modules_that_applications_expect(mine: Manager, mode: str) -> None:
    code = '[os.environ["RP_TASK_ID"], bool(sys.path), time.time() > 0]'
    result = mine.task(mode=mode, code=f'return {code}' if mode == 'task.exec' else code)
    assert result['return_value'] == ['task.000000', True, True]


def test_outcomes_can_be_awaited() -> None:
    """For dispatchers that expect a coroutine from their base class."""
    worker = Worker(None, 0, 'raptor.0000')
    outcome = worker._dispatch_eval({'description': {'code': '1 + 2'}})

    async def wait() -> Any:
        return await outcome
    assert asyncio.run(wait()) is outcome
    assert outcome.value == 3
    assert os.environ.get('RP_TASK_ID') is None
