"""Blocking work beside an event loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import THREADS, Helpers

TIMEOUT = 30.0


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop that fails a test in which nothing happens any more."""
    made = Loop()
    made.call_later(TIMEOUT, pytest.fail, 'the loop was not stopped')
    yield made
    made.close()


@pytest.fixture
def helpers(loop: Loop) -> Iterator[Helpers]:
    """Helpers that are closed at the end."""
    made = Helpers(loop)
    yield made
    made.close(TIMEOUT)


def unwanted(result: object) -> None:
    """Is not to be called."""
    pytest.fail(f'unwanted: {result!r}')


def test_result_comes_back_in_the_loop(loop: Loop, helpers: Helpers) -> None:
    seen: list[Any] = []

    def done(result: Any) -> None:
        seen.extend([result, threading.current_thread()])
        loop.stop()

    helpers.run(threading.current_thread, done, unwanted)
    loop.run()
    worker, receiver = seen
    assert receiver is threading.current_thread()
    assert worker is not receiver


def test_no_thread_before_there_is_work(loop: Loop) -> None:
    before = set(threading.enumerate())
    helpers = Helpers(loop)
    assert set(threading.enumerate()) <= before
    helpers.close(TIMEOUT)


def test_several_at_a_time(loop: Loop, helpers: Helpers) -> None:
    """All helpers meet at a barrier, which none passes alone."""
    barrier = threading.Barrier(THREADS)
    results: list[int] = []

    def done(position: int) -> None:
        results.append(position)
        if len(results) == THREADS:
            loop.stop()

    for _ in range(THREADS):
        helpers.run(lambda: barrier.wait(TIMEOUT), done, unwanted)
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
        helpers.run(partial(int, number), done, unwanted)
    loop.run()
    assert sorted(results) == list(range(count))


@pytest.mark.parametrize('error', [RecursionError('too deep'), MemoryError(), SystemExit(1), UnicodeError('odd')])
def test_what_is_raised_goes_to_those_who_have_asked(loop: Loop, helpers: Helpers, error: BaseException) -> None:
    """And to nobody else: other work goes on, in the same threads."""
    seen: list[Any] = []

    def work() -> None:
        raise error

    def note(result: Any) -> None:
        seen.append(result)
        if len(seen) == 2 * THREADS:
            loop.stop()

    for _ in range(THREADS):
        helpers.run(work, unwanted, note)
        helpers.run(lambda: 'fine', note, unwanted)
    loop.run()
    assert seen.count(error) == seen.count('fine') == THREADS


def no_more_threads(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Let the system refuse threads, but for the first few."""
    real = threading.Thread.start
    started: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        if len(started) == most:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        real(thread)

    monkeypatch.setattr(threading.Thread, 'start', start)


def test_work_fails_without_any_thread(loop: Loop, helpers: Helpers, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[BaseException] = []

    def failed(error: BaseException) -> None:
        errors.append(error)
        loop.stop()

    with monkeypatch.context() as patch:
        no_more_threads(patch, 0)
        helpers.run(lambda: 0, unwanted, failed)
        loop.run()
    assert "can't start new thread" in str(errors[0])
    helpers.run(lambda: 'later', errors.append, unwanted)   # there may be threads again
    helpers.close(TIMEOUT)


def test_one_thread_does_all_work_if_there_are_no_others(loop: Loop, helpers: Helpers,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[int] = []

    def done(result: int) -> None:
        results.append(result)
        if len(results) == 2 * THREADS:
            loop.stop()

    with monkeypatch.context() as patch:
        no_more_threads(patch, 1)
        for number in range(2 * THREADS):
            helpers.run(partial(int, number), done, unwanted)
        loop.run()
    assert results == list(range(2 * THREADS))


def test_exception_of_the_receiver_ends_the_loop(loop: Loop, helpers: Helpers) -> None:
    helpers.run(lambda: 0, lambda result: 1 / result, unwanted)
    with pytest.raises(ZeroDivisionError):
        loop.run()


def test_close_drops_what_has_not_begun(loop: Loop) -> None:
    helpers = Helpers(loop)
    entered = threading.Semaphore(0)
    gate = threading.Event()
    results: list[str] = []

    def work() -> str:
        entered.release()
        gate.wait(TIMEOUT)
        return 'begun'

    for _ in range(THREADS):
        helpers.run(work, results.append, unwanted)
    for _ in range(THREADS):
        assert entered.acquire(timeout=TIMEOUT)
    helpers.run(lambda: 'queued', results.append, unwanted)
    helpers.close(0)
    gate.set()
    helpers.close(TIMEOUT)
    loop.call_soon(loop.stop)
    loop.run()
    assert results == ['begun'] * THREADS


@pytest.mark.parametrize('used', [False, True])
def test_closed_helpers_do_nothing(loop: Loop, used: bool) -> None:
    helpers = Helpers(loop)
    if used:
        helpers.run(lambda: None, lambda _: loop.stop(), unwanted)
        loop.run()
    helpers.close(TIMEOUT)
    before = set(threading.enumerate())
    helpers.run(pytest.fail, unwanted, unwanted)
    assert set(threading.enumerate()) <= before


def test_result_after_the_loop_has_gone_is_dropped(loop: Loop) -> None:
    helpers = Helpers(loop)
    gate = threading.Event()
    helpers.run(lambda: gate.wait(TIMEOUT), unwanted, unwanted)
    loop.close()
    gate.set()
    helpers.close(TIMEOUT)


def test_close_does_not_wait_for_ever(loop: Loop) -> None:
    helpers = Helpers(loop)
    before = set(threading.enumerate())
    entered, gate = threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        gate.wait(TIMEOUT)

    helpers.run(work, unwanted, unwanted)
    assert entered.wait(TIMEOUT)
    helpers.close(0.01)
    assert not gate.is_set()
    (stuck,) = set(threading.enumerate()) - before
    assert stuck.daemon   # the process can end all the same
    gate.set()
    helpers.close(TIMEOUT)
    assert not stuck.is_alive()


def test_helpers_are_used_again(loop: Loop, helpers: Helpers) -> None:
    """One thread is enough for work that comes piece by piece."""
    threads: list[threading.Thread] = []

    def done(thread: threading.Thread) -> None:
        threads.append(thread)
        if len(threads) == 10:
            loop.stop()
        else:
            loop.call_later(0.001, helpers.run, threading.current_thread, done, unwanted)

    helpers.run(threading.current_thread, done, unwanted)
    loop.run()
    assert len(set(threads)) <= 2   # the first may not have had the time to become idle
