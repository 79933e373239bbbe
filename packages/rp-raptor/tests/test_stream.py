"""Streams of calls, against a master that is a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice, repeat
from typing import Any

import pytest
from standin_master import StandinMaster

from rp_api.errors import SerializationError
from rp_raptor.client import application_link
from rp_raptor.client.futures import Executor
from rp_raptor.client.stream import checked_attributes, stream
from rp_raptor.client.streamed import Call
from rp_raptor.errors import CallLost
from rp_raptor.objects.reference import ObjectRef, ObjectStore, own
from rp_raptor.wire.payload import call_encoder

Make = Callable[..., StandinMaster]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[StandinMaster] = []

    def make(**options: Any) -> StandinMaster:
        made.append(StandinMaster(**options))
        return made[-1]

    yield make
    for master in made:
        master.close()


def half(number: int) -> float:
    return number / 2


def inverse(number: int) -> float:
    return 1 / number


def held(master: StandinMaster, number: int) -> None:
    """Wait until the master holds so many calls."""
    arrived = threading.Event()

    def look() -> None:
        if len(master.held) >= number:
            arrived.set()
        else:
            master._loop.call_later(0.001, look)

    master.do(look)
    assert arrived.wait(20), f'{len(master.held)} calls are held'


def told(master: StandinMaster, operation: str) -> None:
    """Wait until the master has got that message."""
    arrived = threading.Event()

    def look() -> None:
        if operation in master.seen:
            arrived.set()
        else:
            master._loop.call_later(0.001, look)

    master.do(look)
    assert arrived.wait(20)


def in_thread(calls: Iterator[Call]) -> tuple[threading.Thread, list[Call]]:
    """Take all calls in a thread, into the list."""
    taken: list[Call] = []
    thread = threading.Thread(target=lambda: taken.extend(calls))
    thread.start()
    return thread, taken


@pytest.mark.parametrize('chunksize', [1, 7])
def test_each_item_has_one_call(make: Make, chunksize: int) -> None:
    calls = list(stream(make(), half, range(1000), chunksize=chunksize))
    assert sorted((call.index, call.item, call.result()) for call in calls) == [(n, n, n / 2) for n in range(1000)]


def test_nothing_to_do(make: Make) -> None:
    assert list(stream(make(), half, [])) == []


def test_endless_items_and_the_window(make: Make) -> None:
    master = make(hold=True)
    taken = count()
    calls = stream(master, half, (next(taken) for _ in count()), window=20)
    thread, _ = in_thread(islice(calls, 50))
    held(master, 20)
    assert next(taken) == 20
    master.release()
    thread.join(20)
    assert master.largest == 20


def test_ranks_have_enough_bytes_in_flight_and_few_have_less(make: Make) -> None:
    master = make(hold=True)
    item = bytes(30_000)
    few, many = (-(-limit // len(call_encoder(bytes(16))((item,)))) for limit in (16 << 20, 64 << 20))
    thread, taken = in_thread(stream(master, len, repeat(item, 3000)))
    held(master, few)
    master.do(lambda: None)
    assert master.largest == few
    master.tell_ranks(1000)
    held(master, many)
    master.do(lambda: None)
    assert master.largest == many
    master.release()
    thread.join(60)
    assert [call.result() for call in taken] == [len(item)] * 3000


def test_the_room_of_the_master_is_kept(make: Make) -> None:
    master = make(room=5, hold=True)
    thread, taken = in_thread(stream(master, half, range(100)))
    held(master, 5)
    master.do(lambda: None)
    assert master.largest == 5
    master.release()
    thread.join(20)
    assert len(taken) == 100


@pytest.mark.parametrize('chunksize', [1, 4])
def test_a_call_that_fails_is_among_the_others(make: Make, chunksize: int) -> None:
    calls = {call.item: call for call in stream(make(), inverse, range(10), chunksize=chunksize)}
    assert len(calls) == 10
    assert isinstance(calls[0].exception, ZeroDivisionError)
    assert 'in inverse' in str(calls[0].exception.__cause__)
    with pytest.raises(ZeroDivisionError):
        calls[0].result()
    assert calls[5].exception is None
    assert calls[5].result() == 0.2


def test_an_item_that_cannot_travel(make: Make) -> None:
    calls = {call.index: call for call in stream(make(), id, [1, threading.Lock(), 3])}
    assert isinstance(calls[1].exception, SerializationError)
    assert calls[0].exception is calls[2].exception is None


@pytest.mark.parametrize('chunksize', [1, 7])
@pytest.mark.parametrize('number', [0, 1, 30, 1000])
def test_a_failing_iterable_ends_the_stream_after_the_calls_before(make: Make, number: int, chunksize: int) -> None:
    def items() -> Iterator[int]:
        yield from range(number)
        raise LookupError('no more')

    calls = stream(make(), half, items(), chunksize=chunksize, window=100)
    assert sorted(call.result() for call in islice(calls, number)) == [n / 2 for n in range(number)]
    with pytest.raises(LookupError, match='no more'):
        next(calls)
    assert next(calls, None) is None


def test_results_come_while_items_are_slow(make: Make) -> None:
    """An item that needs the result of the one before it, as when a search is steered."""
    results: list[float] = [8]
    go_on = threading.Semaphore(1)

    def items() -> Iterator[float]:
        for _ in range(5):
            while not go_on.acquire(timeout=0.01):
                yield -1.0
            yield results[-1]

    for call in stream(make(), half, items()):
        if call.item >= 0:
            results.append(call.result())
            go_on.release()
    assert results[-1] < 1


def test_attributes_go_with_each_call(make: Make) -> None:
    master = make()
    list(stream(master, half, range(3), timeout=5, ranks=2))
    assert list(master.attributes.values()) == [{'timeout': 5, 'ranks': 2}] * 3


def test_a_stream_that_is_left_tells_the_master(make: Make) -> None:
    master = make()
    with_some_left = stream(master, half, count(), window=10)
    assert next(with_some_left).result() == 0
    with_some_left.close()   # type: ignore[attr-defined]
    told(master, 'close')


def test_a_master_that_starts_later(make: Make) -> None:
    master = make(up=False)
    thread, taken = in_thread(stream(master, half, range(3)))
    master.come_up()
    thread.join(20)
    assert len(taken) == 3


def test_a_master_that_never_starts(make: Make) -> None:
    master = make(up=False)
    master.exception = 'no such file'
    master.state = 'FAILED'
    with pytest.raises(CallLost, match='cannot be reached any more: it is FAILED: no such file'):
        list(stream(master, half, count()))


def test_a_master_that_dies_fails_its_calls(make: Make) -> None:
    master = make(hold=True)
    thread, taken = in_thread(stream(master, half, range(30)))
    held(master, 30)
    master.state = 'FAILED'
    thread.join(20)
    assert {type(call.exception) for call in taken} == {CallLost}
    assert len(taken) == 30


def test_no_master_is_left_for_the_other_items(make: Make) -> None:
    master = make(hold=True)
    calls = stream(master, half, count(), window=5)

    def stop() -> None:
        held(master, 5)
        master.tell_end('stop() was called')

    timer = threading.Thread(target=stop)
    timer.start()
    assert [type(next(calls).exception) for _ in range(5)] == [CallLost] * 5
    with pytest.raises(CallLost, match='stop\\(\\) was called'):
        next(calls)
    timer.join()


def test_another_master_takes_over(make: Make) -> None:
    first, second = make(hold=True), make(uid='raptor.0001', up=False)
    thread, taken = in_thread(stream([first, second], half, range(100), window=60))
    held(first, 30)
    second.come_up()
    first.tell_end('its node is gone')
    thread.join(20)
    assert sorted(call.result() for call in taken) == [n / 2 for n in range(100)]


def test_masters_share_the_calls(make: Make) -> None:
    masters = [make(hold=True), make(uid='raptor.0001', hold=True)]
    thread, taken = in_thread(stream(masters, half, range(3000), window=2000))
    held(masters[0], 1000)
    held(masters[1], 1000)
    for master in masters:
        master.release()
    thread.join(20)
    assert len(taken) == 3000


def test_masters_get_shares_in_proportion_to_their_ranks(make: Make) -> None:
    masters = [make(hold=True, ranks=3), make(uid='raptor.0001', hold=True)]
    thread, taken = in_thread(stream(masters, half, range(400)))
    held(masters[0], 300)
    held(masters[1], 100)
    for master in masters:
        master.release()
    thread.join(20)
    assert len(taken) == 400


def test_a_master_without_workers_gets_calls_only_if_no_other_has_any(make: Make) -> None:
    without, other = make(hold=True, ranks=0), make(uid='raptor.0001', up=False)
    thread, taken = in_thread(stream([without, other], half, range(100)))
    held(without, 100)
    other.come_up()
    thread.join(20)
    assert sorted(call.result() for call in taken) == [n / 2 for n in range(100)]
    assert not without.held


def test_calls_that_have_not_started_go_to_a_master_that_comes_later(make: Make) -> None:
    first, second = make(hold=True), make(uid='raptor.0001', up=False)
    with Executor([first, second]) as executor:
        futures = [executor.submit(half, number) for number in range(50)]
        held(first, 50)
        second.come_up()
        for future in futures[1:]:
            future.result(20)
        assert len(first.held) == 1   # the call that its rank runs
        assert not futures[0].done()
        first.release()
        assert futures[0].result(20) == 0


def test_closing_a_stream_drops_its_calls_at_all_masters(make: Make) -> None:
    masters = [make(hold=True), make(uid='raptor.0001', hold=True)]
    calls = stream(masters, half, range(100), window=10)
    thread = threading.Thread(target=lambda: next(calls))
    thread.start()
    for master in masters:
        held(master, 5)
    masters[0].release()
    thread.join(20)
    calls.close()   # type: ignore[attr-defined]
    for master in masters:
        told(master, 'close')


def test_items_are_read_as_far_as_the_window_goes_over_several_masters(make: Make) -> None:
    masters = [make(hold=True, room=3), make(uid='raptor.0001', hold=True, room=2)]
    read: list[int] = []

    def items() -> Iterator[int]:
        for number in count():
            read.append(number)
            yield number

    calls = stream(masters, half, items(), window=20)
    thread = threading.Thread(target=lambda: next(calls))
    thread.start()
    held(masters[0], 3)
    held(masters[1], 2)
    assert len(read) == 20
    assert [master.largest for master in masters] == [3, 2]
    for master in masters:
        master.release()
    thread.join(20)
    calls.close()   # type: ignore[attr-defined]


def test_calls_go_out_again_when_a_connection_was_lost(make: Make) -> None:
    master = make(hold=True)
    thread, taken = in_thread(stream(master, half, range(40)))
    held(master, 40)
    master.break_connections()
    held(master, 40)
    master.release()
    thread.join(20)
    assert sorted(call.result() for call in taken) == [n / 2 for n in range(40)]


def test_a_silent_master_is_lost(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_link, 'SILENCE', 0.01)
    monkeypatch.setattr(application_link, 'PING', 3600)
    master = make(hold=True)
    calls = list(stream(master, half, range(3)))
    assert any(word in str(calls[0].exception) for word in ('sent nothing', 'no connection'))


def test_what_is_no_message_is_passed_over(make: Make) -> None:
    master = make(hold=True)
    thread, taken = in_thread(stream(master, half, range(3)))
    held(master, 3)
    master.send_raw(b'\xc1')
    master.send_raw(b'\x91\xa4calls')
    master.release()
    thread.join(20)
    assert len(taken) == 3


@pytest.mark.parametrize(('options', 'error', 'words'), [
    ({'window': 0}, ValueError, 'window must be a whole number of at least 1, not 0'),
    ({'chunksize': 'a'}, ValueError, "chunksize must be a whole number of at least 1, not 'a'"),
    ({'timeout': -1}, ValueError, 'timeout of a call must be a number, not -1'),
    ({'timeout': 'soon'}, ValueError, "timeout is 'soon', it must be a number of seconds"),
    ({'ranks': 1.5}, ValueError, 'ranks of a call must be a whole number of at least 1, not 1.5'),
    ({'colour': 1}, TypeError, "'colour' is not an attribute of a call: allowed are cores, gpus, ranks, timeout")])
def test_bad_options(make: Make, options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        stream(make(), half, [1], **options)


def test_bad_masters_and_functions(make: Make) -> None:
    with pytest.raises(TypeError, match=r'a master must be a handle that submit_raptors\(\) returns'):
        stream('raptor.0000', half, [])   # type: ignore[arg-type]
    with pytest.raises(ValueError, match='at least one master'):
        stream([], half, [])
    with pytest.raises(TypeError, match='only a callable can be sent'):
        stream(make(), 3, [])   # type: ignore[arg-type]


def test_a_master_that_cannot_be_reached(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_link, 'SILENCE', 0.01)
    master = make(up=False)
    master.come_up()
    master.access = {**(master.access or {}), 'address': 'ipc:///nowhere/s'}
    with pytest.raises(CallLost, match='no connection to ipc:///nowhere/s within'):
        list(stream(master, half, count()))


def test_masters_hear_of_an_object_before_the_calls_with_it(make: Make) -> None:
    """Each of them does, whether it is in an argument or in the function."""
    masters = [make(uid=f'raptor.{number:04d}') for number in range(2)]
    store = ObjectStore()
    ref = ObjectRef(own(store, 1, 'raptor.0000'))
    for function, items in ((type, [ref] * 200), (partial(isinstance, ref), [int] * 200)):
        assert [call.exception for call in stream(masters, function, items)] == [None] * 200
    ref.release()
    for master in masters:
        assert 'calls' not in master.seen or master.seen.index('put_object') < master.seen.index('calls')
    assert any('calls' in master.seen for master in masters)
    with pytest.raises(SerializationError, match='was released'):
        stream(masters, partial(isinstance, ref), [int])
    store.close()


def test_a_master_hears_of_objects_again_after_a_reconnection(make: Make) -> None:
    """Before the calls that it gets again."""
    master, store = make(hold=True), ObjectStore()
    with Executor(master) as executor:
        ref = ObjectRef(own(store, 1, 'raptor.0000'))
        future = executor.submit(type, ref)
        held(master, 1)
        master.break_connections()
        held(master, 1)
        master.release()
        assert future.result(10) is ObjectRef
    relevant = [operation for operation in master.seen if operation in ('put_object', 'calls')]
    assert relevant == ['put_object', 'calls'] * 2
    store.close()


def test_the_time_limit_of_a_call_may_have_a_unit() -> None:
    assert checked_attributes({'timeout': '1h', 'ranks': 2}) == {'timeout': 3600.0, 'ranks': 2}
