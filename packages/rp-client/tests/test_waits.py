"""Waiting for several tasks and futures, in threads and in coroutines."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Any

import pytest
from test_futures import TIMEOUT, Manager, elsewhere

from rp_api import states
from rp_client.completion.waits import Completed, as_completed, async_wait, wait
from rp_client.handles.task import Task


@pytest.fixture
def manager() -> Iterator[Manager]:
    manager = Manager()
    yield manager
    manager.engine.close()


def make(manager: Manager, count: int) -> list[Task]:
    return [manager.make(f'task.{number}') for number in range(count)]


def iterated_in_a_coroutine(items: Completed[Any]) -> list[Any]:
    async def iterate() -> list[Any]:
        return [item async for item in items]

    return asyncio.run(iterate())


def wait_in_a_coroutine(items: Iterable[Any], timeout: float | None = None, *more: Any) -> Any:
    return asyncio.run(async_wait(items, timeout, *more))


both = pytest.mark.parametrize('iterate', [list, iterated_in_a_coroutine])
waits = pytest.mark.parametrize('wait', [wait, wait_in_a_coroutine])


class Meeting:
    """Lets the test go on when a wait has begun in another thread, for the items that it is made with."""

    def __init__(self, items: Iterable[Any], wait: Callable[[Iterable[Any]], Any]) -> None:
        self._begun = threading.Event()
        self._items = list(items)
        self.result = elsewhere(lambda: wait(self._all()))
        assert self._begun.wait(TIMEOUT)

    def _all(self) -> Iterator[Any]:
        yield from self._items
        self._begun.set()


@both
def test_items_come_in_the_order_in_which_they_end(manager: Manager, iterate: Any) -> None:
    """Tasks, their futures and those of others, each once."""
    tasks = make(manager, 4)
    other: futures.Future[int] = futures.Future()
    ended = make(manager, 5)[4]
    manager.end(ended)
    items = [*tasks, tasks[0], other, ended, tasks[3].future()]
    iterator = as_completed(items, TIMEOUT)
    waiting = elsewhere(lambda: iterate(iterator))
    manager.end(tasks[2], states.FAILED)
    other.set_result(5)
    manager.end(tasks[0], states.CANCELED)
    manager.end(tasks[3])
    manager.end(tasks[1])
    found = waiting.result(TIMEOUT)
    assert found[:4] == [ended, tasks[2], other, tasks[0]]
    assert set(found[4:6]) == {tasks[3], tasks[3].future()}
    assert found[6:] == [tasks[1]]


@both
def test_nothing_is_waited_for(iterate: Any) -> None:
    assert iterate(as_completed([])) == []


@both
def test_iteration_takes_too_long(manager: Manager, iterate: Any) -> None:
    tasks = make(manager, 2)
    manager.end(tasks[0])
    with pytest.raises(TimeoutError, match='1 of 2 tasks and futures have not ended in time'):
        iterate(as_completed(tasks, 0.01))


@both
def test_iteration_ends_with_the_session(manager: Manager, iterate: Any) -> None:
    tasks = make(manager, 2)
    iterator = as_completed(tasks)
    waiting = elsewhere(lambda: iterate(iterator))
    manager.breaks()
    with pytest.raises(RuntimeError, match='cannot go on'):
        waiting.result(TIMEOUT)
    with pytest.raises(RuntimeError, match='cannot go on'):
        iterate(as_completed(tasks))


def test_ended_tasks_are_returned_before_the_end_of_the_session(manager: Manager) -> None:
    tasks = make(manager, 2)
    iterator = as_completed(tasks)
    manager.end(tasks[1])
    manager.breaks()
    assert next(iterator) is tasks[1]
    with pytest.raises(RuntimeError, match='cannot go on'):
        next(iterator)


def test_iterator_is_left_early(manager: Manager) -> None:
    """Nothing of it stays with the tasks, however often that is."""
    tasks = make(manager, 3)
    other: futures.Future[int] = futures.Future()
    manager.end(tasks[0])
    for _ in range(5):
        for item in as_completed([*tasks, other]):
            assert item is tasks[0]
            break
        wait([*tasks, other], return_when=futures.FIRST_COMPLETED)
    gc.collect()
    assert [len(listeners) for listeners in manager.board._listeners.values()] == [1, 1]
    assert len(other._waiters) == 1
    manager.end(tasks[1])
    manager.end(tasks[2])
    other.set_result(1)
    assert not manager.board._listeners


@waits
def test_wait_for_all(manager: Manager, wait: Any) -> None:
    tasks = make(manager, 3)
    waiting = Meeting(tasks, wait)
    for task, state in zip(tasks, states.FINAL, strict=True):
        manager.end(task, state)
    assert waiting.result.result(TIMEOUT) == (set(tasks), set())


@waits
def test_wait_for_the_first(manager: Manager, wait: Any) -> None:
    first, second = make(manager, 2)
    other: futures.Future[int] = futures.Future()
    waiting = Meeting([first, second, other], lambda items: wait(items, TIMEOUT, futures.FIRST_COMPLETED))
    manager.end(second)
    assert waiting.result.result(TIMEOUT) == ({second}, {first, other})


@waits
def test_wait_for_the_first_failure(manager: Manager, wait: Any) -> None:
    tasks = make(manager, 3)
    failing: futures.Future[int] = futures.Future()
    cancelled: futures.Future[int] = futures.Future()
    waiting = Meeting([*tasks, failing, cancelled], lambda items: wait(items, TIMEOUT, futures.FIRST_EXCEPTION))
    manager.end(tasks[0], states.CANCELED)
    cancelled.cancel()
    cancelled.set_running_or_notify_cancel()
    manager.end(tasks[1])
    failing.set_exception(OSError())
    assert waiting.result.result(TIMEOUT) == ({tasks[0], tasks[1], failing, cancelled}, {tasks[2]})
    manager.end(tasks[2], states.FAILED)
    assert wait(tasks, 0, futures.FIRST_EXCEPTION) == (set(tasks), set())


@waits
def test_wait_takes_too_long(manager: Manager, wait: Any) -> None:
    first, second = make(manager, 2)
    manager.end(first)
    assert wait([first, second], 0.01) == ({first}, {second})
    assert wait([first], 0) == ({first}, set())


@pytest.mark.parametrize(('items', 'error'), [
    ('task.1', "not 't'"), (['task.000000'], "not 'task.000000'"), (5, 'a list of tasks and futures is needed, not 5'),
    ([None], 'not None')])
def test_what_cannot_be_waited_for(items: Any, error: str) -> None:
    for look in (wait, as_completed):
        with pytest.raises(TypeError, match=error):
            look(items)


def test_other_arguments_that_make_no_sense(manager: Manager) -> None:
    with pytest.raises(TypeError, match="timeout is 'long', it must be a number"):
        as_completed([manager.make()], 'long')
    with pytest.raises(ValueError, match='return_when is 3, allowed are: ALL_COMPLETED, FIRST'):
        wait([manager.make()], return_when=3)   # type: ignore[arg-type]

    async def asked() -> None:
        with pytest.raises(TypeError, match='wait for it with asyncio'):
            as_completed([asyncio.get_running_loop().create_future()])

    asyncio.run(asked())


def test_cancelling_a_wait_cancels_no_task(manager: Manager) -> None:
    tasks = make(manager, 2)

    async def waiting() -> None:
        for work in (async_wait(tasks), anext_of(as_completed(tasks))):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(work, 0.01)

    asyncio.run(waiting())
    assert manager.cancelled == []
    manager.end(tasks[0])   # the loop is closed


async def anext_of(iterator: Completed[Any]) -> Any:
    return await iterator.__anext__()


def test_one_iterator_in_threads_and_loops(manager: Manager) -> None:
    tasks = make(manager, 3)
    for task in tasks:
        manager.end(task)
    iterator = as_completed(tasks)
    found = [next(iterator), asyncio.run(anext_of(iterator)), asyncio.run(anext_of(iterator))]
    assert set(found) == set(tasks)
    with pytest.raises(StopIteration):
        next(iterator)
