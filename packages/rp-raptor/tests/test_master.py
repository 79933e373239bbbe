"""A master between its agent, its workers and applications."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from master_support import TIMEOUT, UID, ScriptedAgent, ScriptedWorker, running
from standin_master import StandinMaster

from rp_api.description.python_task import PythonTask
from rp_api.description.task import TaskDescription
from rp_api.errors import CoordinationError, DescriptionError
from rp_api.raptor_link import master_file
from rp_api.system import limits
from rp_api.wire import codec
from rp_raptor.client.futures import Executor
from rp_raptor.client.stream import stream
from rp_raptor.errors import CallLost
from rp_raptor.master.master import Master
from rp_raptor.wire import payload

FUNCTION = {'mode': 'task.function', 'function': 'f'}
PROGRAM = {'mode': 'task.executable', 'executable': '/bin/true'}

Start = Callable[..., Any]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a master of that class, with its agent; both are gone at the end, as are the workers of `hire`."""
    scenes: list[Any] = []

    def begin(master_class: type[Master] = Master, **options: Any) -> tuple[Any, ScriptedAgent]:
        scenes.append(running(master_class, tmp_path, monkeypatch, **options))
        master, agent = scenes[-1].__enter__()
        return master, agent

    yield begin
    for scene in scenes:
        scene.__exit__(None, None, None)


@pytest.fixture
def hire(tmp_path: Path, start: Start) -> Iterator[Callable[..., ScriptedWorker]]:
    """Starts workers, which are gone at the end."""
    workers: list[ScriptedWorker] = []

    def begin(uid: str = 'worker', **options: Any) -> ScriptedWorker:
        workers.append(ScriptedWorker(tmp_path, uid, **options))
        return workers[-1]

    yield begin
    for worker in workers:
        worker.close()


def square(value: int) -> int:
    return value * value


def tasks(*uids: str, **description: Any) -> list[dict[str, Any]]:
    return [{'uid': uid, 'description': dict(description), 'sandbox': f'/tmp/{uid}'} for uid in uids]


# calls


def test_calls_of_the_masters_own_code(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    master, _ = start()
    hire()
    assert master.submit(square, 4).result(TIMEOUT) == 16
    assert list(master.map(square, range(100), chunksize=7)) == [n * n for n in range(100)]
    assert sorted(call.result() for call in master.stream(square, range(100))) == [n * n for n in range(100)]
    with pytest.raises(TypeError, match='multiply'):
        master.submit(square, 'a').result(TIMEOUT)


def test_calls_can_be_made_before_the_start_and_from_hooks(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    class Squares(Master):
        found: Future[int] = Future()

        def result_cb(self, tasks: list[dict[str, Any]]) -> None:
            self.found.set_result(self.submit(square, 3).result(TIMEOUT))

    master, agent = start(Squares, start=False)
    hire()
    assert master.submit(square, 2).result(TIMEOUT) == 4
    master.start()
    agent.heard('credit')
    agent.give(tasks('t', **FUNCTION))
    assert master.found.result(TIMEOUT) == 9
    agent.result('t')


def test_cancelled_calls(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    master, _ = start()
    worker = hire(credit=1, eager=False)
    running_, waiting = master.submit(square, 1), master.submit(square, 2)
    worker.has(1)
    assert waiting.cancel()
    assert running_.cancel()
    worker.heard('cancel')
    with pytest.raises(CancelledError):
        waiting.result(TIMEOUT)
    worker.step()
    third = master.submit(square, 3)
    worker.has(1)
    worker.step()
    assert third.result(TIMEOUT) == 9


def test_calls_without_a_result_fail_at_the_end(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    master, agent = start()
    worker = hire(credit=1, eager=False)
    futures = [master.submit(square, number) for number in range(3)]
    worker.has(1)
    master.stop()
    master.join()
    for future in [*futures, master.submit(square, 4)]:
        with pytest.raises(CallLost, match='has ended'):
            future.result(TIMEOUT)
    assert not master.alive()
    worker.heard('stop')
    agent.heard('bye')
    (call,) = master.stream(square, [1])
    assert isinstance(call.exception, CallLost)


def test_an_application(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    master, agent = start()
    hire(credit=64)
    handle = SimpleNamespace(uid=UID, state='AGENT_EXECUTING', exception=None, access=agent.heard('hello')[2])
    assert sorted(call.result() for call in stream(handle, square, range(300), chunksize=2)) == [
        n * n for n in range(300)]
    with Executor(handle) as executor:
        assert executor.submit(square, 5).result(TIMEOUT) == 25
        assert list(executor.map(square, range(10))) == [n * n for n in range(10)]
    assert master.submit(square, 1).result(TIMEOUT) == 1


def test_room_for_shared_calls_follows_the_workers(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    """The other master is not up: its share waits in the application, and not here behind a call that takes long."""
    master, agent = start()
    worker = hire(credit=3, eager=False)
    master.wait_workers(1)
    handle = SimpleNamespace(uid=UID, state='AGENT_EXECUTING', exception=None, access=agent.heard('hello')[2])
    absent = SimpleNamespace(uid='raptor.0001', state='AGENT_SCHEDULING', exception=None, access=None)
    with Executor([handle, absent]) as executor:
        futures = [executor.submit(square, number) for number in range(10)]
        assert len(worker.has(3)) == 3
        assert len(executor._caller._waiting) == 7   # type: ignore[attr-defined]
        for _ in range(10):
            worker.step(worker.has(1)[0])
        assert [future.result(TIMEOUT) for future in futures] == [number * number for number in range(10)]


def test_calls_without_workers_are_given_back(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    master, agent = start()
    handle = SimpleNamespace(uid=UID, state='AGENT_EXECUTING', exception=None, access=agent.heard('hello')[2])
    other = StandinMaster('raptor.0001', up=False)
    try:
        with Executor([handle, other]) as executor:
            futures = [executor.submit(square, number) for number in range(100)]
            while master._Master__core._router.waiting < 100:
                agent.do(lambda: None)
            other.come_up()
            assert [future.result(TIMEOUT) for future in futures] == [number * number for number in range(100)]
        assert not master._Master__core._router.waiting
    finally:
        other.close()


def test_calls_that_wait_for_a_worker_are_reported_until_it_comes(
        start: Start, hire: Callable[..., ScriptedWorker], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('rp_raptor.wire.protocol.REPORT_DELAY', 0.01)
    master, agent = start()
    future = master.submit(square, 3)
    assert agent.heard('waits') == ['workers (there is none, and none is expected)']
    hire()
    assert future.result(TIMEOUT) == 9
    assert agent.heard('waits', 2) == ['']


def test_an_application_hears_of_the_end(start: Start) -> None:
    master, agent = start()
    handle = SimpleNamespace(uid=UID, state='AGENT_EXECUTING', exception=None, access=agent.heard('hello')[2])
    with Executor(handle) as executor:
        future = executor.submit(square, 5)
        while not master._Master__core._router.waiting:   # the call is there
            agent.do(lambda: None)
        master.stop()
        with pytest.raises(CallLost, match=f'{UID}.*has ended'):
            future.result(TIMEOUT)


# tasks


def test_tasks_of_the_agent(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    _, agent = start()
    assert agent.heard('credit') == [16]
    worker = hire(credit=2, eager=False)
    agent.give(tasks('a', **FUNCTION, timeout=4, ranks=1) + tasks('b', **FUNCTION))
    worker.has(2)
    (_, calls, attributes), = (worker.heard('calls'),)
    assert worker.described(calls[0]) == {
        'uid': 'a', 'description': {**FUNCTION, 'timeout': 4, 'ranks': 1}, 'sandbox': '/tmp/a'}
    assert list(attributes.values()) == [{'timeout': 4}]
    assert agent.heard('states') == ['AGENT_EXECUTING', ['a', 'b']]
    worker.step()
    assert agent.result('b') == {'exit_code': 0, 'return_value': 'b', 'stdout': 'out', 'target_state': 'DONE'}
    assert set(agent.results()) == {'a', 'b'}


def test_no_more_tasks_are_asked_for_than_workers_take(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    _, agent = start(start=False)
    worker = hire(credit=3, eager=False)
    worker.heard('welcome')
    agent.do(lambda: None)
    assert 'credit' not in [message[0] for message in agent.news]


def test_hooks(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    class Editor(Master):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[dict[str, Any]] = []
            self.seen: list[dict[str, Any]] = []

        def request_cb(self, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
            self.kept += [task for task in tasks if task['uid'] == 'late']
            for task in tasks:
                task['description']['kwargs'] = {'mode': task['description']['mode']}
            return [task for task in tasks if task['uid'] != 'late']

        def result_cb(self, tasks: list[dict[str, Any]]) -> None:
            self.seen += tasks
            for task in tasks:
                task['stdout'] += ' edited'
                if task['uid'] == 'prompt':
                    self.submit_tasks(self.kept)

    master, agent = start(Editor)
    worker = hire()
    agent.give(tasks('late', **FUNCTION) + tasks('prompt', **FUNCTION))
    assert agent.result('prompt')['stdout'] == 'out edited'
    assert agent.result('late')['return_value'] == 'late'
    assert [task['uid'] for task in master.seen] == ['prompt', 'late']
    assert master.seen[0]['description']['ranks'] == 1   # as if it had been described in full
    assert {'state', 'target_state', 'exit_code', 'stderr', 'exception'} <= master.seen[0].keys()
    described = worker.described(worker.heard('calls')[1][0])
    assert described['description']['kwargs'] == {'mode': 'task.function'}


def test_hooks_see_packed_calls_as_text(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    class Reader(Master):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def request_cb(self, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
            self.seen += [(task['description']['function'], task['description']['args']) for task in tasks]
            return tasks

    master, agent = start(Reader)
    hire()
    call = PythonTask(abs, (1,))
    agent.give(tasks('one', mode='task.function', function=call.function, args=call.arguments))
    agent.result('one')
    assert isinstance(master, Reader)
    assert master.seen == [(call, [])]


def test_a_master_sees_its_own_tasks_before_they_run(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    """Each once, as many as it gets results of; also those that the hook submits, and that it has left out."""
    class Counter(Master):
        def __init__(self) -> None:
            super().__init__()
            self.asked: list[str] = []
            self.done: list[str] = []
            self.left_out: list[dict[str, Any]] = []
            self.all_done = threading.Event()

        def request_cb(self, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
            for task in tasks:
                self.asked.append(task['uid'])
                assert task['description']['uid'] == task['uid']
                if task['description']['mode'] == 'task.function' and not task['uid'].startswith('extra'):
                    self.submit_tasks({'uid': f'extra.{task["uid"]}', **FUNCTION})
            self.left_out += [task for task in tasks if task['uid'] == 'out']
            return [task for task in tasks if task['uid'] != 'out']

        def result_cb(self, tasks: list[dict[str, Any]]) -> None:
            self.done += [task['uid'] for task in tasks]
            if len(self.done) == 6:
                self.submit_tasks(self.left_out)
            if len(self.done) == 7:
                self.all_done.set()

    master, agent = start(Counter)
    hire()
    assert isinstance(master, Counter)
    agent.give(tasks('theirs', **FUNCTION))
    master.submit_tasks([{'uid': 'own', **FUNCTION}, {'uid': 'program', **PROGRAM}, {'uid': 'out', **FUNCTION}])
    agent.heard('submit')
    assert list(agent.submitted()) == ['program']
    agent.tell('task_state', 'program', 'DONE', {'exit_code': 0})
    assert master.all_done.wait(TIMEOUT), (master.asked, master.done)
    assert sorted(master.asked) == sorted(master.done) == [
        'extra.out', 'extra.own', 'extra.theirs', 'out', 'own', 'program', 'theirs']


def test_hooks_that_fail(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    class Broken(Master):
        def request_cb(self, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
            if tasks[0]['uid'] == 'a':
                raise KeyError('nothing')
            return tasks

        def result_cb(self, tasks: list[dict[str, Any]]) -> None:
            raise ValueError('bad')

    _, agent = start(Broken)
    hire()
    agent.give(tasks('a', **FUNCTION))
    agent.give(tasks('b', **FUNCTION))
    assert 'nothing' in agent.result('a')['exception']
    assert agent.result('a')['target_state'] == 'FAILED'
    assert agent.result('b')['target_state'] == 'DONE'


ODD = [object(), {1, 2}, 2**64, '\ud800', float('nan'), [], {'a': 1}]


@pytest.mark.parametrize('name', ['ranks', 'cores_per_rank', 'timeout', 'mode', 'kwargs'])
@pytest.mark.parametrize('kind', [FUNCTION, PROGRAM], ids=['function', 'program'])
def test_hook_that_makes_something_odd_of_a_task(start: Start, hire: Callable[..., ScriptedWorker], name: str,
                                                 kind: dict[str, Any]) -> None:
    """That task fails, with the reason, or is run all the same; the others are run in any case."""
    class Odd(Master):
        def request_cb(self, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
            for task in tasks:
                if task['uid'].startswith('odd'):
                    task['description'][name] = ODD[int(task['uid'][3:])]
            return tasks

    _, agent = start(Odd)
    hire(credit=100)
    odd = [f'odd{number}' for number in range(len(ODD))]
    agent.give(tasks(*odd, **kind) + tasks('fine', **FUNCTION))
    assert agent.result('fine')['return_value'] == 'fine'
    for uid in odd[:4]:
        if kind is FUNCTION or uid not in agent.submitted():
            assert agent.result(uid)['target_state'] == 'FAILED'
            assert agent.result(uid)['exception']
    agent.give(tasks('later', **FUNCTION))
    assert agent.result('later')['return_value'] == 'later'


@pytest.mark.parametrize('given', [5, [5], [None], ['x'], [{}], [{'uid': 5}], [{'uid': 'new'}]])
def test_hook_that_gives_no_tasks(start: Start, hire: Callable[..., ScriptedWorker], given: Any) -> None:
    class Odd(Master):
        def request_cb(self, tasks: list[dict[str, Any]]) -> Any:
            return given if tasks[0]['uid'] == 'odd' else tasks

    _, agent = start(Odd)
    hire()
    agent.give(tasks('odd', **FUNCTION))
    agent.give(tasks('fine', **FUNCTION))
    assert agent.result('fine')['return_value'] == 'fine'
    assert agent.result('odd')['target_state'] == 'FAILED'
    assert 'request_cb' in agent.result('odd')['exception_detail']


@pytest.mark.parametrize('value', ODD[:4], ids=lambda value: type(value).__name__)
def test_hook_that_makes_something_odd_of_a_result(start: Start, hire: Callable[..., ScriptedWorker],
                                                   value: Any) -> None:
    class Odd(Master):
        def result_cb(self, tasks: list[dict[str, Any]]) -> None:
            for task in tasks:
                if task['uid'] == 'odd':
                    task['stdout'] = value

    _, agent = start(Odd)
    hire()
    agent.give(tasks('odd', 'fine', **FUNCTION))
    assert agent.result('fine')['return_value'] == 'fine'
    assert agent.result('odd')['target_state'] == 'FAILED'
    assert agent.result('odd')['exception']


@pytest.mark.parametrize('result', [b'D', b'Dx', b'D\x05', b'\xff', b'D' + b'\x91' * 2000])
def test_result_of_a_worker_that_cannot_be_read(start: Start, hire: Callable[..., ScriptedWorker],
                                                monkeypatch: pytest.MonkeyPatch, result: bytes) -> None:
    """With and without hooks, the task fails, and the others of the same message have theirs."""
    class Hooked(Master):
        def result_cb(self, tasks: list[dict[str, Any]]) -> None:
            """Looks at nothing."""

    _, agent = start(Hooked if len(result) % 2 else Master)
    worker = hire(eager=False)
    good = worker._result
    monkeypatch.setattr(worker, '_result', lambda call: (
        result if worker.described(call)['uid'] == 'odd' else good(call)))
    agent.give(tasks('before', 'odd', 'after', **FUNCTION))
    worker.has(3)
    worker.step()
    for uid in ('before', 'after'):
        assert agent.result(uid)['return_value'] == uid
    assert agent.result('odd')['target_state'] == 'FAILED'
    assert agent.result('odd')['exception']


def test_executables_go_back_to_the_agent(start: Start) -> None:
    class Counter(Master):
        seen: list[str] = []   # noqa: RUF012

        def result_cb(self, tasks: list[dict[str, Any]]) -> None:
            self.seen += [task['target_state'] for task in tasks]

    master, agent = start(Counter)
    agent.give(tasks('x', **PROGRAM, raptor_id=UID))
    agent.heard('submit')
    assert agent.submitted()['x']['executable'] == '/bin/true'
    assert agent.submitted()['x']['raptor_id'] == ''
    agent.tell('task_state', 'x', 'AGENT_EXECUTING', None)
    agent.tell('task_state', 'x', 'FAILED', {'exit_code': 3, 'stderr': 'oh'})
    assert agent.result('x') == {'exit_code': 3, 'stderr': 'oh', 'stdout': '', 'target_state': 'FAILED'}
    assert master.seen == ['FAILED']


def test_cancelled_tasks(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    class Keeper(Master):
        gate = threading.Event()
        asked = threading.Event()

        def request_cb(self, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
            if tasks[0]['uid'] == 'filtered':
                self.asked.set()
                assert self.gate.wait(TIMEOUT)
            return [task for task in tasks if task['uid'] != 'kept']

    master, agent = start(Keeper)
    worker = hire(credit=1, eager=False)
    agent.give(tasks('running', **FUNCTION))
    worker.has(1)
    agent.give(tasks('waiting', 'kept', **FUNCTION) + tasks('program', **PROGRAM))
    agent.heard('submit')
    agent.give(tasks('filtered', **FUNCTION))
    assert master.asked.wait(TIMEOUT)
    agent.tell('cancel', ['running', 'waiting', 'program', 'kept', 'filtered', 'unknown'])
    assert agent.result('waiting')['target_state'] == 'CANCELED'
    assert agent.result('kept')['target_state'] == 'CANCELED'
    assert agent.heard('cancel') == [['program']]
    agent.tell('task_state', 'program', 'CANCELED', {})
    master.gate.set()
    assert agent.result('filtered')['target_state'] == 'CANCELED'
    assert agent.result('program')['target_state'] == 'CANCELED'
    worker.heard('cancel')
    worker.step()
    assert agent.result('running')['target_state'] == 'DONE'


def test_tasks_of_the_masters_own(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    class Counter(Master):
        def __init__(self) -> None:
            super().__init__()
            self.done: dict[str, Any] = {}
            self.all = threading.Event()

        def result_cb(self, tasks: list[dict[str, Any]]) -> None:
            self.done.update((task['uid'], task) for task in tasks)
            if len(self.done) == 3:
                self.all.set()

    master, agent = start(Counter)
    hire()
    uids = master.submit_tasks([TaskDescription(FUNCTION), {**PROGRAM, 'uid': 'mine'}])
    assert uids == [f'{UID}.task.000000', 'mine']
    assert master.submit_tasks(TaskDescription(FUNCTION)) == [f'{UID}.task.000002']
    agent.heard('submit')
    agent.tell('task_state', 'mine', 'DONE', {'exit_code': 0})
    assert master.all.wait(TIMEOUT)
    assert master.done[uids[0]]['return_value'] == uids[0]
    assert master.done['mine']['target_state'] == 'DONE'
    assert not agent.results()   # it knows nothing of them
    with pytest.raises(DescriptionError, match='function'):
        master.submit_tasks({'mode': 'task.function'})


def test_tasks_of_ranks(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    _, agent = start()
    worker = hire()
    worker.heard('welcome')
    worker.tell('run', 7, codec.pack(FUNCTION), b'')
    number, answer = worker.heard('ran')
    result = payload.as_result(answer)
    assert number == 7
    assert (result['state'], result['return_value']) == ('DONE', 'worker.run.000007')
    worker.tell('run', 8, codec.pack({'mode': 'task.function'}), b'')
    assert payload.as_result(worker.heard('ran', 2)[1])['target_state'] == 'FAILED'
    worker.tell('run', 9, codec.pack(PROGRAM), b'')
    agent.heard('submit')
    agent.tell('task_state', 'worker.run.000009', 'DONE', {'exit_code': 0})
    assert payload.as_result(worker.heard('ran', 3)[1])['exit_code'] == 0


def test_a_rank_cannot_have_a_task_run_that_is_in_hand(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    """It is told so, as it waits."""
    _, agent = start()
    worker = hire(eager=False)
    agent.give(tasks('here', **FUNCTION))
    worker.has(1)
    worker.tell('run', 7, codec.pack({**FUNCTION, 'uid': 'here'}), b'')
    assert 'has been submitted already' in payload.as_result(worker.heard('ran')[1])['exception']
    worker.step()
    assert agent.result('here')['target_state'] == 'DONE'


def test_hooks_see_tasks_that_ranks_have_run_themselves(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    class Changer(Master):
        def result_cb(self, tasks: list[dict[str, Any]]) -> None:
            for task in tasks:
                task['stdout'] = f'{task["uid"]} {task["description"]["mode"]}'

    start(Changer)
    worker = hire()
    worker.heard('welcome')
    worker.tell('run', 7, codec.pack({**FUNCTION, 'uid': 'own'}), payload.encode_result({'exit_code': 0}))
    result = payload.as_result(worker.heard('ran')[1])
    assert (result['uid'], result['state'], result['stdout']) == ('own', 'DONE', 'own task.function')


# workers


def test_workers_are_submitted_and_waited_for(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    class Watcher(Master):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[str, str, str]] = []
            self.ended = threading.Event()

        def worker_state_cb(self, worker_dict: dict[str, Any], state: str) -> None:
            self.seen.append((worker_dict['uid'], worker_dict['status'], state))
            if worker_dict['status'] == 'DONE':
                self.ended.set()

    master, agent = start(Watcher)
    uids = master.submit_workers([{'mode': 'raptor.worker', 'ranks': 2}, {'mode': 'raptor.worker', 'raptor_class': 'X',
                                                                          'raptor_file': 'f.py'}])
    assert uids == [f'{UID}.worker.0000', f'{UID}.worker.0001']
    agent.heard('submit')
    first, second = (agent.submitted()[uid] for uid in uids)
    assert first['arguments'] == ['', 'DefaultWorker', UID]
    assert second['arguments'] == ['f.py', 'X', UID]
    assert first['sandbox'] == second['sandbox'] == os.environ['RP_TASK_SANDBOX']
    assert {entry['status'] for entry in master.workers.values()} == {'NEW'}
    hire(uids[0], ranks=2)
    master.wait_workers(count=1)
    master.wait_workers(uids=[uids[0]])
    assert list(master.workers[uids[0]]['heartbeats']) == [0, 1]
    agent.tell('task_state', uids[1], 'FAILED', {'exit_code': 1, 'stderr': 'there is no class X'})
    with pytest.raises(RuntimeError, match='there is no class X'):
        master.wait_workers()
    assert master.ended.wait(TIMEOUT)
    assert master.seen == [(uids[0], 'ACTIVE', 'AGENT_EXECUTING'), (uids[1], 'DONE', 'FAILED')]
    with pytest.raises(ValueError, match='no workers nobody'):
        master.wait_workers(uids=['nobody'])
    with pytest.raises(RuntimeError, match=r'gpus_per_rank is 0\.5'):
        master.submit_workers({'mode': 'raptor.worker', 'gpus_per_rank': 0.5})
    with pytest.raises(DescriptionError, match='mode'):
        master.submit_workers([{'executable': 'x'}])


def test_workers_of_the_application(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    master, agent = start()
    agent.tell('task_state', 'theirs', 'AGENT_SCHEDULING', {'ranks': 2})
    future = master.submit(square, 3)
    hire('theirs', ranks=2)
    assert future.result(TIMEOUT) == 9
    master.wait_workers()
    agent.tell('task_state', 'absent', 'AGENT_SCHEDULING', {'ranks': 1})
    agent.tell('task_state', 'absent', 'FAILED', {'stderr': 'first line\nthere is no MPI'})
    with pytest.raises(RuntimeError, match='absent: there is no MPI'):
        master.wait_workers(count=2)


def test_a_master_that_ends_lets_nobody_wait(start: Start) -> None:
    master, agent = start()
    (uid,) = master.submit_workers({'mode': 'raptor.worker'})
    waiter: Future[None] = Future()

    def wait() -> None:
        try:
            master.wait_workers()
        except RuntimeError as error:
            waiter.set_exception(error)

    thread = threading.Thread(target=wait)
    thread.start()
    agent.heard('submit')
    master.stop()
    with pytest.raises(RuntimeError, match='has ended'):
        waiter.result(TIMEOUT)
    thread.join()
    assert agent.heard('cancel') == [[uid]]


@pytest.mark.fault
def test_a_worker_that_is_killed(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    master, _ = start()
    process = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)
    try:
        first = hire('first', credit=2, eager=False, pid=process.pid)
        future = master.submit(square, 3)
        first.has(1)
        process.kill()
        process.wait()
        hire('second')
        assert future.result(TIMEOUT) == 9
        assert master.workers['first']['status'] == 'DONE'
    finally:
        process.kill()
        process.communicate()


def test_a_worker_whose_connection_was_lost(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    master, _ = start()
    worker = hire(credit=1, eager=False)
    future = master.submit(square, 3)
    old = worker.has(1)
    worker.do(worker._connected)   # as after another handshake
    worker.heard('welcome', 2)
    worker.heard('calls', 2)
    assert master.workers['worker']['status'] == 'ACTIVE'
    worker.step(*old)
    assert future.result(TIMEOUT) == 9


def test_workers_of_another_version_are_refused(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    start()
    worker = hire(hello=False)
    worker.tell('worker', 'worker', 'host', 1, 1, {'protocol': 99})
    assert 'version 99' in worker.heard('refused')[0]


def test_what_is_no_message_is_dropped(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    master, _ = start()
    worker = hire()
    worker.heard('welcome')
    messages: list[Any] = ['nonsense', ['open', 's', {}], ['credit', -1], ['credit', 'x'], ['results', b'123', []],
                           ['results', b'12345678', []], ['worker', 'w', 'h', 0, 0, {}], ['calls', b'', [], None]]
    for message in messages:
        worker.do(partial(worker._connection.socket.send, codec.pack(message)))
    assert master.submit(square, 2).result(TIMEOUT) == 4


def test_workers_can_be_removed(start: Start, hire: Callable[..., ScriptedWorker]) -> None:
    master, agent = start()
    (uid, absent) = master.submit_workers([{'mode': 'raptor.worker'}] * 2)
    worker = hire(uid, credit=1, eager=False)
    master.wait_workers(count=1)
    future = master.submit(square, 5)
    worker.has(1)
    master.cancel_workers([uid, absent])
    worker.heard('stop')
    assert agent.heard('cancel') == [[absent]]
    worker.tell('bye', '')
    hire('other')
    assert future.result(TIMEOUT) == 25


# the end, and what must not begin


def test_it_is_stopped_by_an_rpc(start: Start) -> None:
    master, agent = start()
    agent.tell('rpc', 1, 'dance', [], {})
    assert agent.heard('rpc_result')[:2] == [1, False]
    master.register_rpc_cb('double', lambda number: 2 * number)
    agent.tell('rpc', 2, 'double', [21], {})
    assert agent.heard('rpc_result', 2) == [2, True, 42]
    agent.tell('rpc', 3, 'stop', [], {'now': True})
    assert agent.heard('rpc_result', 3)[:2] == [3, False]
    agent.tell('rpc', 4, 'stop', [], {})
    assert agent.heard('rpc_result', 4) == [4, True, None]
    master.join()
    assert not os.path.exists(master_file(os.environ['RP_PILOT_SANDBOX'], UID))


def test_it_is_stopped_by_the_agent(start: Start) -> None:
    """Calls that have no result then say why, as the agent does."""
    master, agent = start()
    call = master.submit(square, 4)
    agent.tell('stop', 'the pilot ends')
    master.join()
    assert not master.alive()
    assert 'the pilot ends' in str(call.exception(TIMEOUT))


def test_it_ends_without_its_agent(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('rp_raptor.master.agent_link.RECONNECT_TIMEOUT', 0.1)
    master, agent = start()
    agent.do(lambda: agent._listener.close(0))
    master.join()


def test_it_needs_the_environment_of_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv('RP_TASK_ID', raising=False)
    with pytest.raises(RuntimeError, match='RP_TASK_ID'):
        Master()
    for name in ('RP_TASK_ID', 'RP_TASK_SANDBOX', 'RP_PILOT_SANDBOX'):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(CoordinationError, match=r'raptor\.json'):
        Master()


SCRIPT = '''
import radical.pilot as rp
from rp_raptor.master.master import Master

class MyMaster(Master):
    def __init__(self):
        super().__init__()
        self.submit_tasks({'executable': 'prog', 'uid': 'first'})
'''


@pytest.mark.parametrize('ending', ['stop', 'SIGTERM'])
def test_the_program(tmp_path: Path, ending: str) -> None:
    agent = ScriptedAgent(tmp_path)
    (tmp_path / 'mine.py').write_text(SCRIPT)
    environ = {**os.environ, 'RP_TASK_ID': UID, 'RP_TASK_SANDBOX': str(tmp_path), 'RP_PILOT_SANDBOX': str(tmp_path)}
    process = subprocess.Popen([sys.executable, '-m', 'rp_raptor.cli', 'master', 'mine.py', 'MyMaster'], cwd=tmp_path,
                               env=environ)
    try:
        agent.heard('submit')
        assert 'first' in agent.submitted()
        if ending == 'stop':
            agent.heard('credit')
            agent.tell('stop', 'the pilot ends')
        else:
            process.send_signal(signal.SIGTERM)
        agent.heard('bye')
        assert process.wait(TIMEOUT) == (0 if ending == 'stop' else 128 + signal.SIGTERM)
        assert not os.path.exists(master_file(str(tmp_path), UID))
    finally:
        process.kill()
        process.wait()
        agent.close()


OWN_SCRIPT = """
import sys
from rp_raptor.master.master import Master

class MyMaster(Master):
    def __init__(self):
        super().__init__()
        if sys.argv[1] == 'raise':
            raise ValueError('nothing works')

master = MyMaster()
if sys.argv[1] == 'wait':
    master.start()
    master.join()
"""


@pytest.mark.parametrize(('what', 'code'), [('raise', 1), ('forget', 0), ('wait', 128 + signal.SIGTERM)])
def test_scripts_of_the_applications_own(tmp_path: Path, what: str, code: int) -> None:
    agent = ScriptedAgent(tmp_path)
    (tmp_path / 'mine.py').write_text(OWN_SCRIPT)
    environ = {**os.environ, 'RP_TASK_ID': UID, 'RP_TASK_SANDBOX': str(tmp_path), 'RP_PILOT_SANDBOX': str(tmp_path),
               'TMPDIR': str(tmp_path)}
    process = subprocess.Popen([sys.executable, 'mine.py', what], cwd=tmp_path, env=environ, stderr=subprocess.PIPE)
    try:
        agent.heard('hello')
        if what == 'wait':
            agent.heard('credit')
            process.send_signal(signal.SIGTERM)
        agent.heard('bye')
        _, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == code
        assert (b'nothing works' in errors) == (what == 'raise')
        assert not list(tmp_path.glob('rp.*'))
    finally:
        process.kill()
        process.communicate()
        agent.close()


@pytest.mark.parametrize(('arguments', 'message'), [
    ([], 'usage'), (['master'], 'usage'), (['master', '', 'Master'], 'RP_TASK_ID'),
    (['master', 'absent.py', 'M'], 'no such file')])
def test_wrong_uses_of_the_program(tmp_path: Path, arguments: list[str], message: str) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith('RP_')}
    process = subprocess.run([sys.executable, '-m', 'rp_raptor.cli', *arguments], cwd=tmp_path, env=environ,
                             capture_output=True, text=True, timeout=TIMEOUT)
    assert process.returncode
    assert message in process.stderr


# forks


@pytest.mark.filterwarnings('ignore:.*fork.*:DeprecationWarning')
def test_a_fork_of_a_master_is_refused_what_its_threads_would_do(start: Start,
                                                                 hire: Callable[..., ScriptedWorker]) -> None:
    """And its end is not that of the master."""
    master, _ = start()
    hire()
    calls: list[Callable[[], object]] = [
        master.start, master.stop, master.join, master.wait_workers, lambda: master.cancel_workers('worker'),
        lambda: master.submit(square, 4), lambda: list(master.map(square, [4])),
        lambda: list(master.stream(square, [4])), lambda: master.submit_tasks([PROGRAM]),
        lambda: master.submit_workers({'mode': 'raptor.worker'})]
    child = os.fork()
    if not child:
        signal.alarm(int(TIMEOUT))
        refused = 0
        for call in calls:
            try:
                call()
            except CoordinationError:
                refused += 1
        master._Master__core._leave()
        os._exit(len(calls) - refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert master.submit(square, 4).result(TIMEOUT) == 16


def test_a_master_may_have_as_many_connections_as_the_system_allows(tmp_path: Path) -> None:
    script = tmp_path / 'my_master.py'
    script.write_text('import resource, sys\n'
                      'from rp_raptor.master.master import Master\n'
                      'class Mine(Master):\n'
                      '    def __init__(self):\n'
                      '        sys.exit("%d %d" % resource.getrlimit(resource.RLIMIT_NOFILE))\n')
    program = f'import sys; from rp_raptor.cli import main; main(["master", {str(script)!r}, "Mine"])'
    found = subprocess.run(['sh', '-c', 'ulimit -S -n 100; exec "$@"', 'sh', sys.executable, '-c', program],
                           check=False, stderr=subprocess.PIPE, text=True)
    soft, hard = map(int, found.stderr.split())
    assert soft == min(hard, limits.MAX_DESCRIPTORS)
