"""The executor, against a master that is a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, TimeoutError, as_completed, wait
from itertools import count, islice
from typing import Any

import pytest
from standin_master import StandinMaster

from rp_api.errors import DeserializationError, SerializationError
from rp_raptor.client.futures import Executor
from rp_raptor.errors import CallLost, RemoteError
from rp_raptor.wire.payload import kind_of

LONG = 20.0


@pytest.fixture
def master() -> Iterator[StandinMaster]:
    made = StandinMaster()
    yield made
    made.close()


@pytest.fixture
def executor(master: StandinMaster) -> Iterator[Executor]:
    with Executor(master) as made:
        yield made


def power(base: int, exponent: int = 2) -> int:
    return int(base ** exponent)


def inverse(number: int) -> float:
    return 1 / number


def eventually(condition: Callable[[], Any]) -> None:
    """Wait until it is true."""
    pause = threading.Event()
    for _ in range(int(LONG / 0.005)):
        if condition():
            return
        pause.wait(0.005)
    pytest.fail('it did not come true')


def test_submit(executor: Executor) -> None:
    futures = [executor.submit(power, n) for n in range(100)]
    assert [future.result(LONG) for future in futures] == [n * n for n in range(100)]
    assert executor.submit(power, 2, exponent=10).result(LONG) == 1024


def test_as_completed_and_callbacks(executor: Executor) -> None:
    called: list[int] = []
    futures = {executor.submit(power, n): n for n in range(20)}
    for future in futures:
        future.add_done_callback(lambda done: called.append(done.result()))
    assert {futures[future]: future.result() for future in as_completed(futures, LONG)} == {
        n: n * n for n in range(20)}
    assert sorted(called) == [n * n for n in range(20)]


def test_a_callback_may_submit(executor: Executor) -> None:
    second: list[Any] = []
    executor.submit(power, 3).add_done_callback(lambda done: second.append(executor.submit(power, done.result())))
    eventually(lambda: second)
    assert second[0].result(LONG) == 81


def test_an_exception_has_the_traceback_of_the_worker(executor: Executor) -> None:
    error = executor.submit(inverse, 0).exception(LONG)
    assert isinstance(error, ZeroDivisionError)
    assert 'in inverse' in str(error.__cause__)


def test_closures_are_sent_as_they_are_now(executor: Executor) -> None:
    factor = 1

    def times(number: int) -> int:
        return factor * number

    futures = []
    for number in (2, 3, 4):
        factor = number
        futures.append(executor.submit(times, 10))
    assert [future.result(LONG) for future in futures] == [20, 30, 40]


def test_lambdas_do_not_pile_up(executor: Executor, master: StandinMaster) -> None:
    futures = [executor.submit(lambda n=n: n + 1) for n in range(50)]
    assert [future.result(LONG) for future in futures] == list(range(1, 51))
    assert len(master._functions) == 1
    for n in range(50):
        assert executor.submit(power, n).result(LONG) == n * n
    assert len(master._functions) == 2


def script(text: str) -> dict[str, Any]:
    """The global variables of a script with this text, whose functions travel by value."""
    variables: dict[str, Any] = {'__name__': '__main__'}
    exec(text, variables)
    return variables


@pytest.mark.parametrize('value', ['{}', '[{}]', 'bytearray([{}])'])
def test_functions_are_sent_as_they_are_now(executor: Executor, value: str) -> None:
    """However often they were called before, and whether a snapshot of the variable can be made or not."""
    variables = script('K = 0\ndef helper(): return K\ndef f(x=0): return helper()')
    futures, expected = [], []
    for number in (1, 1, 1, 2, 2, 2, 1, 1, 1, 3, 4, 4, 3, 3):
        variables['K'] = eval(value.format(number))
        futures += [executor.submit(variables['f']), executor.submit(variables['f'], 1)]
        results = list(executor.map(variables['f'], [0, 1], chunksize=2))
        assert results == [variables['K']] * 2
        expected += [variables['K']] * 2
    assert [future.result(LONG) for future in futures] == expected


@pytest.mark.parametrize('value', ['1', '[1, {2: "x"}]', 'bytearray(b"x")'])
def test_a_function_that_does_not_change_is_defined_once(executor: Executor, master: StandinMaster, value: str) -> None:
    variables = script(f'K = {value}\ndef f(): return K')
    for _ in range(20):
        assert executor.submit(variables['f']).result(LONG) == variables['K']
    assert len(master._functions) == 2   # with that which calls functions that are sent along


def test_versions_of_a_function_do_not_pile_up(executor: Executor, master: StandinMaster) -> None:
    variables = script('K = 0\ndef f(): return K')
    for number in range(100):
        variables['K'] = number
        assert [executor.submit(variables['f']).result(LONG) for _ in range(3)] == [number] * 3
    assert len(master._functions) < 20


def test_a_prepared_function_is_called_as_it_was(executor: Executor) -> None:
    variables = script('K = 0\ndef f(x): return K, x')
    prepared = []
    for number in (1, 1, 1, 2, 3, 3, 3):
        variables['K'] = number
        prepared.append((number, executor.prepare(variables['f'])))
    for number, function in prepared:
        assert executor.submit(function, 'x').result(LONG) == (number, 'x')


def test_what_cannot_travel_is_the_error_of_its_future(executor: Executor) -> None:
    futures = [executor.submit(power, threading.Lock()), executor.submit(threading.Lock().acquire),
               executor.submit(script('import threading\nLOCK = threading.Lock()\ndef f(): return LOCK')['f'])]
    errors = [future.exception(LONG) for future in futures]
    assert all(isinstance(error, SerializationError) for error in errors)
    assert 'global variable LOCK (_thread.lock)' in str(errors[2])
    with pytest.raises(TypeError, match='only a callable can be sent'):
        executor.submit(3)   # type: ignore[arg-type]
    assert executor.submit(power, 3).result(LONG) == 9


@pytest.mark.parametrize('chunksize', [1, 2])
def test_what_cannot_travel_ends_a_map_when_it_is_there(executor: Executor, chunksize: int) -> None:
    results = executor.map(power, [1, 2, threading.Lock(), 4], chunksize=chunksize)
    assert [next(results), next(results)] == [1, 4]
    with pytest.raises(SerializationError):
        next(results)
    results = executor.map(threading.Lock().acquire, [1])
    with pytest.raises(SerializationError):
        next(results)


class Raises:
    """Raises an exception where it is unpickled, as a module that calls `sys.exit` when it is imported."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __reduce__(self) -> tuple[Any, ...]:
        return raise_it, (self.kind,)


class RaisesAsError(Exception):
    def __init__(self, kind: type[BaseException]) -> None:
        super().__init__(kind)

    def __reduce__(self) -> tuple[Any, ...]:
        return raise_it, self.args


def raise_it(kind: type[BaseException]) -> Any:
    raise kind


def fail_with(error: Exception) -> None:
    raise error


@pytest.mark.parametrize('kind', [SystemExit, KeyboardInterrupt, GeneratorExit, BaseException, OSError])
def test_what_raises_when_it_is_unpickled_ends_its_own_call(executor: Executor, kind: type[BaseException]) -> None:
    value = executor.submit(Raises, kind)
    assert isinstance(value.exception(LONG), DeserializationError | KeyboardInterrupt)
    assert isinstance(executor.submit(lambda: fail_with(RaisesAsError(kind))).exception(LONG), RemoteError)
    if kind is not KeyboardInterrupt:   # which may be a Ctrl-C in the main thread, where a map has its results
        with pytest.raises(DeserializationError):
            list(executor.map(Raises, [kind]))
    assert executor.submit(power, 3).result(LONG) == 9


@pytest.mark.parametrize('chunksize', [1, 3, 1000])
def test_map_keeps_the_order(executor: Executor, chunksize: int) -> None:
    assert list(executor.map(power, range(50), chunksize=chunksize)) == [n * n for n in range(50)]
    assert list(executor.map(power, [2, 3, 4], [3, 2], chunksize=chunksize)) == [8, 9]


def test_map_of_endless_items(executor: Executor, master: StandinMaster) -> None:
    master.hold = True
    results = executor.map(power, count(), chunksize=2, buffersize=10)
    eventually(lambda: len(master.held) == 5)
    master.release()
    assert list(islice(results, 100)) == [n * n for n in range(100)]
    assert master.largest == 5


def test_map_over_several_ranks_sends_no_chunks(master: StandinMaster) -> None:
    master.hold = True
    with Executor(master, ranks=2) as executor:
        results = executor.map(power, range(5), chunksize=2)
        eventually(lambda: len(master.held) == 5)
        assert {kind_of(call) for _, _, call in master.held} == {b'F'}
        master.release()
        assert list(results) == [n * n for n in range(5)]


@pytest.mark.parametrize('chunksize', [1, 7])
@pytest.mark.parametrize('buffersize', [1, 1000])
def test_map_of_a_failing_iterable_has_the_results_before(executor: Executor, chunksize: int, buffersize: int) -> None:
    def items() -> Iterator[int]:
        yield from range(30)
        raise LookupError('no more')

    results = executor.map(power, items(), chunksize=chunksize, buffersize=buffersize)
    assert list(islice(results, 30)) == [n * n for n in range(30)]
    with pytest.raises(LookupError, match='no more'):
        next(results)


def test_map_of_nothing(executor: Executor) -> None:
    assert list(executor.map(power, [])) == []


@pytest.mark.parametrize('chunksize', [1, 2])
def test_map_raises_where_the_call_is(executor: Executor, chunksize: int) -> None:
    results = executor.map(inverse, [2, 1, 0, 1], chunksize=chunksize)
    assert [next(results), next(results)] == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert list(results) == []


def test_map_has_a_deadline(executor: Executor, master: StandinMaster) -> None:
    master.hold = True
    with pytest.raises(TimeoutError):
        list(executor.map(power, range(5), timeout=0))
    assert executor._futures == {}


@pytest.mark.parametrize(('options', 'words'), [
    ({'chunksize': 0}, 'chunksize must be a whole number of at least 1, not 0'),
    ({'buffersize': -1}, 'buffersize must be a whole number of at least 1, not -1')])
def test_bad_options_of_map(executor: Executor, options: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        executor.map(power, [1], **options)


def test_cancel_before_and_while_the_master_has_the_call(master: StandinMaster) -> None:
    master.hold = True
    with Executor(master) as executor:
        future, other = executor.submit(power, 3), executor.submit(power, 4)
        eventually(lambda: len(master.held) == 2)
        assert future.cancel()
        assert future.cancel()
        eventually(lambda: master.cancelled == {0})
        with pytest.raises(CancelledError):
            future.result(LONG)
        done, _ = wait([future], LONG)
        assert done == {future}
        master.release()
        assert other.result(LONG) == 16
        assert not other.cancel()


def test_shutdown_waits_for_what_was_submitted(master: StandinMaster) -> None:
    master.hold = True
    executor = Executor(master)
    future = executor.submit(power, 5)
    eventually(lambda: master.held)
    releasing = threading.Thread(target=master.release)
    releasing.start()
    executor.shutdown()
    assert future.result(0) == 25
    releasing.join()
    with pytest.raises(RuntimeError, match='after shutdown'):
        executor.submit(power, 1)
    executor.shutdown()


def test_shutdown_without_waiting(master: StandinMaster) -> None:
    master.hold = True
    executor = Executor(master)
    future = executor.submit(power, 5)
    executor.shutdown(wait=False)
    eventually(lambda: master.held)
    master.release()
    assert future.result(LONG) == 25   # and the thread for it ends: the fixtures look for it


def test_shutdown_with_cancelling(master: StandinMaster) -> None:
    master.hold = True
    executor = Executor(master)
    futures = [executor.submit(power, n) for n in range(5)]
    executor.shutdown(cancel_futures=True)
    assert all(future.cancelled() for future in futures)


def test_no_master_is_left(master: StandinMaster) -> None:
    master.hold = True
    with Executor(master) as executor:
        future = executor.submit(power, 1)
        eventually(lambda: master.held)
        master.tell_end('its node is gone')
        assert isinstance(future.exception(LONG), CallLost)
        with pytest.raises(CallLost, match='cannot be reached any more: its node is gone'):
            executor.submit(power, 2).result(LONG)


def test_attributes(master: StandinMaster) -> None:
    with Executor(master, timeout=3) as executor:
        executor.submit(power, 2).result(LONG)
    assert master.attributes == {0: {'timeout': 3}}
    with pytest.raises(TypeError, match="'colour' is not an attribute of a call"):
        Executor(master, colour=3)


def test_held_calls_return_and_those_that_run_finish(master: StandinMaster) -> None:
    master.hold = True
    idle = threading.Event()
    with Executor(master) as executor:
        futures = [executor.submit(power, n) for n in range(5)]
        eventually(lambda: len(master.held) == 5)
        executor.hold(idle.set)
        eventually(lambda: len(master.held) == 1)   # that of its only rank
        late = executor.submit(power, 5)
        assert not idle.is_set()
        master.release()
        assert idle.wait(LONG)
        assert futures[0].result(LONG) == 0
        assert executor.unfinished == 5
        assert not any(future.done() for future in [*futures[1:], late])
        executor.release()
        assert [future.result(LONG) for future in [*futures, late]] == [0, 1, 4, 9, 16, 25]


def test_cancelled_calls_do_not_keep_a_hold_from_its_end(master: StandinMaster) -> None:
    master.hold = True
    idle = threading.Event()
    with Executor(master) as executor:
        future = executor.submit(power, 2)
        eventually(lambda: master.held)
        executor.hold(idle.set)
        future.cancel()
        assert idle.wait(LONG)


def test_the_end_of_the_last_call_is_told(executor: Executor) -> None:
    ends: list[int] = []
    executor.on_idle(lambda: ends.append(executor.unfinished))
    executor.submit(power, 2).result(LONG)
    eventually(lambda: ends == [0])


def test_abandoned_calls_fail(master: StandinMaster) -> None:
    master.hold = True
    with Executor(master) as executor:
        futures = [executor.submit(power, n) for n in range(3)]
        futures[0].cancel()
        executor.abandon(KeyError('gone'))
        assert futures[0].cancelled()
        assert all(isinstance(future.exception(LONG), KeyError) for future in futures[1:])
        master.release()
