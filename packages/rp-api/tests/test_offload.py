"""Blocking work beside an event loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rp_api.mesh.loop import Loop
from rp_api.mesh.offload import THREADS, Helpers

PATIENCE = 30.0


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop that fails a test in which nothing happens any more."""
    made = Loop()
    made.call_later(PATIENCE, pytest.fail, 'the loop was not stopped')
    yield made
    made.close()


@pytest.fixture
def helpers(loop: Loop) -> Iterator[Helpers]:
    """Helpers that are closed at the end."""
    made = Helpers(loop)
    yield made
    made.close(PATIENCE)


def test_result_comes_back_in_the_loop(loop: Loop, helpers: Helpers) -> None:
    seen: list[Any] = []

    def done(result: Any) -> None:
        seen.extend([result, threading.current_thread()])
        loop.stop()

    helpers.run(threading.current_thread, done)
    loop.run()
    worker, receiver = seen
    assert receiver is threading.current_thread()
    assert worker is not receiver


def test_no_thread_before_there_is_work(loop: Loop) -> None:
    before = set(threading.enumerate())
    helpers = Helpers(loop)
    assert set(threading.enumerate()) <= before
    helpers.close(PATIENCE)


def test_several_at_a_time(loop: Loop, helpers: Helpers) -> None:
    """All helpers meet at a barrier, which none passes alone."""
    barrier = threading.Barrier(THREADS)
    results: list[int] = []

    def done(position: int) -> None:
        results.append(position)
        if len(results) == THREADS:
            loop.stop()

    for _ in range(THREADS):
        helpers.run(lambda: barrier.wait(PATIENCE), done)
    loop.run()
    assert sorted(results) == list(range(THREADS))


def test_more_work_than_threads(loop: Loop, helpers: Helpers) -> None:
    count = 10 * THREADS
    results: list[int] = []

    def done(result: int) -> None:
        results.append(result)
        if len(results) == count:
            loop.stop()

    for number in range(count):
        helpers.run(lambda number=number: number, done)
    loop.run()
    assert sorted(results) == list(range(count))


def test_exception_ends_the_loop(loop: Loop, helpers: Helpers) -> None:
    helpers.run(lambda: 1 / 0, lambda _: pytest.fail('there is no result'))
    with pytest.raises(ZeroDivisionError):
        loop.run()


def test_exception_of_the_receiver_ends_the_loop(loop: Loop, helpers: Helpers) -> None:
    helpers.run(lambda: 0, lambda result: 1 / result)
    with pytest.raises(ZeroDivisionError):
        loop.run()


def test_close_drops_what_has_not_begun(loop: Loop) -> None:
    helpers = Helpers(loop)
    entered = threading.Semaphore(0)
    gate = threading.Event()
    results: list[str] = []

    def work() -> str:
        entered.release()
        gate.wait(PATIENCE)
        return 'begun'

    for _ in range(THREADS):
        helpers.run(work, results.append)
    for _ in range(THREADS):
        assert entered.acquire(timeout=PATIENCE)
    helpers.run(lambda: 'queued', results.append)
    helpers.close(0)
    gate.set()
    helpers.close(PATIENCE)
    loop.call_soon(loop.stop)
    loop.run()
    assert results == ['begun'] * THREADS


@pytest.mark.parametrize('used', [False, True])
def test_closed_helpers_do_nothing(loop: Loop, used: bool) -> None:
    helpers = Helpers(loop)
    if used:
        helpers.run(lambda: None, lambda _: loop.stop())
        loop.run()
    helpers.close(PATIENCE)
    before = set(threading.enumerate())
    helpers.run(pytest.fail, pytest.fail)
    assert set(threading.enumerate()) <= before


def test_result_after_the_loop_has_gone_is_dropped(loop: Loop) -> None:
    helpers = Helpers(loop)
    gate = threading.Event()
    helpers.run(lambda: gate.wait(PATIENCE), pytest.fail)
    loop.close()
    gate.set()
    helpers.close(PATIENCE)


def test_close_does_not_wait_for_ever(loop: Loop) -> None:
    helpers = Helpers(loop)
    before = set(threading.enumerate())
    entered, gate = threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        gate.wait(PATIENCE)

    helpers.run(work, pytest.fail)
    assert entered.wait(PATIENCE)
    helpers.close(0.01)
    assert not gate.is_set()
    (stuck,) = set(threading.enumerate()) - before
    assert stuck.daemon   # the process can end all the same
    gate.set()
    helpers.close(PATIENCE)
    assert not stuck.is_alive()


def test_helpers_are_used_again(loop: Loop, helpers: Helpers) -> None:
    """One thread is enough for work that comes piece by piece."""
    threads: list[threading.Thread] = []

    def done(thread: threading.Thread) -> None:
        threads.append(thread)
        if len(threads) == 10:
            loop.stop()
        else:
            loop.call_later(0.001, helpers.run, threading.current_thread, done)

    helpers.run(threading.current_thread, done)
    loop.run()
    assert len(set(threads)) <= 2   # the first may not have had the time to become idle
