"""The rules of `rp.Executor` that need no session: requirements, dependencies, and shares of a pilot."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import radical.pilot as rp
from rp_client.executor.allocation import describe
from rp_client.executor.deferred import Waiting, futures_in, with_values
from rp_client.executor.futures import DroppableFuture
from rp_client.executor.programs import Program, Programs, texts
from rp_client.executor.requirements import (
    PilotSize,
    RankNeed,
    Requirements,
    Shape,
    check,
    checked,
    fits,
    most_ranks,
    ranks_of_workers,
)

NODE = PilotSize(8, 2, 1)
TWO = PilotSize(16, 4, 2)


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


@pytest.mark.parametrize(('runtime', 'found'), [
    ('1h', 60), ('90m', 90), ('90 min', 90), ('1h30m', 90), ('1d 12h', 2160), ('30s', 1), (15, 15), (0.5, 1),
    (timedelta(hours=2), 120), (timedelta(seconds=61), 2)])
def test_run_times(runtime: Any, found: int) -> None:
    assert of_runtime(runtime) == found


@pytest.mark.parametrize('runtime', ['', 'an hour', '1x', 0, -1, '0m', timedelta(0), [], float('nan')])
def test_bad_run_times(runtime: Any) -> None:
    with pytest.raises(ValueError, match=r'Description.runtime (must be a number of minutes|is .*, but must be 1)'):
        of_runtime(runtime)


def of_runtime(runtime: Any) -> int:
    """The minutes of the pilot that an executor with this run time starts."""
    found: int = describe(1, None, None, None, runtime, None, None).runtime
    return found


@pytest.mark.parametrize(('given', 'words'), [
    ({'ranks': 0}, 'ranks is 0, it must be a whole number of at least 1'), ({'ranks': 1.5}, 'ranks is 1.5'),
    ({'cores_per_rank': '2'}, "cores_per_rank is '2'"), ({'gpus_per_rank': -1}, 'gpus_per_rank is -1'),
    ({'timeout': None}, 'timeout is None'), ({'retries': -1}, 'retries is -1')])
def test_bad_requirements(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        checked(given, Requirements())


def test_unknown_requirements() -> None:
    with pytest.raises(TypeError, match="'rank' is not a requirement of a call: allowed are ranks, cores_per_rank"):
        checked({'rank': 1}, Requirements())


def test_requirements_add_up() -> None:
    found = checked({'timeout': 3}, checked({'ranks': 2}, Requirements()))
    assert found == Requirements(ranks=2, timeout=3)
    assert found.of_call == {'ranks': 2, 'timeout': 3}
    assert Requirements().of_call == {}


def test_an_executor_stays_while_its_options_do() -> None:
    executor = rp.Executor(cores=1).options(retries=2).options(timeout=3)
    executor._manager.check_open()
    executor.shutdown()


@pytest.mark.parametrize(('given', 'words'), [
    ({'cores': 0}, 'cores is 0, it must be a whole number of at least 1'), ({'nodes': '2'}, "nodes is '2'"),
    ({'gpus': -1}, 'gpus is -1'), ({'resource': 'ncsa.delta'}, 'runtime is not set')])
def test_bad_pilots(given: dict[str, Any], words: str) -> None:
    arguments = dict.fromkeys(('cores', 'nodes', 'gpus', 'resource', 'runtime', 'project', 'queue')) | given
    with pytest.raises(ValueError, match=words):
        describe(**arguments)


def test_pilots() -> None:
    description = describe(None, None, 4, 'ncsa.delta', '1h', 'abc', 'gpu')
    assert (description.nodes, description.gpus, description.runtime, description.project) == (0, 4, 60, 'abc')
    assert describe(None, None, None, 'ncsa.delta', '1h', None, None).nodes == 1
    assert describe(None, None, None, None, None, None, None).cores >= 1


def test_futures_are_found_one_level_deep() -> None:
    one, two, three, deep = done(1), done(2), done(3), done(4)
    args, kwargs = (one, [two, one], 5), {'key': {'a': three}, 'other': [[deep]]}
    assert futures_in(args, kwargs) == [one, two, three]
    assert with_values(args, kwargs) == ((1, [2, 1], 5), {'key': {'a': 3}, 'other': [[deep]]})
    assert with_values(((one, two),), {}) == (((1, 2),), {})


def test_waiting_for_futures() -> None:
    actions: list[Callable[[], object]] = []
    log: list[Any] = []
    first, second = DroppableFuture(lambda: None), DroppableFuture(lambda: None)

    def wait_for(*waited: Future[Any]) -> None:
        Waiting(waited, actions.append, lambda: log.append('ready'), log.append)

    def act() -> None:
        while actions:
            actions.pop(0)()

    wait_for(first, done(1))
    wait_for(first, second)
    wait_for(second, first)
    act()
    assert log == []
    second.set_exception(KeyError('second'))
    act()
    assert log == [second, second]
    first.set_result(1)
    act()
    assert log == [second, second, 'ready']
    third = DroppableFuture(lambda: None)
    wait_for(third)
    third.cancel()
    act()
    assert log[3:] == [third]


def test_a_cancelled_future_is_told_once() -> None:
    dropped: list[int] = []
    future = DroppableFuture(lambda: dropped.append(1))
    assert future.cancel()
    assert future.cancel()
    assert dropped == [1]
    assert wait([future], 1).done == {future}
    future.copy(done(2))
    assert future.cancelled()


def test_arguments_of_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert texts(['a', 7, 0.5, Path('/x')]) == ['a', '7', '0.5', '/x']
    for wrong in (None, b'bytes', ['list']):
        with pytest.raises(TypeError, match=r'argument 1 of the program is .* it must be text, a path or a number'):
            texts(['a', wrong])
    monkeypatch.chdir(tmp_path)
    Path('simulate').touch()
    assert Programs().describe('./simulate', {}).executable == str(tmp_path / 'simulate')
    assert Programs().describe('./elsewhere', {}).executable == './elsewhere'


@pytest.mark.parametrize(('executable', 'attributes', 'words'), [
    ('', {}, "the executable is ''"), (None, {}, 'the executable is None'), ('true', {'ranks': 0}, 'ranks'),
    ('true', {'rank': 1}, 'rank')])
def test_bad_programs(executable: Any, attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Programs().describe(executable, attributes)


def test_arguments_come_as_in_a_call() -> None:
    with pytest.raises(TypeError, match="not 'arguments'"):
        Programs().describe('true', {'arguments': ['a']})


@pytest.mark.parametrize(('attributes', 'need'), [
    ({}, RankNeed(1, 0, True)), ({'ranks': 4}, RankNeed(4, 0, True)),
    ({'ranks': 2, 'cores_per_rank': 3}, RankNeed(6, 0, False)),
    ({'ranks': 2, 'gpus_per_rank': 1}, RankNeed(2, 2, False)), ({'tags': {'nodes': [1]}}, RankNeed(1, 0, False))])
def test_needs(attributes: dict[str, Any], need: RankNeed) -> None:
    description = rp.TaskDescription({'executable': 'true'} | attributes)
    assert Program(description, True, lambda _: None).need == need


def test_shapes_of_workers() -> None:
    assert Shape().widened(1, 1, 0) == Shape()
    assert Shape().widened(1, 4, 0) == Shape(width=4)
    assert Shape().widened(4, 1, 0) == Shape(width=4, mpi=True)
    assert Shape().widened(2, 3, 0) == Shape(cores=3, width=2, mpi=True)
    assert Shape().widened(1, 1, 0.5) == Shape(gpus=1)
    assert Shape(gpus=1).widened(1, 1, 2) == Shape(gpus=1, width=2)
    assert Shape(width=4, mpi=True).widened(1, 1, 0) == Shape(width=4, mpi=True)


def test_shares() -> None:
    assert most_ranks(NODE, Shape()) == 8
    assert most_ranks(NODE, Shape(gpus=1)) == 2
    assert most_ranks(TWO, Shape(cores=3)) == 4
    assert ranks_of_workers(NODE, Shape(), programs=False) == 8
    assert ranks_of_workers(NODE, Shape(), programs=True) == 4
    assert ranks_of_workers(NODE, Shape(width=6), programs=True) == 6
    assert ranks_of_workers(PilotSize(1, 0, 1), Shape(), programs=True) == 1
    with pytest.raises(ValueError, match='a call needs 9 ranks with 1 cores and 0 GPUs each'):
        check(NODE, Shape(width=9))


@pytest.mark.parametrize(('need', 'size', 'fit'), [
    (RankNeed(4, 0, True), NODE, True), (RankNeed(5, 0, True), NODE, False), (RankNeed(4, 0, False), NODE, True),
    (RankNeed(4, 0, False), TWO, False), (RankNeed(12, 0, True), TWO, True), (RankNeed(1, 3, False), NODE, False)])
def test_programs_beside_workers(need: RankNeed, size: PilotSize, fit: bool) -> None:
    assert fits(need, size, Shape(), 4) is fit
