"""RAPTOR as an application uses it: masters, workers and their tasks, on a real pilot."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import Run, pilot_description, wait_until

import radical.pilot as rp
from rp_api.coordination import sessions
from rp_api.states import TASK_STATES

TIMEOUT = 45.0

MASTER = """
import os
import radical.pilot as rp


class Mine(rp.raptor.Master):

    def __init__(self, cfg=None):
        super().__init__(cfg)
        self.register_rpc_cb('divide', lambda one, by=2: one / by)

    def request_cb(self, tasks):
        for task in tasks:
            task['description']['arguments'] = ['asked']
        return tasks

    def result_cb(self, tasks):
        for task in tasks:
            task['stdout'] = 'seen ' + (task['stdout'] or '')


class Killed(rp.raptor.Master):

    def request_cb(self, tasks):
        os.kill(os.getpid(), 9)
"""

WORKER = """
import radical.pilot as rp


def double(number):
    return 2 * number


class Mine(rp.raptor.DefaultWorker):

    def tell(self, what):
        return [type(self).__name__, what]

    def ask(self, numbers):
        import os
        master, uid = self.get_master(), os.environ['RP_TASK_ID']
        if len(numbers) > 1:   # a task that has such a task, too
            task = {'mode': 'task.method', 'method': 'ask', 'args': [numbers[1:]]}
            below = master.run_task(task)['return_value']
        else:
            below = [master.run_task({'executable': '/bin/echo', 'arguments': ['last']})['stdout']]
        doubled = master.run_task({'mode': 'task.function', 'function': 'double', 'args': [numbers[0]]})
        assert os.environ['RP_TASK_ID'] == uid
        return [doubled['return_value'], *below]


class Together(rp.raptor.MPIWorker):

    def ask(self, ranks):
        def size(comm=None):
            return comm.size

        task = {'mode': 'task.function', 'function': rp.PythonTask(size, (), {'comm': None}), 'ranks': ranks}
        done = self.get_master().run_task(task)
        return done['return_value'] or done['exception']
"""


class Raptor(NamedTuple):
    """A master with a worker, and its session."""

    run: Run
    master: rp.RaptorMaster
    worker: rp.RaptorWorker

    def one(self, **description: Any) -> rp.Task:
        """The task of that description, when it is final."""
        task, = self.master.submit_tasks(rp.TaskDescription(description))
        task.wait(timeout=TIMEOUT)
        return task


def start(run: Run, directory: Path, *, master: str = '', worker: str = '') -> Raptor:
    (directory / 'masters.py').write_text(MASTER)
    (directory / 'workers.py').write_text(WORKER)
    described = rp.TaskDescription({'mode': rp.RAPTOR_MASTER} | (
        {'raptor_file': str(directory / 'masters.py'), 'raptor_class': master} if master else {}))
    raptor, = run.pilot.submit_raptors(described)
    workers = raptor.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER} | (
        {'raptor_file': str(directory / 'workers.py'), 'raptor_class': worker} if worker else {})))
    return Raptor(run, raptor, workers[0])


@pytest.fixture(scope='module')
def raptor(shared: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raptor]:
    made = start(shared, tmp_path_factory.mktemp('raptor'), worker='Mine')
    assert made.one(mode=rp.TASK_EVAL, code='1').state == rp.DONE   # so everything has been started
    yield made
    shared.tmgr.cancel_tasks([made.worker.uid, made.master.uid])
    shared.tmgr.wait_tasks([made.worker.uid, made.master.uid], timeout=TIMEOUT)


def functions() -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """Functions that travel by value: workers cannot import this module."""
    def add(one: int, other: int) -> int:
        return one + other

    async def later(value: str) -> str:
        return value

    def fail() -> None:
        raise ValueError('what was wrong')

    return add, later, fail


ADD, LATER, FAIL = functions()
VALUE = (1, [(2,), ()], {'k': (3, {4}), 'l': [(5, 6), 1 << 70]})


@pytest.mark.parametrize(('description', 'result'), [
    ({'mode': rp.TASK_FUNC, 'function': 'double', 'args': [4]}, 8),
    ({'mode': rp.TASK_FUNC, 'function': rp.PythonTask(ADD, (1, 2))}, 3),
    ({'mode': rp.TASK_FUNC, 'function': ADD, 'args': [1], 'kwargs': {'other': 2}}, 3),
    ({'mode': rp.TASK_FUNC, 'function': str(rp.PythonTask(ADD, (1, 2)))}, 3),
    ({'mode': rp.TASK_FUNC, 'function': rp.PythonTask(lambda **names: names, (), {'x': 1})}, {'x': 1}),
    ({'mode': rp.TASK_FUNC, 'function': rp.PythonTask(LATER, ('value',))}, 'value'),
    ({'mode': rp.TASK_METH, 'method': 'tell', 'args': ['x']}, ['Mine', 'x']),
    ({'mode': rp.TASK_EVAL, 'code': '3 * 4'}, 12),
    ({'mode': rp.TASK_EXEC, 'code': 'x = 3\nreturn x + 1'}, 4),
])
def test_calls(raptor: Raptor, description: dict[str, Any], result: Any) -> None:
    task = raptor.one(**description)
    assert task.state == rp.DONE, (task.exception, task.exception_detail)
    assert task.return_value == result
    assert task.exit_code == 0
    assert task.pilot == raptor.run.pilot.uid


def test_functions_travel_as_they_are_at_the_call(raptor: Raptor) -> None:
    """With what they use: when a `PythonTask` is made, and when a task with a function is submitted."""
    def submit(calls: list[dict[str, Any]]) -> list[rp.Task]:
        return raptor.master.submit_tasks([rp.TaskDescription({'mode': rp.TASK_FUNC, **call}) for call in calls])

    names: dict[str, Any] = {'__name__': '__main__'}
    exec('K = 0\ndef helper(): return K\ndef f(x): return [x, helper()]', names)
    call = rp.pythontask(names['f'])
    made: list[rp.Task] = []
    texts = []
    for names['K'] in (1, 2, 2, 1):
        texts += [call(number) for number in range(2)]
        made += submit([{'function': names['f'], 'args': [number]} for number in range(2)])
    made += submit([{'function': text} for text in texts])
    made += raptor.master.submit_tasks([task.description for task in made])
    raptor.run.tmgr.wait_tasks([task.uid for task in made], timeout=TIMEOUT)
    assert [task.return_value for task in made] == 4 * [[number, k] for k in (1, 2, 2, 1) for number in range(2)]
    assert [task.description.function for task in made[8:16]] == texts


@pytest.mark.parametrize('description', [
    {'mode': rp.TASK_FUNC, 'function': rp.PythonTask(lambda value: value, (VALUE,))},
    {'mode': rp.TASK_EVAL, 'code': repr(VALUE)},
    {'mode': rp.TASK_EXEC, 'code': f'return {VALUE!r}'},
])
def test_results_keep_their_types(raptor: Raptor, description: dict[str, Any]) -> None:
    assert repr(raptor.one(**description).return_value) == repr(VALUE)


def test_tuples_as_keys_of_a_description(run: Run, base: Path) -> None:
    """They arrive as they are, and end no agent."""
    raptor = start(run, base, worker='Mine')
    task = raptor.one(mode=rp.TASK_METH, method='tell', args=[{(1, (2, 3)): 4}], metadata={'a': {(1, 2): 3}})
    assert task.return_value == ['Mine', {(1, (2, 3)): 4}]
    assert task.description.metadata == {'a': {(1, 2): 3}}


@pytest.mark.parametrize('description', [
    {'mode': rp.TASK_SHELL, 'command': 'echo $WHO says it; exit 3', 'environment': {'WHO': 'somebody'}},
    {'mode': rp.TASK_PROC, 'executable': '/bin/sh', 'arguments': ['-c', 'echo $WHO says it; exit 3'],
     'environment': {'WHO': 'somebody'}}])
def test_programs(raptor: Raptor, description: dict[str, Any]) -> None:
    task = raptor.one(**description)
    assert (task.state, task.exit_code, task.stdout) == (rp.FAILED, 3, 'somebody says it\n')


def test_literal_arguments(raptor: Raptor) -> None:
    task = raptor.one(mode=rp.TASK_PROC, executable='echo', arguments=['$WHO', '`date`'], literal_arguments=True)
    assert (task.state, task.stdout) == (rp.DONE, '$WHO `date`\n')


@pytest.mark.parametrize('more', [
    {'mode': rp.TASK_PROC, 'executable': 'printenv'}, {'mode': rp.TASK_SHELL, 'command': 'printenv WHO'},
    {'mode': rp.TASK_PROC, 'executable': 'true && printenv'},
    {'mode': rp.TASK_EXECUTABLE, 'executable': 'true && printenv'}])
def test_values_of_the_environment_are_no_code(raptor: Raptor, more: dict[str, Any]) -> None:
    value = 'p$5 $(echo x) `y` "\'\\ ~ *'
    task = raptor.one(arguments=['WHO'], environment={'WHO': value}, **more)
    assert (task.state, task.stdout) == (rp.DONE, f'{value}\n')


def test_executable(raptor: Raptor) -> None:
    """It passes the master, and is run by the agent."""
    task = raptor.one(executable='/bin/sh', arguments=['-c', 'echo run; exit 2'])
    assert (task.state, task.exit_code, task.stdout) == (rp.FAILED, 2, 'run\n')
    assert task.slots is not None


def test_exception_of_a_call(raptor: Raptor) -> None:
    task = raptor.one(mode=rp.TASK_FUNC, function=rp.PythonTask(FAIL))
    assert task.state == rp.FAILED
    assert 'ValueError' in str(task.exception)
    assert 'what was wrong' in str(task.exception_detail)
    # the line itself is shown only if cloudpickle keeps the name of the file, which 3.1.3 does not
    assert ', in fail\n' in str(task.exception_detail)


def test_all_states_are_told_in_order(raptor: Raptor) -> None:
    tmgr = raptor.run.tmgr
    told: dict[str, list[str]] = {}
    uid = 'told.in.order'

    def note(task: rp.Task, state: str) -> None:
        told.setdefault(task.uid, []).append(state)

    tmgr.register_callback(note)
    try:
        task = raptor.one(uid=uid, mode=rp.TASK_EVAL, code='1')
        wait_until(lambda: told.get(uid, [''])[-1] == rp.DONE)
    finally:
        tmgr.unregister_callback(note)
    assert task.state == rp.DONE
    assert [rp.NEW, *told[uid]] == [row.name for row in TASK_STATES if row.name not in (rp.FAILED, rp.CANCELED)]


def test_handles(raptor: Raptor) -> None:
    master, worker = raptor.master, raptor.worker
    wait_until(lambda: master.state == rp.AGENT_EXECUTING, TIMEOUT, 'the master')
    assert isinstance(master, rp.RaptorMaster)
    assert isinstance(worker, rp.RaptorWorker)
    assert isinstance(master, rp.raptor_tasks.Raptor)
    assert worker.uid.startswith(f'{master.uid}.')
    assert worker.description['raptor_id'] == master.uid
    assert master.description['environment']['PYTHONUNBUFFERED'] == '1'
    assert master.access is not None
    secret = master.access['secret']
    assert secret not in str(master.as_dict()) + repr(master) + json.dumps(raptor.run.tmgr.as_dict(), default=str)
    exported = list(sessions.tasks(raptor.run.session.path))
    assert master.uid in [task['uid'] for task in exported]
    assert repr(VALUE) in [repr(task.get('return_value')) for task in exported]   # without unpickling objects
    assert secret not in str(exported)


def test_tasks_that_wait_for_others_on_the_only_rank(raptor: Raptor) -> None:
    """It runs them itself, one within the other, as nobody else could."""
    task = raptor.one(mode=rp.TASK_METHOD, method='ask', args=[[1, 2, 3]])
    assert (task.state, task.return_value) == (rp.DONE, [2, 4, 6, 'last\n'])


def test_tasks_that_wait_for_others_of_several_ranks(session: rp.Session, base: Path) -> None:
    """They can have some of the other ranks, but not all: that they would wait for themselves is said."""
    (base / 'workers.py').write_text(WORKER)
    tmgr = rp.TaskManager(session)
    pilot = rp.PilotManager(session).submit_pilots(pilot_description(base, cores=4))
    tmgr.add_pilots(pilot)
    master, = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
    master.submit_workers(rp.TaskDescription({
        'mode': rp.RAPTOR_WORKER, 'ranks': 3, 'raptor_file': str(base / 'workers.py'), 'raptor_class': 'Together'}))
    tasks = master.submit_tasks([rp.TaskDescription({'mode': rp.TASK_METHOD, 'method': 'ask', 'args': [ranks]})
                                 for ranks in (2, 3)])
    tmgr.wait_tasks([task.uid for task in tasks], timeout=TIMEOUT)
    assert tasks[0].return_value == [2, 2], (tasks[0].exception, tasks[0].exception_detail)
    assert 'run_task() might wait for ever' in tasks[1].return_value


def test_cancel_of_a_running_call(raptor: Raptor) -> None:
    task, = raptor.master.submit_tasks([rp.TaskDescription(
        {'mode': rp.TASK_EXEC, 'code': 'import time\ntime.sleep(100)'})])
    task.wait(rp.AGENT_EXECUTING, timeout=TIMEOUT)
    task.cancel()
    assert task.wait(timeout=TIMEOUT) == rp.CANCELED


def test_unknown_question(raptor: Raptor) -> None:
    wait_until(lambda: raptor.master.state == rp.AGENT_EXECUTING, TIMEOUT, 'the master')
    with pytest.raises(RuntimeError, match=f'dance of {raptor.master.uid} failed'):
        raptor.master.rpc('dance', 1, fast=True)


@pytest.mark.parametrize(('method', 'values', 'words'), [
    ('submit_raptors', {'mode': rp.RAPTOR_WORKER}, 'raptor.master'),
    ('submit_workers', {'mode': rp.RAPTOR_MASTER}, 'raptor.worker'),
    ('submit_workers', {'mode': rp.RAPTOR_WORKER}, 'raptor_id'),
    ('submit_workers', {'mode': rp.RAPTOR_WORKER, 'raptor_id': '*'}, 'raptor_id'),
    ('submit_tasks', {'mode': rp.TASK_EVAL, 'code': '1'}, 'raptor_id.*RAPTOR master'),
    ('submit_tasks', {'mode': rp.RAPTOR_MASTER, 'named_env': 'a/b'}, 'named_env')])
def test_descriptions_are_refused(shared: Run, method: str, values: dict[str, Any], words: str) -> None:
    known = shared.tmgr.list_tasks()
    with pytest.raises(ValueError, match=words):
        getattr(shared.tmgr, method)(rp.TaskDescription(values))
    assert shared.tmgr.list_tasks() == known


def test_master_without_a_pilot_cannot_be_asked(shared: Run) -> None:
    tmgr = rp.TaskManager(shared.session)
    master, = tmgr.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
    with pytest.raises(RuntimeError, match='not bound to a pilot'):
        master.rpc('stop')
    task, = master.submit_tasks(rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': '1'}))
    master.cancel()
    assert task.wait(timeout=TIMEOUT) == rp.FAILED
    assert f'{master.uid} has ended before it ran the task' in str(task.exception)
    tmgr.close()


def calls_of(made: Raptor) -> None:
    """Call the master's procedures in all ways that there are."""
    uid, pilot = made.master.uid, made.run.pilot
    assert made.master.rpc('divide', 9, by=3) == 3
    assert pilot.rpc('divide', 9, rpc_addr=uid, rpc_timeout=TIMEOUT) == 4.5
    assert made.run.tmgr.pilot_rpc(pilot.uid, 'raptor_rpc', 9, rpc_addr=uid, raptor_cmd='divide', by=9) == 1
    with pytest.raises(RuntimeError, match='ZeroDivisionError'):
        made.master.rpc('divide', 1, by=0)
    with pytest.raises(RuntimeError, match='it has divide, stop'):
        made.master.rpc('dance')
    with pytest.raises(ValueError, match='was not added'):
        made.run.tmgr.pilot_rpc('pilot.0007', 'divide')


def test_master_with_callbacks(run: Run, base: Path) -> None:
    made = start(run, base, master='Mine')
    assert made.one(mode=rp.TASK_EVAL, code='1').stdout == 'seen '   # and the worker is there now
    task = made.one(executable='/bin/echo')
    assert (task.state, task.stdout) == (rp.DONE, 'seen asked\n')
    calls_of(made)
    made.master.rpc('stop')
    assert run.tmgr.wait_tasks([made.master.uid, made.worker.uid], timeout=TIMEOUT) == [rp.DONE] * 2


def test_tasks_come_before_workers_and_workers_before_masters(run: Run) -> None:
    tasks = run.tmgr.submit_tasks([rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': '7', 'raptor_id': raptor_id})
                                   for raptor_id in ('*', 'mine')])
    run.tmgr.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'raptor_id': 'mine'}))
    run.tmgr.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER, 'uid': 'mine'}))
    run.tmgr.wait_tasks([task.uid for task in tasks], timeout=TIMEOUT)
    assert [(task.state, task.return_value) for task in tasks] == [(rp.DONE, 7)] * 2


def test_several_masters_on_several_pilots(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilots = pmgr.submit_pilots([pilot_description(base, cores=2) for _ in range(2)])
    tmgr.add_pilots(pilots)
    masters = [pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))[0] for pilot in pilots]
    for master in masters:
        master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER}))
    own = [master.submit_tasks([rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': '1'})] * 5) for master in masters]
    tasks = tmgr.submit_tasks([rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': '2', 'raptor_id': '*'})
                               for _ in range(10)])
    everything = [*own[0], *own[1], *tasks]
    assert tmgr.wait_tasks([task.uid for task in everything], timeout=TIMEOUT) == [rp.DONE] * 20
    assert [{task.pilot for task in mine} for mine in own] == [{pilot.uid} for pilot in pilots]
    assert {task.pilot for task in tasks} == {pilot.uid for pilot in pilots}


def test_killed_master(run: Run, base: Path) -> None:
    """Its tasks fail, with the reason; its worker ends; another master is not concerned."""
    made = start(run, base, master='Killed')
    tasks = made.master.submit_tasks([rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': '1'}) for _ in range(3)])
    other, = run.pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
    other.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER}))
    spared, = other.submit_tasks(rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': '5'}))
    run.tmgr.wait_tasks([task.uid for task in (*tasks, spared, made.worker)], timeout=TIMEOUT)
    assert (made.master.state, made.master.exit_code) == (rp.FAILED, -signal.SIGKILL)
    assert {task.state for task in tasks} == {rp.FAILED}
    assert f'{made.master.uid} has ended before it ran the task: it has failed' in str(tasks[0].exception)
    assert made.worker.state in rp.FINAL
    assert spared.return_value == 5
    with pytest.raises(RuntimeError, match='answers no requests'):
        made.master.rpc('stop')


def test_killed_worker(run: Run, base: Path) -> None:
    """What killed it is tried once more, on the next one; nothing of the workers is left (see the fixtures)."""
    made = start(run, base)
    deadly, = made.master.submit_tasks([rp.TaskDescription(
        {'mode': rp.TASK_EXEC, 'code': 'import os\nos.kill(os.getppid(), 9)'})])
    made.worker.wait(timeout=TIMEOUT)
    assert (made.worker.state, made.worker.exit_code) == (rp.FAILED, -signal.SIGKILL)
    assert 'killed by signal 9' in str(made.worker.error)
    second, = made.master.submit_workers([rp.TaskDescription({'mode': rp.RAPTOR_WORKER})])
    deadly.wait(timeout=TIMEOUT)
    second.wait(timeout=TIMEOUT)
    assert (deadly.state, second.state) == (rp.FAILED, rp.FAILED)
    assert f'worker {second.uid} is lost: killed by signal 9 (SIGKILL)' in str(deadly.exception)


def test_pilot_ends_with_calls_in_hand(run: Run, base: Path) -> None:
    made = start(run, base)
    tasks = made.master.submit_tasks([rp.TaskDescription(
        {'mode': rp.TASK_EXEC, 'code': 'import time\ntime.sleep(100)'}) for _ in range(5)])
    tasks[0].wait(rp.AGENT_EXECUTING, timeout=TIMEOUT)
    run.pilot.cancel()
    assert set(run.tmgr.wait_tasks([task.uid for task in tasks], timeout=TIMEOUT)) == {rp.CANCELED}
    sandbox = Path(run.pilot.pilot_sandbox)
    assert not list(sandbox.glob('*raptor.json'))


def test_session_that_is_taken_over(base: Path) -> None:
    """Masters and workers are there again, and go on with what was submitted before and after."""
    with rp.Session(cfg={'base': str(base)}) as first:
        tmgr = rp.TaskManager(first)
        pilot = rp.PilotManager(first).submit_pilots(pilot_description(base))
        tmgr.add_pilots(pilot)
        master, = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
        master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER}))
        before, = master.submit_tasks([rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': 'list(range(3))'})])
        master.wait(rp.AGENT_EXECUTING, timeout=TIMEOUT)
        access = dict(master.access or {})
        first.close(terminate=False)
    with rp.Session(uid=first.uid, cfg={'base': str(base)}) as second:
        tmgr, = second.get_task_managers()
        again = tmgr.get_tasks(master.uid)
        assert isinstance(again, rp.RaptorMaster)
        assert again.access == access
        task, = again.submit_tasks(rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': '6'}))
        tmgr.wait_tasks([task.uid, before.uid], timeout=TIMEOUT)
        assert (task.return_value, tmgr.get_tasks(before.uid).return_value) == (6, [0, 1, 2])
        assert again.rpc('stop') is None
        assert again.wait(timeout=TIMEOUT) == rp.DONE
