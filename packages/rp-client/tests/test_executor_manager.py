"""The manager of `rp.Executor` without a session: calls and programs that fail, are cancelled, or wait at its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rp_api.errors import LimitError
from rp_client.executor.cached import CallCache
from rp_client.executor.executor import Requests
from rp_client.executor.manager import BrokenPilotExecutor, Manager
from rp_client.executor.programs import Programs
from rp_client.executor.requirements import PilotSize, Requirements, Shape
from rp_client.report import Report

LONG = 20.0


class StandinCalls:
    """Calls that the test ends."""

    def __init__(self) -> None:
        self.made: list[Future[Any]] = []
        self.finished = 0
        self.shape, self.master = Shape(), None
        self.refused: Exception | None = None
        self.before: Callable[[], object] = lambda: None   # a call is made

    @property
    def unfinished(self) -> int:
        return sum(not future.done() for future in self.made)

    def make(self, _: Requirements, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Future[Any]:
        self.before()
        self.arguments = args, kwargs
        if self.refused:
            raise self.refused
        future: Future[Any] = Future()
        future.task = None   # type: ignore[attr-defined]
        self.made.append(future)
        return future

    def prepare(self, _: Requirements, fn: Any) -> Any:
        return fn

    def abandon(self, error: Exception) -> None:
        for future in self.made:
            if not future.done():
                future.set_exception(error)

    def hold(self, _: Callable[[], object]) -> None:
        """Wait for calls that run."""

    def cancel(self) -> None:
        """Cancel nothing."""

    def close(self) -> None:
        """Nothing is open."""


class StandinAllocation:
    """A pilot of two cores, which is active if `size` is set."""

    lost, place, report = '', 'standin', Report(list, wanted=False)

    def __init__(self, size: PilotSize | None) -> None:
        self.size = size

    def earlier(self, _: Any) -> None:
        """There was no executor before."""

    def open(self, active: Callable[[PilotSize], object], _: Callable[[str], object]) -> None:
        if self.size:
            active(self.size)

    def start_worker(self, *_: Any) -> Any:
        return SimpleNamespace(uid='worker', cancel=lambda: None)

    def submit(self, descriptions: list[Any]) -> list[Any]:
        if any(description.uid for description in descriptions):
            raise ValueError('the uid is in use')
        return [SimpleNamespace(uid='task', future=Future, cancel=lambda: None) for _ in descriptions]

    def close(self) -> None:
        """Nothing is open."""


class Standin:
    """An executor with these, and what is behind it."""

    def __init__(self, base: Path, size: PilotSize | None = PilotSize(2, 0, 1)) -> None:   # noqa: B008 (it is immutable)
        self.allocation, self.calls = StandinAllocation(size), StandinCalls()
        self.manager = Manager(cast(Any, self.allocation))
        self.manager.calls = cast(Any, self.calls)
        self.manager.open()
        cache = CallCache(lambda: str(base), None, self.manager.post, str)
        self.requests = Requests(self.manager, Programs(), None, cache, Requirements())

    def act(self, action: Callable[[], object] = lambda: None) -> None:
        """Run something in the manager's thread, and wait until it has settled."""
        settled = threading.Event()
        self.manager.post(action)
        self.manager.post(lambda: self.manager.post(settled.set))
        assert settled.wait(LONG)

    def ends(self) -> None:
        """Shut down, and check that everything ends."""
        self.manager.shutdown(False, False)
        assert self.manager._over.wait(LONG)


@pytest.fixture
def ex(tmp_path: Path) -> Standin:
    return Standin(tmp_path)


def test_a_refused_call_is_not_waited_for(ex: Standin) -> None:
    ex.calls.refused = ValueError('it cannot travel')
    with pytest.raises(ValueError, match='it cannot travel'):
        ex.requests.options(retries=1).submit(print)
    ex.ends()


def test_a_call_made_as_everything_fails_fails_too(ex: Standin) -> None:
    ex.calls.before = lambda: ex.act(lambda: ex.manager._break('a test'))
    future = ex.requests.submit(print)
    assert isinstance(future.exception(LONG), BrokenPilotExecutor)
    ex.ends()


def test_a_retry_that_waits_as_everything_fails_fails_too(ex: Standin) -> None:
    future = ex.requests.options(retries=1).submit(print)

    def fail() -> None:
        ex.calls.made[0].set_exception(KeyError())   # it is made again after this
        ex.manager._break('a test')

    ex.act(fail)
    assert len(ex.calls.made) == 2
    assert isinstance(future.exception(LONG), BrokenPilotExecutor)
    ex.ends()


def test_a_program_that_waits_for_a_running_call_is_cancelled_at_the_end(ex: Standin) -> None:
    program = ex.requests.run('true', ex.requests.submit(print))
    ex.manager.shutdown(False, True)
    ex.act()
    assert program.cancelled()
    ex.calls.made[0].set_result(1)
    ex.ends()


def test_arguments_are_those_of_the_time_of_the_call(ex: Standin) -> None:
    """A list that grows later has futures that are not waited for."""
    first, pending = ex.requests.submit(print), ex.requests.submit(print)
    listed, named = [first], {'key': first}
    future = ex.requests.submit(print, listed, named=named)
    listed.append(pending)
    named['other'] = pending
    ex.calls.made[0].set_result(1)
    ex.act()
    assert ex.calls.arguments == (([1],), {'named': {'key': 1}})
    ex.calls.made[1].set_result(2)
    ex.calls.made[2].set_result(3)
    assert future.result(LONG) == 3
    ex.ends()


def test_an_argument_without_a_value_fails_its_call_alone(ex: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    other = ex.requests.submit(print)
    future = ex.requests.submit(print, other)
    monkeypatch.setattr('rp_client.executor.deferred.with_values', lambda *_: int('no value'))
    ex.calls.made[0].set_result(1)
    assert isinstance(future.exception(LONG), ValueError)
    assert not ex.manager.broken
    ex.ends()


def test_map_over_several_ranks_makes_no_chunks(ex: Standin) -> None:
    results = ex.requests.options(ranks=2).map(print, range(3), chunksize=2)
    assert [call.done() for call in ex.calls.made] == [False] * 3
    for number, call in enumerate(ex.calls.made):
        call.set_result([number] * 2)
    assert list(results) == [[0, 0], [1, 1], [2, 2]]
    ex.ends()


@pytest.mark.parametrize(('chunksize', 'values'), [(1, [0, 1, 2]), (2, [[0, 1], [2]])])
def test_map_of_a_failing_iterable_has_the_results_before(ex: Standin, chunksize: int, values: list[Any]) -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise LookupError('no more')

    results = ex.requests.map(print, items(), chunksize=chunksize)
    for call, value in zip(ex.calls.made, values, strict=True):
        call.set_result(value)
    assert list(islice(results, 3)) == [0, 1, 2]
    with pytest.raises(LookupError, match='no more'):
        next(results)
    ex.ends()


def test_a_refused_program_fails_alone(ex: Standin) -> None:
    made: list[Future[Any]] = []
    ex.act(lambda: made.extend([ex.requests.run('true'), ex.requests.run('true', uid='used')]))   # submitted at once
    with pytest.raises(ValueError, match='the uid is in use'):
        made[1].result(LONG)
    ex.act()
    assert made[0].task   # type: ignore[attr-defined]
    assert not made[0].done()
    ex.manager.abort()


def test_cancelled_programs_do_not_wait_for_the_pilot(tmp_path: Path) -> None:
    ex = Standin(tmp_path, size=None)
    other: Future[Any] = Future()
    programs = [ex.requests.run('true'), ex.requests.run('true', other)]
    ex.act()
    assert all(program.cancel() for program in programs)
    other.set_result(1)
    ex.ends()


def test_the_end_is_the_end_of_waiting_for_the_size(tmp_path: Path) -> None:
    ex = Standin(tmp_path, size=None)
    with ThreadPoolExecutor(1) as pool:
        size = pool.submit(lambda: ex.requests._max_workers)
        ex.ends()
        with pytest.raises(RuntimeError, match='after shutdown'):
            size.result(LONG)


def test_threads_that_cannot_be_started_are_an_error_of_the_call(ex: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeroMQ would abort the process."""
    def require(who: str, count: int, others: int) -> None:
        asked.append(count + others)
        if who == 'calls of an executor':
            raise LimitError('too few threads')

    asked: list[int] = []
    monkeypatch.setattr('rp_api.system.limits.require_threads', require)
    ex.manager.calls = None
    with pytest.raises(LimitError):
        ex.manager.open_calls()
    assert asked[-1] > 15
    ex.ends()
