"""Objects are dropped with the last reference to them, without the cyclic collector."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from standin_master import StandinMaster

from rp_raptor.client.futures import Executor
from rp_raptor.client.stream import stream
from rp_raptor.objects.reference import ObjectRef, ObjectStore, own, set_resolver

Use = Callable[[StandinMaster, ObjectRef], object]


@pytest.fixture
def master() -> Iterator[StandinMaster]:
    made = StandinMaster()
    set_resolver(lambda id, master: 'the object')   # the calls run in this process, where references would be restored
    gc.collect()
    gc.disable()
    yield made
    gc.enable()
    made.close()
    set_resolver(None)


def used(ref: ObjectRef, number: int) -> float:
    return 1 / number


def whole_stream(master: StandinMaster, ref: ObjectRef) -> None:
    for call in stream(master, partial(used, ref), range(1, 200)):
        call.result()


def chunks_of_a_stream(master: StandinMaster, ref: ObjectRef) -> None:
    assert len(list(stream(master, partial(used, ref), range(1, 200), chunksize=7))) == 199


def arguments_of_a_stream(master: StandinMaster, ref: ObjectRef) -> None:
    for call in stream(master, type, [ref] * 200):
        call.result()


def stream_of_nothing(master: StandinMaster, ref: ObjectRef) -> None:
    assert list(stream(master, partial(used, ref), [])) == []


def stream_that_does_not_begin(master: StandinMaster, ref: ObjectRef) -> None:
    stream(master, partial(used, ref), [1])


def early_break(master: StandinMaster, ref: ObjectRef) -> None:
    for call in stream(master, type, (ref for _ in range(20_000))):
        if call.index == 50:
            break


def failing_stream(master: StandinMaster, ref: ObjectRef) -> None:
    assert sum(call.exception is not None for call in stream(master, partial(used, ref), [1, 0, 2])) == 1


def failing_iterable(master: StandinMaster, ref: ObjectRef) -> None:
    with suppress(ZeroDivisionError):
        list(stream(master, partial(used, ref), (1 / number for number in (1, 0))))


def generator_expression(master: StandinMaster, ref: ObjectRef) -> None:
    assert sum(1 for call in stream(master, partial(used, ref), range(1, 200)) if call.result()) == 199


def submit(master: StandinMaster, ref: ObjectRef) -> None:
    with Executor(master) as executor:
        assert [future.result(20) for future in [executor.submit(used, ref, 1) for _ in range(20)]] == [1.0] * 20


def failing_submit(master: StandinMaster, ref: ObjectRef) -> None:
    with Executor(master) as executor, pytest.raises(ZeroDivisionError):
        executor.submit(used, ref, 0).result(20)


def map_of_an_executor(master: StandinMaster, ref: ObjectRef) -> None:
    with Executor(master) as executor:
        assert list(executor.map(partial(used, ref), [1] * 20)) == [1.0] * 20


def map_that_is_left(master: StandinMaster, ref: ObjectRef) -> None:
    with Executor(master) as executor:
        assert next(executor.map(partial(used, ref), [1] * 200, buffersize=10)) == 1


def failing_map(master: StandinMaster, ref: ObjectRef) -> None:
    with Executor(master) as executor, pytest.raises(ZeroDivisionError):
        list(executor.map(partial(used, ref), [1, 0, 1]))


@pytest.mark.parametrize('use', [
    whole_stream, chunks_of_a_stream, arguments_of_a_stream, stream_of_nothing, stream_that_does_not_begin,
    early_break, failing_stream, failing_iterable, generator_expression, submit, failing_submit, map_of_an_executor,
    map_that_is_left, failing_map])
def test_a_released_object_is_dropped(master: StandinMaster, use: Use) -> None:
    store = ObjectStore()
    path = (owned := own(store, bytes(1000), 'raptor.0000')).path
    ref = ObjectRef(owned)
    del owned
    use(master, ref)
    ref.release()
    assert not os.path.exists(path)
    store.close()


def test_the_variable_of_a_loop_keeps_no_object(master: StandinMaster) -> None:
    store = ObjectStore()
    ref = ObjectRef(own(store, bytes(1000), 'raptor.0000'))
    path = ref._owned.path if ref._owned else ''
    for call in stream(master, partial(used, ref), range(1, 200)):
        assert call.result()
    ref.release()
    assert not os.path.exists(path)
    assert call.exception is None
    store.close()


def test_a_function_of_an_executor_keeps_its_objects_while_it_is_called(master: StandinMaster) -> None:
    """Not as long as the executor, and in a map until the last call is made."""
    store = ObjectStore()
    with Executor(master) as executor:
        ref = ObjectRef(own(store, bytes(1000), 'raptor.0000'))
        path = ref._owned.path if ref._owned else ''
        results = executor.map(partial(used, ref), [1] * 50, buffersize=1)
        ref.release()
        for _ in range(49):
            assert next(results) == 1
            assert os.path.exists(path)
        assert list(results) == [1]
        assert not os.path.exists(path)

        ref = ObjectRef(own(store, bytes(1000), 'raptor.0000'))
        path = ref._owned.path if ref._owned else ''
        functions: list[Any] = [global_function(ref)]
        for _ in range(3):   # the second call defines it
            assert executor.submit(functions[0], 2).result(20) == 0.5
        ref.release()
        assert not os.path.exists(path)
    store.close()


def global_function(ref: ObjectRef) -> Callable[[int], float]:
    def function(number: int, ref: ObjectRef = ref) -> float:
        return 1 / number
    return function
