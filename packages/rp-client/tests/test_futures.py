"""Futures of tasks: when they are done, what they hold, and that none is left without an end."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from concurrent import futures
from typing import Any, cast

import pytest
from client_support import a_task

import rp_client.engine.engine
from rp_api import states
from rp_api.constants import TASK_EVAL, TASK_STATE
from rp_api.errors import DeserializationError
from rp_api.failures.task_error import TaskCanceledError, TaskError, TaskTimeoutError
from rp_api.values import to_plain
from rp_client.completion.result import TaskResult
from rp_client.completion.task_future import TaskFuture
from rp_client.core.task import TaskRecord
from rp_client.engine.callbacks import Dispatcher, Registry, told
from rp_client.engine.tracker import Change, Tracker
from rp_client.handles.task import Task
from rp_client.service.task_requests import TaskRequests

TIMEOUT = 30.0


class Engine:
    """Takes the place of the engine: the test is its thread."""

    tell = rp_client.engine.engine.Engine.tell

    def __init__(self) -> None:
        self._thread = threading.current_thread()
        self._of_futures = Dispatcher('futures')

    def close(self) -> None:
        self._of_futures.close(TIMEOUT)


class Manager:
    """Takes the place of the owner of tasks: has its futures, and a tracker."""

    future_of = TaskRequests.future_of

    def __init__(self) -> None:
        self.engine = Engine()
        self.manager = self
        self._futures: Any = weakref.WeakValueDictionary()
        self.tracker = Tracker(states.TASK, TASK_STATE, Registry({TASK_STATE: told('task')}), cast(Dispatcher, None))
        self.board = self.tracker.board
        self.cancelled: list[str] = []

    def check_process(self) -> None:
        """No test forks."""

    def wait_for(self, tasks: list[TaskRecord], state: str | None, timeout: float | None) -> None:
        self.board.wait(tasks, state, timeout)

    def cancel_tasks(self, uid: str) -> None:
        self.cancelled.append(uid)

    def make(self, uid: str = 'task.1', **description: Any) -> Task:
        found: Task = a_task(uid, cast(Any, self), **description).handle
        return found

    def end(self, task: Task, state: str = states.DONE, **info: Any) -> None:
        self.tracker.apply([Change(task._record, state, info or None)])

    def breaks(self) -> None:
        self.board.broke(OSError('the hub is on fire'))


@pytest.fixture
def manager() -> Any:
    manager = Manager()
    yield manager
    manager.engine.close()


def elsewhere(work: Callable[[], Any]) -> futures.Future[Any]:
    """Do something in a thread of its own."""
    result: futures.Future[Any] = futures.Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result


def test_a_task_is_done_when_its_state_is_final(manager: Manager) -> None:
    task = manager.make()
    assert not task.done()
    manager.end(task, states.TMGR_STAGING_OUTPUT)
    assert not task.done(), 'its output is being staged'
    manager.end(task)
    assert task.done()


def test_result_of_a_program(manager: Manager) -> None:
    task = manager.make()
    future = task.future()
    assert (future.task, future.done(), future.running()) == (task, False, False)
    manager.end(task, states.AGENT_EXECUTING)
    assert future.running()
    manager.end(task, exit_code=0, stdout='out', stderr='err')
    assert task.result() == future.result(0) == TaskResult(0, 'out', 'err', None)
    assert (future.done(), future.running(), future.exception(), future.cancel()) == (True, False, None, False)


def test_a_task_has_one_future(manager: Manager) -> None:
    task = manager.make()
    future = task.future()
    assert task.future() is future
    manager.end(task)
    assert task.future() is future


def test_a_pending_future_keeps_its_task_and_a_task_keeps_no_future(manager: Manager) -> None:
    task = manager.make()
    called: list[Any] = []
    task.future().add_done_callback(called.append)   # which nobody holds
    gc.collect()
    manager.end(task)
    manager.engine.close()
    assert [future.task for future in called] == [task]
    called.clear()
    gc.collect()
    assert not manager._futures
    assert task.future().done()


def test_value_of_a_function_is_restored_when_it_is_requested(manager: Manager) -> None:
    task = manager.make(mode=TASK_EVAL, code='1', raptor_id='m')
    future = task.future()
    manager.end(task, return_value=to_plain({'a': 1 + 2j}, '/tmp', 'task'))
    assert task.result() == {'a': 1 + 2j}
    assert future.result() is future.result(), 'it is restored once'


def test_value_that_cannot_be_restored(manager: Manager) -> None:
    task = manager.make(mode=TASK_EVAL, code='1', raptor_id='m')
    future = task.future()
    manager.end(task, return_value={'__rp_pickled__': b'nonsense'})
    for look in (task.result, future.result):
        with pytest.raises(DeserializationError):
            look()
    assert isinstance(future.exception(), DeserializationError)
    with pytest.raises(DeserializationError):
        asyncio.run(awaited(task))


def test_snapshots(manager: Manager) -> None:
    """What asyncio reads from Python 3.14 on."""
    tasks = [manager.make(f'task.{number}') for number in range(3)]
    good, bad, cancelled = (task.future() for task in tasks)
    assert good._get_snapshot() == (False, False, None, None)
    for task, state in zip(tasks, (states.DONE, states.FAILED, states.CANCELED), strict=True):
        manager.end(task, state)
    assert good._get_snapshot() == (True, False, tasks[0].result(), None)
    assert bad._get_snapshot() == (True, False, None, bad.exception())
    assert cancelled._get_snapshot() == (True, True, None, None)


def test_failed_task(manager: Manager) -> None:
    task = manager.make()
    future = task.future()
    manager.end(task, states.FAILED, exit_code=3, exception='it broke')
    for look in (task.result, future.result):
        with pytest.raises(TaskError, match='it broke') as caught:
            look()
        assert (caught.value.kind, caught.value.exit_code) == ('exit', 3)
    assert isinstance(future.exception(), TaskError)
    assert not future.cancelled()


def test_own_time_limit_is_no_timeout_of_the_wait(manager: Manager) -> None:
    task = manager.make()
    future = task.future()
    with pytest.raises(TimeoutError, match=r'task\.1 is NEW after 0\.01 s'):
        task.result(0.01)
    with pytest.raises(futures.TimeoutError):
        future.result(0.01)
    manager.end(task, states.CANCELED, exception='timeout', error={'kind': 'timeout'})
    for look in (task.result, future.result):
        with pytest.raises(TaskTimeoutError) as caught:
            look()
        assert not isinstance(caught.value, (TimeoutError, futures.TimeoutError, futures.CancelledError))
    assert not future.cancelled()


def test_cancelling_a_future_cancels_the_task_and_is_done_when_the_task_is(manager: Manager) -> None:
    task = manager.make()
    future = task.future()
    assert future.cancel()
    assert manager.cancelled == ['task.1']
    assert not future.done()
    manager.end(task, states.CANCELED, exception='cancelled by the user')
    assert future.cancelled()
    assert future.cancel()
    for look in (task.result, future.result):
        with pytest.raises(futures.CancelledError, match='cancelled by the user') as caught:
            look()
        assert isinstance(caught.value, TaskCanceledError)
    with pytest.raises(futures.CancelledError):
        future.exception()


def test_a_cancelled_task_that_ends_otherwise(manager: Manager) -> None:
    """Its result was on the way."""
    task = manager.make()
    future = task.future()
    future.cancel()
    manager.end(task, exit_code=0)
    assert future.result().returncode == 0
    assert not future.cancel()


@pytest.mark.parametrize('state', [states.DONE, states.FAILED, states.CANCELED])
def test_futures_of_tasks_that_are_final(manager: Manager, state: str) -> None:
    task = manager.make()
    manager.end(task, state, exit_code=0)
    future = task.future()
    assert future.done()
    assert future.cancelled() == (state == states.CANCELED)
    called: list[Any] = []
    future.add_done_callback(called.append)
    assert called == [future], 'at once'


def test_waiting_of_the_standard_library(manager: Manager) -> None:
    tasks = [manager.make(f'task.{number}') for number in range(3)]
    wanted = [task.future() for task in tasks]
    waiting = elsewhere(lambda: futures.wait(wanted, TIMEOUT))
    manager.end(tasks[1])
    manager.end(tasks[0], states.FAILED)
    done, not_done = futures.wait(wanted, TIMEOUT, futures.FIRST_EXCEPTION)
    assert (done, not_done) == ({wanted[0], wanted[1]}, {wanted[2]})
    manager.end(tasks[2], states.CANCELED)
    assert waiting.result(TIMEOUT) == (set(wanted), set())
    assert set(futures.as_completed(wanted, TIMEOUT)) == set(wanted)


def test_callbacks_run_in_a_thread_in_which_they_may_wait(manager: Manager, caplog: pytest.LogCaptureFixture) -> None:
    first, second = manager.make('task.1'), manager.make('task.2')
    results: futures.Future[Any] = futures.Future()
    first.future().add_done_callback(lambda _: 1 / 0)
    first.future().add_done_callback(lambda future: results.set_result((future, second.result(TIMEOUT))))
    manager.end(first)   # as the thread of the engine, which must not wait
    manager.end(second, exit_code=0)
    future, result = results.result(TIMEOUT)
    assert (future.task, result.returncode) == (first, 0)
    assert 'ZeroDivisionError' in caplog.text


def test_futures_of_a_session_that_breaks(manager: Manager) -> None:
    before, after = manager.make('task.1'), manager.make('task.2')
    future = before.future()
    waiting = elsewhere(before.result)
    called: futures.Future[Any] = futures.Future()
    future.add_done_callback(called.set_result)
    manager.breaks()
    assert called.result(TIMEOUT) is future
    for look in (future.result, lambda: waiting.result(TIMEOUT), after.future().result, after.result):
        with pytest.raises(RuntimeError, match='cannot go on: the hub is on fire') as caught:
            look()
        assert isinstance(caught.value.__cause__, OSError)


def test_a_future_that_someone_else_sets_does_no_harm(manager: Manager) -> None:
    first, second = manager.make('task.1'), manager.make('task.2')
    one, other = first.future(), second.future()
    one.set_result(7)
    other.set_running_or_notify_cancel()
    manager.end(first)
    manager.end(second, states.CANCELED)
    assert first.done()
    assert isinstance(other.exception(), TaskCanceledError)
    manager.breaks()


# asyncio

async def awaited(task: Task) -> Any:
    return await task


def awaiting(manager: Manager, work: Callable[[], Any]) -> futures.Future[Any]:
    """Run a coroutine in another thread, and return when it has requested the future of a task."""
    asked = threading.Event()
    make: Callable[[Task], TaskFuture] = cast(Any, manager).future_of

    def future_of(task: Task) -> TaskFuture:
        future = make(task)
        asked.set()
        return future

    cast(Any, manager).future_of = future_of
    result = elsewhere(lambda: asyncio.run(work()))
    assert asked.wait(TIMEOUT)
    return result


def test_awaiting_a_task(manager: Manager) -> None:
    task = manager.make()
    waiting = awaiting(manager, lambda: awaited(task))
    manager.end(task, exit_code=0)
    assert waiting.result(TIMEOUT).returncode == 0
    assert asyncio.run(awaited(task)).returncode == 0


def test_awaiting_a_task_that_is_cancelled(manager: Manager) -> None:
    task = manager.make()
    waiting = awaiting(manager, lambda: awaited(task))
    manager.end(task, states.CANCELED)
    with pytest.raises((asyncio.CancelledError, futures.CancelledError)):
        waiting.result(TIMEOUT)


def test_cancelling_the_coroutine_cancels_the_task(manager: Manager) -> None:
    task = manager.make()

    async def cancelling() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(awaited(task), 0.01)

    asyncio.run(cancelling())
    assert manager.cancelled == ['task.1']
    manager.end(task, states.CANCELED)   # after the loop was closed
    assert task.future().cancelled()


def test_shield_protects_a_task(manager: Manager) -> None:
    task = manager.make()

    async def shielded() -> Any:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), 0.01)
        assert manager.cancelled == []
        manager.end(task, exit_code=0)
        return await task

    assert asyncio.run(shielded()).returncode == 0


def test_several_loops_await_one_task(manager: Manager) -> None:
    task = manager.make()
    waiting = [awaiting(manager, lambda: awaited(task)) for _ in range(3)]
    manager.end(task, exit_code=0)
    assert [each.result(TIMEOUT).returncode for each in waiting] == [0, 0, 0]


def test_loop_that_is_closed_early(manager: Manager, caplog: pytest.LogCaptureFixture) -> None:
    task = manager.make()
    loop = asyncio.new_event_loop()
    future = asyncio.wrap_future(task.future(), loop=loop)
    loop.close()
    manager.end(task)
    manager.engine.close()
    assert not future.done()
    assert task.done()
