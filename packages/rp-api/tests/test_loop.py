"""The event loop calls everything in one thread, in order, at the right moment, and leaves nothing behind."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import zmq
from leftovers import open_descriptors

from rp_api.loop.event_loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        try:
            os.close(fd)
        except OSError:
            assert fd == reader, 'only tests that close the reading end do so'


@pytest.fixture
def sockets() -> Iterator[tuple[zmq.Socket[Any], zmq.Socket[Any]]]:
    context = zmq.Context()
    one, other = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    one.bind('inproc://pair')
    other.connect('inproc://pair')
    yield one, other
    one.close(linger=0)
    other.close(linger=0)
    context.term()


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


# call_soon


def test_calls_come_in_the_order_in_which_they_were_asked_for(loop: Loop) -> None:
    seen: list[int] = []
    for number in range(100):
        loop.call_soon(seen.append, number)
    loop.call_soon(loop.stop)
    loop.run()
    assert seen == list(range(100))


def test_a_call_gets_its_arguments(loop: Loop) -> None:
    seen: list[tuple[Any, ...]] = []
    loop.call_soon(lambda *args: seen.append(args), 1, 'two', None)
    loop.call_soon(loop.stop)
    loop.run()
    assert seen == [(1, 'two', None)]


def test_calls_from_other_threads_wake_the_loop_and_run_in_its_thread(loop: Loop) -> None:
    seen: list[tuple[int, int]] = []
    threads: list[int] = []
    running = threading.Event()

    def note(source: int, number: int) -> None:
        threads.append(threading.get_ident())
        seen.append((source, number))
        if len(seen) == 400:
            loop.stop()

    def ask(source: int) -> None:
        assert running.wait(30)
        for number in range(100):
            loop.call_soon(note, source, number)

    helpers = [in_thread(partial(ask, source)) for source in range(4)]
    loop.call_soon(running.set)
    loop.run()
    for helper in helpers:
        helper.join()
    assert set(threads) == {threading.get_ident()}
    for source in range(4):
        assert [number for each, number in seen if each == source] == list(range(100))


def test_a_sleeping_loop_is_woken(loop: Loop) -> None:
    """Two threads answer each other through the loop: each call finds it asleep, or nearly."""
    answered = threading.Semaphore(0)

    def ask() -> None:
        for _ in range(200):
            loop.call_soon(answered.release)
            assert answered.acquire(timeout=30)
        loop.stop()

    helper = in_thread(ask)
    loop.run()
    helper.join()


def test_a_callback_that_asks_again_does_not_keep_others_waiting(loop: Loop, pipe: tuple[int, int]) -> None:
    reader, writer = pipe

    def again() -> None:
        loop.call_soon(again)

    loop.add_fd(reader, loop.stop)
    loop.call_soon(again)
    loop.call_soon(os.write, writer, b'x')
    loop.run()


# timers


def test_timers_run_in_the_order_of_their_deadlines(loop: Loop) -> None:
    seen: list[str] = []
    now = time.monotonic()
    loop.call_at(now + 0.03, seen.append, 'third')
    loop.call_at(now + 0.01, seen.append, 'first')
    loop.call_at(now + 0.04, loop.stop)
    loop.call_at(now + 0.02, seen.append, 'second')
    loop.run()
    assert seen == ['first', 'second', 'third']


def test_timers_of_one_deadline_run_in_the_order_in_which_they_were_made(loop: Loop) -> None:
    seen: list[int] = []
    now = time.monotonic()
    for number in range(50):
        loop.call_at(now, seen.append, number)
    loop.call_at(now, loop.stop)
    loop.run()
    assert seen == list(range(50))


def test_a_timer_never_runs_before_its_deadline(loop: Loop) -> None:
    deadline = time.monotonic() + 0.0123
    seen: list[float] = []
    loop.call_at(deadline, lambda: seen.append(time.monotonic()))
    loop.call_at(deadline, loop.stop)
    loop.run()
    assert seen[0] >= deadline


def test_a_cancelled_timer_does_not_run(loop: Loop) -> None:
    seen: list[str] = []
    now = time.monotonic()
    early = loop.call_at(now, seen.append, 'early')
    late = loop.call_at(now + 0.01, seen.append, 'late')
    loop.call_at(now, late.cancel)
    loop.call_at(now + 0.02, loop.stop)
    early.cancel()
    early.cancel()
    loop.run()
    assert seen == []


def test_a_timer_can_be_cancelled_by_one_that_is_due_at_the_same_time(loop: Loop) -> None:
    seen: list[str] = []
    now = time.monotonic()
    timers: list[Any] = []
    loop.call_at(now, lambda: timers[0].cancel())
    timers.append(loop.call_at(now, seen.append, 'cancelled'))
    loop.call_at(now, loop.stop)
    loop.run()
    assert seen == []


def test_a_timer_that_ran_can_be_cancelled(loop: Loop) -> None:
    timer = loop.call_later(0, loop.stop)
    loop.run()
    timer.cancel()


def test_a_timer_that_always_comes_again_does_not_keep_others_waiting(loop: Loop) -> None:
    def again() -> None:
        loop.call_at(0.0, again)

    again()
    loop.call_soon(loop.stop)
    loop.run()


def test_cancelled_timers_do_not_pile_up(loop: Loop) -> None:
    loop.call_later(3600, loop.stop)
    for _ in range(10_000):
        loop.call_later(3600, loop.stop).cancel()
    assert len(loop._timers) < 3000


def test_an_endless_deadline_is_no_problem(loop: Loop) -> None:
    seen: list[str] = []
    loop.call_later(float('inf'), seen.append, 'the end of time')
    helper = in_thread(loop.stop)
    loop.run()
    helper.join()
    assert seen == []


def test_tidying_up_keeps_the_timers_that_are_due(loop: Loop) -> None:
    seen: list[int] = []
    now = time.monotonic()

    def many() -> None:
        for _ in range(3000):
            loop.call_later(3600, seen.append, -1).cancel()

    loop.call_at(now, many)
    for number in range(10):
        loop.call_at(now, seen.append, number)
    loop.call_at(now, loop.stop)
    loop.run()
    assert seen == list(range(10))


# file descriptors


def test_a_readable_descriptor_calls_back_until_it_is_read(loop: Loop, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    seen: list[bytes] = []

    def read() -> None:
        seen.append(os.read(reader, 1))
        if len(seen) == 3:
            loop.stop()

    loop.add_fd(reader, read)
    os.write(writer, b'abc')
    loop.run()
    assert seen == [b'a', b'b', b'c']


def test_a_closed_other_end_is_told(loop: Loop, pipe: tuple[int, int]) -> None:
    reader, _ = pipe
    other_reader, other_writer = os.pipe()
    loop.add_fd(other_reader, loop.stop)
    loop.add_fd(reader, lambda: pytest.fail('nothing was written here'))
    loop.call_soon(os.close, other_writer)
    loop.run()
    loop.remove_fd(other_reader)
    os.close(other_reader)


def test_a_removed_descriptor_is_not_called_any_more(loop: Loop, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    loop.add_fd(reader, lambda: pytest.fail('it was removed'))
    os.write(writer, b'x')
    loop.remove_fd(reader)
    loop.remove_fd(reader)
    loop.remove_fd(987_654)
    loop.call_later(0.01, loop.stop)
    loop.run()


def test_a_callback_may_remove_descriptors_that_are_ready_at_the_same_time(loop: Loop) -> None:
    pipes = [os.pipe() for _ in range(4)]
    called: list[int] = []

    def read(fd: int) -> None:
        called.append(fd)
        for each, _ in pipes:
            loop.remove_fd(each)
        loop.call_soon(loop.stop)

    for reader, writer in pipes:
        loop.add_fd(reader, partial(read, reader))
        os.write(writer, b'x')
    loop.run()
    assert len(called) == 1
    for fd in (fd for pair in pipes for fd in pair):
        os.close(fd)


def test_an_event_of_a_closed_descriptor_does_not_reach_its_successor_of_the_same_number(loop: Loop) -> None:
    """What happens when one process ends, is forgotten, and another one gets its descriptor's number."""
    spare = os.pipe()
    first, second = os.pipe(), os.pipe()
    for _, writer in (first, second):
        os.write(writer, b'x')

    def replace(mine: int, victim: int) -> None:
        loop.remove_fd(mine)
        loop.remove_fd(victim)
        os.dup2(spare[0], victim)   # the same number, and nothing to read
        loop.add_fd(victim, lambda: pytest.fail('nothing was written here'))
        loop.call_later(0.01, loop.stop)

    loop.add_fd(first[0], lambda: replace(first[0], second[0]))
    loop.add_fd(second[0], lambda: replace(second[0], first[0]))
    loop.run()
    for fd in (*spare, *first, *second):
        loop.remove_fd(fd)
        os.close(fd)


# ZeroMQ sockets


def test_a_socket_with_messages_calls_back_until_they_are_received(
        loop: Loop, sockets: tuple[zmq.Socket[Any], zmq.Socket[Any]]) -> None:
    one, other = sockets
    seen: list[bytes] = []

    def receive() -> None:
        seen.append(one.recv())
        if len(seen) == 3:
            loop.stop()

    loop.add_socket(one, receive)
    for text in (b'a', b'b', b'c'):
        other.send(text)
    loop.run()
    assert seen == [b'a', b'b', b'c']


def test_sockets_and_descriptors_take_turns(
        loop: Loop, pipe: tuple[int, int], sockets: tuple[zmq.Socket[Any], zmq.Socket[Any]]) -> None:
    reader, writer = pipe
    one, other = sockets
    seen: set[str] = set()

    def note(what: str) -> None:
        seen.add(what)
        if len(seen) == 2:
            loop.stop()

    loop.add_socket(one, lambda: note('socket'))   # never received: it stays readable
    loop.add_fd(reader, lambda: note('descriptor'))
    other.send(b'x')
    os.write(writer, b'x')
    loop.run()


def test_a_socket_that_was_read_meanwhile_is_not_called(
        loop: Loop, pipe: tuple[int, int], sockets: tuple[zmq.Socket[Any], zmq.Socket[Any]]) -> None:
    """Callbacks may wait for a message: with none, the loop would hang."""
    one, other = sockets
    received: list[bytes] = []

    def receive() -> None:
        received.append(one.recv(zmq.NOBLOCK))
        os.write(pipe[1], b'.')

    def read_meanwhile() -> None:
        os.read(pipe[0], 1)
        received.append(one.recv(zmq.NOBLOCK))
        loop.call_later(0.05, loop.stop)

    loop.add_socket(one, receive)
    loop.add_fd(pipe[0], read_meanwhile)
    other.send(b'first')
    other.send(b'second')
    loop.run()
    assert received == [b'first', b'second']


def test_a_removed_socket_is_not_called_any_more(
        loop: Loop, sockets: tuple[zmq.Socket[Any], zmq.Socket[Any]]) -> None:
    one, other = sockets
    loop.add_socket(one, lambda: pytest.fail('it was removed'))
    loop.remove_socket(one)
    loop.remove_socket(one)
    loop.remove_socket(other)
    other.send(b'x')
    loop.call_later(0.01, loop.stop)
    loop.run()


# the end


def test_stop_before_run_makes_it_return_at_once(loop: Loop) -> None:
    loop.call_soon(pytest.fail, 'the loop was stopped before')
    loop.stop()
    loop.run()


@pytest.mark.parametrize('way', ['soon', 'timer'])
def test_nothing_is_called_after_stop(loop: Loop, way: str) -> None:
    ask = loop.call_soon if way == 'soon' else lambda *args: loop.call_at(0.0, *args)
    ask(loop.stop)
    ask(pytest.fail, 'the loop was stopped before')
    loop.call_soon(pytest.fail, 'the loop was stopped before')
    loop.run()


def test_a_stopped_loop_runs_again(loop: Loop) -> None:
    loop.stop()
    loop.run()
    called: list[str] = []
    loop.call_soon(called.append, 'again')
    loop.call_soon(loop.stop)
    loop.run()
    assert called == ['again']


def test_stop_from_another_thread_ends_a_sleeping_loop(loop: Loop) -> None:
    running = threading.Event()

    def stop() -> None:
        assert running.wait(30)
        loop.stop()

    helper = in_thread(stop)
    loop.call_soon(running.set)
    loop.run()
    helper.join()


@pytest.mark.parametrize('way', ['soon', 'timer', 'fd', 'socket'])
def test_an_exception_ends_run_and_is_raised_from_it(
        loop: Loop, pipe: tuple[int, int], sockets: tuple[zmq.Socket[Any], zmq.Socket[Any]], way: str) -> None:
    def fail() -> None:
        raise ZeroDivisionError('on purpose')

    if way == 'soon':
        loop.call_soon(fail)
    elif way == 'timer':
        loop.call_later(0, fail)
    elif way == 'fd':
        loop.add_fd(pipe[0], fail)
        os.write(pipe[1], b'x')
    else:
        loop.add_socket(sockets[0], fail)
        sockets[1].send(b'x')
    with pytest.raises(ZeroDivisionError, match='on purpose'):
        loop.run()


def test_close_can_be_repeated_and_later_calls_are_harmless() -> None:
    loop = Loop()
    loop.close()
    loop.close()
    loop.call_soon(pytest.fail, 'the loop is closed')
    loop.stop()
    helper = in_thread(loop.stop)
    helper.join()


def test_a_loop_is_not_closed_while_it_is_being_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the waker might write into whatever got the number of the closed descriptor."""
    loop = Loop()
    waking, closed = threading.Event(), threading.Event()
    write = os.eventfd_write
    errors: list[OSError] = []

    def hesitate(fd: int, value: int) -> None:
        waking.set()
        closed.wait(0.1)   # comes too early if the loop can be closed now
        try:
            write(fd, value)
        except OSError as error:
            errors.append(error)

    def close() -> None:
        assert waking.wait(30)
        loop.close()
        closed.set()

    monkeypatch.setattr(os, 'eventfd_write', hesitate)
    helper = in_thread(close)
    loop.call_soon(int)
    helper.join()
    assert errors == []


def test_a_loop_leaves_no_descriptors_behind(sockets: tuple[zmq.Socket[Any], zmq.Socket[Any]]) -> None:
    one, other = sockets

    def use() -> None:
        reader, writer = os.pipe()
        loop = Loop()
        loop.add_fd(reader, loop.stop)
        loop.add_socket(one, lambda: os.write(writer, one.recv()))
        other.send(b'x')
        loop.run()
        loop.close()
        os.close(reader)
        os.close(writer)

    use()   # what is made on first use may stay
    before = open_descriptors()
    for _ in range(5):
        use()
    assert open_descriptors() <= before
