"""Cached results in whole sessions: a campaign that is run again does only what is missing."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from conftest import Run, pilot_description, wait_until

import radical.pilot as rp
from rp_client.cache.notes import NOTES
from rp_client.cache.store import ResultStore

LOG = 'radical.pilot.cache'


@contextmanager
def campaign(base: Path, **settings: Any) -> Iterator[rp.TaskManager]:
    """A session of this base directory, with an active pilot."""
    with rp.Session(cfg={'base': str(base), **settings}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
        yield tmgr


def program(work: str = 'cat input; echo 1 > output', **others: Any) -> rp.TaskDescription:
    """A program that counts its runs in the file `runs` of the working directory."""
    return rp.TaskDescription({
        'executable': '/bin/sh', 'arguments': ['-c', f'echo run >> {Path.cwd()}/runs; {work}'], 'cache': True,
        'input_staging': ['input'], 'output_staging': ['output > results/output']} | others)


def runs(base: Path) -> int:
    path = base / 'runs'
    return len(path.read_text().splitlines()) if path.exists() else 0


def done(tmgr: rp.TaskManager, *descriptions: rp.TaskDescription) -> list[rp.Task]:
    tasks = tmgr.submit_tasks(list(descriptions))
    tmgr.wait_tasks(timeout=40)
    assert [task.state for task in tasks] == [rp.DONE] * len(tasks), [task.exception for task in tasks]
    return tasks


@pytest.fixture
def home(base: Path) -> Path:
    """The base directory, with an input."""
    (base / 'input').write_text('in')
    return base


def test_a_campaign_that_is_run_again_does_only_what_is_missing(home: Path) -> None:
    with campaign(home) as tmgr:
        first, = done(tmgr, program())
        again, = done(tmgr, program())   # in the same session, too
        assert (first.cached, again.cached) == (False, True)
    shutil.rmtree(home / 'results')
    with campaign(home) as tmgr:
        seen: list[str] = []
        tmgr.register_callback(lambda task, state: seen.append(state))
        task, other = done(tmgr, program(), program('echo 2 > output', name='other'))
        assert (task.cached, task.stdout, task.exit_code, task.pilot) == (True, 'in', 0, None)
        assert other.cached is False
        wait_until(lambda: seen.count(rp.DONE) == 2)
    assert runs(home) == 2
    assert (home / 'results' / 'output').read_text() == '2\n'


@pytest.mark.parametrize('what', ['input', 'arguments', 'executable', 'environment', 'script'])
def test_what_a_result_depends_on(home: Path, what: str) -> None:
    script = home / 'script'
    script.write_text(f'echo run >> {home}/runs\n')
    copy = home / 'shell'
    shutil.copy('/bin/sh', copy)
    description = program(executable=str(copy), arguments=[str(script), 'x'], output_staging=[])
    with campaign(home) as tmgr:
        done(tmgr, description, description)
        before = runs(home)
        assert done(tmgr, description)[0].cached
        changed = rp.TaskDescription(description)
        if what == 'input':
            (home / 'input').write_text('other')
        elif what == 'arguments':
            changed['arguments'] = [str(script), 'y']
        elif what == 'executable':
            with copy.open('ab') as file:
                file.write(b'\n')
        elif what == 'environment':
            changed['environment'] = {'A': '1'}
        else:
            script.write_text(f'echo run >> {home}/runs  # changed\n')
        task, = done(tmgr, changed)
        assert not task.cached
        assert runs(home) == before + 1


def test_what_a_result_does_not_depend_on(home: Path) -> None:
    with campaign(home) as tmgr:
        done(tmgr, program())
        os.utime(home / 'input')
        task, = done(tmgr, program(uid='mine', name='name', priority=3, timeout=60, metadata={'a': 1},
                                   output_staging=['output > elsewhere/result']))
        assert task.cached
    assert (home / 'elsewhere' / 'result').read_text() == '1\n'


def test_a_hit_whose_output_is_gone_is_no_hit(home: Path) -> None:
    with campaign(home) as tmgr:
        done(tmgr, program())
        assert done(tmgr, program())[0].cached
        kept, = (home / '.rp.cache' / 'outputs').glob('*/0/output')
        kept.unlink()
        assert not done(tmgr, program())[0].cached
        assert done(tmgr, program())[0].cached   # it was stored again
    assert runs(home) == 2


def test_the_whole_output_is_kept(home: Path) -> None:
    wanted = [program('seq 1000; seq 3 >&2; echo > output'), program('echo short; echo > output', cleanup=True),
              program('seq 1001; echo > output', cleanup=True)]
    with campaign(home) as tmgr:
        done(tmgr, *wanted)
    with campaign(home) as tmgr:
        long, short, gone = done(tmgr, *wanted)
        assert [task.cached for task in (long, short, gone)] == [True] * 3
        assert long.read_stdout() == '\n'.join(map(str, range(1, 1001))) + '\n'
        assert (long.read_stderr(), short.read_stdout()) == ('1\n2\n3\n', 'short\n')
        with pytest.raises(FileNotFoundError, match='with the end of its stdout only'):
            gone.read_stdout()


def test_failures_are_not_cached(home: Path) -> None:
    with campaign(home) as tmgr:
        for _ in range(2):
            task = tmgr.submit_tasks(program('echo > output; exit 3', stage_on_error=True))
            task.wait(timeout=40)
            assert (task.state, task.exit_code, task.cached) == (rp.FAILED, 3, False)


def test_directories_and_patterns_come_back(home: Path) -> None:
    description = program('mkdir -p d/e; echo 1 > d/e/f; ln -s e/f d/link; echo a > a.dat; echo b > b.dat',
                          output_staging=['d > tree', '*.dat > data'])
    with campaign(home) as tmgr:
        done(tmgr, description)
        for name in ('tree', 'data'):
            shutil.rmtree(home / name)
        assert done(tmgr, description)[0].cached
    assert (home / 'tree' / 'link').readlink() == Path('e/f')
    assert (home / 'tree' / 'link').read_text() == '1\n'
    assert sorted(path.name for path in (home / 'data').iterdir()) == ['a.dat', 'b.dat']


def test_an_output_that_cannot_be_put_in_place_lets_the_task_run(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with campaign(home) as tmgr:
        done(tmgr, program())
        (home / 'place').write_text('a file')
        with caplog.at_level(logging.WARNING, LOG):
            task = tmgr.submit_tasks(program(output_staging=['output > place/output']))
            task.wait(timeout=40)
        assert (task.state, task.cached) == (rp.FAILED, False)   # it cannot be staged after a run either
        assert f'{task.uid} runs, as its cached output cannot be used' in caplog.text


def test_a_key_stands_for_all_else(home: Path) -> None:
    with campaign(home) as tmgr:
        done(tmgr, program(cache='first'))
        assert done(tmgr, program('echo 2 > output', cache='first'))[0].cached
        assert not done(tmgr, program(cache='second'))[0].cached


def test_many_tasks(home: Path) -> None:
    wanted = [rp.TaskDescription({'executable': '/bin/echo', 'arguments': [str(number)], 'cache': True})
              for number in range(300)]
    with campaign(home) as tmgr:
        assert not any(task.cached for task in done(tmgr, *wanted))
    with campaign(home) as tmgr:
        tasks = done(tmgr, *wanted, rp.TaskDescription({'executable': '/bin/echo', 'cache': True}))
        assert [task.cached for task in tasks] == [True] * 300 + [False]
        assert [task.stdout.strip() for task in tasks] == [*map(str, range(300)), '']


@pytest.mark.parametrize(('description', 'sentence'), [
    ({'output_staging': [{'source': 'output', 'target': 'pilot:///output', 'action': rp.COPY}]},
     r'its output stays on the platform \[Copy output > pilot:///output\].*Transfer'),
    ({'output_staging': ['output > pilot:///output']},
     r'its output stays on the platform \[Transfer output > pilot:///output\].*a target of the client'),
    ({'input_staging': [{'source': 'pilot:///input', 'target': 'input', 'action': rp.LINK}]},
     r'cannot compare the content of its input \[Link pilot:///input > input\].*key=\.\.\.'),
    ({'mode': rp.TASK_SERVICE}, 'have no result'),
    ({'cache': 3}, 'TaskDescription.cache must be True, False or a key, which is text, not 3'),
    ({'cache': ''}, 'TaskDescription.cache must be True, False or a key'),
])
def test_what_cannot_be_cached_is_refused(run: Run, home: Path, description: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        run.tmgr.submit_tasks(program(**description))


def test_a_cache_that_cannot_be_used_lets_tasks_run(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    (home / '.rp.cache').write_text('a file')
    with campaign(home) as tmgr, caplog.at_level(logging.WARNING, LOG):
        assert not done(tmgr, program())[0].cached
    assert 'the cache cannot be used, so tasks run without it' in caplog.text


def double(values: list[int]) -> list[int]:
    return [2 * value for value in values]


def large(size: int) -> bytes:
    return b'x' * size


def function(call: Callable[..., Any], argument: Any, raptor: Any) -> rp.TaskDescription:
    return rp.TaskDescription({'mode': rp.TASK_FUNCTION, 'function': rp.PythonTask(call, [argument]), 'cache': True,
                               'raptor_id': raptor.uid})


cloudpickle.register_pickle_by_value(sys.modules[__name__])   # workers cannot import this module


def test_functions_and_their_values(home: Path) -> None:
    for cached in (False, True):
        with campaign(home) as tmgr:
            master = tmgr.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))[0]
            master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': 1}))
            tasks = tmgr.submit_tasks([function(double, [1, 2], master), function(large, 3 << 20, master),
                                       function(lambda x: {x}, 5, master)])
            tmgr.wait_tasks([task.uid for task in tasks], timeout=40)
            assert [task.state for task in tasks] == [rp.DONE] * 3, [task.exception for task in tasks]
            assert [task.cached for task in tasks] == [cached] * 3
            assert [task.return_value for task in tasks] == [[2, 4], b'x' * (3 << 20), {5}]


def test_a_function_that_cannot_be_compared_runs(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    lock = threading.Lock()
    assert lock is not None
    with campaign(home) as tmgr, caplog.at_level(logging.WARNING, LOG):
        task = tmgr.submit_tasks(rp.TaskDescription({
            'executable': '/bin/true', 'cache': True, 'input_staging': ['missing']}))
        task.wait(timeout=40)
    assert task.state == rp.FAILED   # by its input, as without the cache
    assert 'missing' in (task.exception or '')
    assert f'{task.uid} runs without the cache' in caplog.text


def test_what_is_written_while_a_task_waits_or_runs_is_not_stored(home: Path) -> None:
    """The identity was taken at submission, and the result is that of the new content."""
    waits = f'touch {home}/now; until test -e {home}/go; do sleep 0.1; done; cat {home}/data'
    alone: dict[str, Any] = {'cache': True, 'input_staging': [], 'output_staging': []}
    wanted = [program(uid='input', output_staging=[]),
              rp.TaskDescription({**alone, 'uid': 'program', 'executable': str(home / 'script')}),
              program(uid='running', arguments=['-c', waits, str(home / 'data')], output_staging=[])]

    def write(text: str) -> None:
        (home / 'input').write_text(text)
        (home / 'script').write_text(f'#!/bin/sh\necho {text}\n')
        (home / 'script').chmod(0o755)

    write('old')
    (home / 'data').write_text('old')
    with rp.Session(cfg={'base': str(home)}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tasks = tmgr.submit_tasks(wanted[:2])
        notes = Path(session.path, NOTES)
        wait_until(lambda: notes.exists() and len(notes.read_text().splitlines()) == 2)
        write('new')
        tmgr.add_pilots(pmgr.submit_pilots(pilot_description(home)))
        running = tmgr.submit_tasks(wanted[2])
        wait_until((home / 'now').exists)
        (home / 'data').write_text('new')
        (home / 'data').write_text('old')
        (home / 'go').touch()
        tmgr.wait_tasks(timeout=40)
        assert [task.stdout.strip() for task in (*tasks, running)] == ['new', 'new', 'old']
    write('old')
    with campaign(home) as tmgr:
        tasks = done(tmgr, *wanted)
        assert [(task.cached, task.stdout.strip()) for task in tasks] == [(False, 'old')] * 3


def test_a_named_environment_counts_by_its_content(home: Path) -> None:
    for number, cached in (('1', False), ('2', False), ('1', True)):
        with rp.Session(cfg={'base': str(home)}) as session:
            pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
            tmgr.add_pilots(pmgr.submit_pilots(pilot_description(home, prepare_env={
                'mine': {'type': 'shell', 'pre_exec': [f'export NUMBER={number}']}})))
            task, = done(tmgr, rp.TaskDescription({'executable': 'sh', 'arguments': ['-c', 'echo $NUMBER'],
                                                   'literal_arguments': True, 'named_env': 'mine', 'cache': True}))
            assert (task.stdout, task.cached) == (f'{number}\n', cached)


def test_output_at_absolute_paths_is_put_there_again(home: Path) -> None:
    out = str(home / 'out')
    wanted = rp.TaskDescription({'executable': 'seq', 'arguments': ['2000'], 'stdout': out, 'cache': True})
    for cached in (False, True):
        with campaign(home) as tmgr:
            task, = done(tmgr, wanted)
            assert (task.cached, len((home / 'out').read_text().splitlines())) == (cached, 2000)
            assert len(task.read_stdout().splitlines()) == 2000
        (home / 'out').unlink()


def test_a_fifo_among_the_inputs_fails_as_without_the_cache(home: Path) -> None:
    (home / 'directory').mkdir()
    os.mkfifo(home / 'directory' / 'fifo')
    with campaign(home) as tmgr:
        tasks = tmgr.submit_tasks([program(input_staging=['directory'], cache=cached) for cached in (True, False)])
        tmgr.wait_tasks(timeout=40)
        assert [task.state for task in tasks] == [rp.FAILED] * 2
        assert str(tasks[0].exception).replace('directory', '') == str(tasks[1].exception).replace('directory', '')


def test_cancelled_while_it_is_looked_up(home: Path) -> None:
    with campaign(home) as tmgr:
        tasks = tmgr.submit_tasks([program(f'sleep 100 # {number}') for number in range(200)])
        tmgr.cancel_tasks([task.uid for task in tasks])
        tmgr.wait_tasks(timeout=40)
        assert {task.state for task in tasks} == {rp.CANCELED}


APPLICATION = '''
import os, sys
import radical.pilot as rp
session = rp.Session(uid='killed', cfg={'base': sys.argv[1]})
pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription(
    {'resource': 'local.exact', 'cores': 2, 'runtime': 10, 'sandbox': sys.argv[1]})))
tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/echo', 'arguments': [str(n)], 'cache': True,
                                       'output_staging': [f'task.{n:06d}.out > out.{n}']}) for n in range(2000)])
tmgr.wait_tasks()
'''


@pytest.mark.long
@pytest.mark.disorder('the next application stages the output again that the killed one was staging')
def test_results_survive_the_death_of_the_application(base: Path) -> None:
    application = subprocess.Popen([sys.executable, '-c', APPLICATION, base])
    wait_until(lambda: (base / '.rp.cache' / 'cache.db').exists())
    store = ResultStore(base / '.rp.cache')
    wait_until(lambda: store.summary().number >= 50)
    store.close()
    application.kill()
    application.wait(timeout=40)
    assert application.returncode == -signal.SIGKILL
    with rp.Session(uid='killed', cfg={'base': str(base)}):   # ends it
        pass
    with campaign(base) as tmgr:
        tasks = tmgr.submit_tasks([rp.TaskDescription({
            'executable': '/bin/echo', 'arguments': [str(n)], 'cache': True,
            'output_staging': [f'task.{n:06d}.out > out.{n}']}) for n in range(2000)])
        tmgr.wait_tasks(timeout=60)
        assert {task.state for task in tasks} == {rp.DONE}
        assert sum(task.cached for task in tasks) >= 50
        assert [(base / f'out.{n}').read_text() for n in range(2000)] == [f'{n}\n' for n in range(2000)]


def test_the_description_of_a_task_is_equal_to_the_one_that_was_submitted(home: Path) -> None:
    with campaign(home) as tmgr:
        task, = done(tmgr, program())
        assert done(tmgr, task.description)[0].cached
        assert runs(home) == 1


LEAVING = """
import json
import os
import sys
import radical.pilot as rp
session = rp.Session(uid='left', cfg={'base': sys.argv[1]})
tmgr = rp.TaskManager(session)
tmgr.add_pilots(rp.PilotManager(session).submit_pilots(rp.PilotDescription({
    'resource': 'local.exact', 'runtime': 10, 'cores': 2, 'exit_on_error': False, 'sandbox': sys.argv[1]})))
tmgr.submit_tasks([rp.TaskDescription(each) for each in json.loads(sys.argv[2])])
while not all(task.state == rp.AGENT_EXECUTING for task in tmgr.get_tasks()):
    tmgr.wait_tasks(timeout=0.1)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize('changed', [False, True])
def test_results_of_an_application_that_attaches_are_cached(home: Path, changed: bool) -> None:
    wanted = [{'executable': '/bin/sh', 'arguments': ['-c', f'cat input; until test -e {home}/go; do sleep 0.1; done'],
               'cache': True, 'input_staging': ['input'], 'output_staging': output}
              for output in ([], ['*.out > results/'])]
    left = subprocess.run([sys.executable, '-c', LEAVING, home, json.dumps(wanted)], timeout=50, check=False)
    assert left.returncode == -signal.SIGKILL
    if changed:   # after the tasks were submitted: their results are not those of the new input
        (home / 'input').write_text('new')
    with rp.Session(uid='left', cfg={'base': str(home)}) as session:
        tmgr = session.get_task_managers('tmgr.0000')
        (home / 'go').touch()
        tmgr.wait_tasks(timeout=40)
        assert [task.state for task in tmgr.get_tasks()] == [rp.DONE, rp.DONE]
    with campaign(home) as tmgr:
        tasks = done(tmgr, *map(rp.TaskDescription, wanted))
        assert [(task.cached, task.stdout) for task in tasks] == [(not changed, 'new' if changed else 'in')] * 2


def counted(x: int, *, fails: bool = False) -> int:
    """Count the calls in a file of the working directory of the application."""
    with open(COUNTER, 'a') as file:
        file.write('run\n')
    if fails:
        raise ValueError('it fails')
    return 2 * x


COUNTER = ''


def calls() -> int:
    return len(Path(COUNTER).read_text().splitlines())


@pytest.fixture
def counter(base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys.modules[__name__], 'COUNTER', str(base / 'calls'))
    return base / 'calls'


def test_calls_of_an_executor_are_cached(counter: Path) -> None:
    for number in range(2):
        with rp.Executor(cores=2) as executor:
            cached = executor.options(cache=True)
            assert cached.submit(counted, 1).result(40) == 2
            assert cached.submit(counted, cached.submit(counted, 1)).result(40) == 4   # by the value of the other
            assert list(cached.map(counted, range(5), chunksize=5)) == [0, 2, 4, 6, 8]
            assert calls() == 5 + number
            executor.submit(counted, 7).result(40)
            assert calls() == 6 + number
        assert calls() == 6 + number


def test_cached_calls_need_no_pilot(counter: Path) -> None:
    with rp.Executor(cores=1) as executor:
        assert executor.options(cache=True).submit(large, 2 << 20).result(40) == b'x' * (2 << 20)
        assert executor.options(cache='key').submit(counted, 1).result(40) == 2
    before = set(counter.parent.iterdir())
    with rp.Executor(resource='local.nothing', nodes=100, runtime='1h') as executor:   # which cannot run
        assert executor.options(cache=True).submit(large, 2 << 20).result(0) == b'x' * (2 << 20)
        assert executor.options(cache='key').submit(large, 5).result(0) == 2
    assert set(counter.parent.iterdir()) == before   # no session either


def test_failed_calls_are_not_cached(counter: Path) -> None:
    with rp.Executor(cores=1) as executor:
        for number in range(2):
            with pytest.raises(ValueError, match='it fails'):
                executor.options(cache=True).submit(counted, 1, fails=True).result(40)
            assert calls() == number + 1


def test_calls_and_programs_have_keys_of_their_own(counter: Path, caplog: pytest.LogCaptureFixture) -> None:
    with rp.Executor(cores=1) as executor:
        cached = executor.options(cache='key')
        assert cached.run('echo', 1).result(40).stdout == '1\n'
        assert cached.submit(counted, 1).result(40) == 2
        assert cached.run('echo', 2).result(40).stdout == '1\n'
    assert not [record for record in caplog.records if record.name == LOG]


def test_programs_of_an_executor_are_cached(home: Path) -> None:
    for number in range(2):
        with rp.Executor(cores=1) as executor:
            run = executor.run('sh', '-c', f'echo run >> {home}/runs; echo done', cache=True)
            assert run.result(40).stdout == 'done\n'
            assert run.task is not None
            assert run.task.cached is bool(number)
    assert runs(home) == 1


def test_a_task_runs_again_for_another_one_that_needs_its_files(home: Path) -> None:
    """Its cached result has no sandbox."""
    def chain(count: str, **last: Any) -> list[rp.TaskDescription]:
        def takes(source: str, **more: Any) -> rp.TaskDescription:
            return program('cat file; echo 1 >> file', output_staging=[], input_staging=[f'task://{source}/file'],
                           **more)

        return [program('echo 1 > file', uid=f'a.{count}', input_staging=[], output_staging=[]),
                takes(f'a.{count}', uid=f'b.{count}', cache='b'), takes(f'b.{count}', **last)]

    with campaign(home) as tmgr:
        done(tmgr, *chain('1', cache='c'))
        assert runs(home) == 3
        done(tmgr, *chain('2', cache='c'))
        assert runs(home) == 3
        *_, last = done(tmgr, *chain('3', cache=None))
        assert (last.stdout, runs(home)) == ('1\n1\n', 6)
        *_, last = done(tmgr, *chain('4', cache='new'))
        assert (last.stdout, runs(home)) == ('1\n1\n', 9)
        first, second, _ = chain('5')
        done(tmgr, first)
        task = tmgr.submit_tasks(rp.TaskDescription({**second, 'cache': 'other'}))   # by a later call
        assert task.wait(timeout=40) == rp.CANCELED
        assert 'it needs files of a.5, which has no sandbox, as its result is from the cache' in str(task.exception)


def test_calls_with_results_of_cached_programs(home: Path) -> None:
    def length(result: rp.TaskResult) -> int:
        with open(home / 'runs', 'a') as runs:
            runs.write('run\n')
        return len(result.stdout)

    for _ in range(2):
        with rp.Executor(cores=1) as executor:
            cached = executor.options(cache=True)
            told = cached.run('echo', 'abc')
            assert cached.submit(length, told).result(40) == 4
            assert (told.result().sandbox, runs(home)) == (None, 1)


OFFSET = 0


def offset() -> int:
    return OFFSET


def through_offset() -> int:
    return offset()


def test_calls_count_by_what_their_functions_use_at_the_call(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        for _ in range(2):
            with rp.Executor(cores=1) as executor:
                cached = executor.options(cache=True)
                for number in (1, 2, 3, 4, 1):
                    monkeypatch.setattr(sys.modules[__name__], 'OFFSET', number)
                    assert cached.submit(through_offset).result(60) == number
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


OWN_CLASS = """
import collections, sys
import radical.pilot as rp
Pair = collections.namedtuple('Pair', 'a b')
def pair(a): return Pair(a, (a,))
def main(executor):
    for _ in range(3):
        value = executor.options(cache=True).submit(pair, 1).result(60)
        assert type(value) is Pair, type(value)
    print(value)
if __name__ == '__main__':
    with rp.Executor(cores=1) as executor:
        main(executor)
"""


def test_cached_values_are_of_the_classes_of_the_script(home: Path) -> None:
    """Also in a later run of it."""
    (home / 'script.py').write_text(OWN_CLASS)
    for _ in range(2):
        done = subprocess.run([sys.executable, 'script.py'], cwd=home, capture_output=True, text=True, timeout=90)
        assert (done.returncode, done.stdout) == (0, 'Pair(a=1, b=(1,))\n'), done.stderr
