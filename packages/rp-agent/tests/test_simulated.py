"""The executor without processes."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from executor_support import Harness, a_task
from leftovers import open_descriptors

from rp_agent.executor.simulated import SimulatedExecutor, duration, launch_model
from rp_agent.lookup import LaunchRefused
from rp_api import states


class Clock:
    """A loop's clock that jumps to the next deadline when there is nothing else to do; `now` is the time in seconds."""

    def __init__(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        harness.patience = math.inf   # the test's own time limit remains
        self._loop = harness.loop
        self._wait = harness.loop._wait
        monkeypatch.setattr(time, 'monotonic', lambda: self.now)
        monkeypatch.setattr(harness.loop, '_wait', self._jump)

    def _jump(self) -> None:
        self._loop._timeout()   # drops cancelled timers at the front
        if not self._loop._ready and self._loop._timers:
            self.now = max(self.now, self._loop._timers[0].deadline)
        self._wait()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Harness]]:
    made: list[Harness] = []

    def harness(options: dict[str, Any] | None = None, **arguments: Any) -> Harness:
        def executor(uid: str, tracer: Any, loop: Any, context: Any) -> SimulatedExecutor:
            return SimulatedExecutor(uid, tracer, loop, launch_model(options or {}))

        made.append(Harness(tmp_path, executor, **arguments))
        return made[-1]

    yield harness
    for each in made:
        each.close()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith('task.')] == [], 'a sandbox was made'


@pytest.fixture
def harness(make: Callable[..., Harness]) -> Harness:
    return make()


@pytest.mark.parametrize(('description', 'seconds'), [
    ({}, 0.0),
    ({'executable': 'sleep', 'arguments': ['3600']}, 3600.0),
    ({'executable': '/bin/sleep', 'arguments': ['1.5', '1m', '2h', '1d']}, 93661.5),
    ({'executable': 'sleep 10', 'arguments': []}, 10.0),
    ({'executable': 'sleep'}, 0.0),
    ({'executable': 'sleep', 'arguments': ['infinity']}, float('inf')),
    ({'executable': 'sleep', 'arguments': ['5'], 'metadata': {'duration': 7}}, 7.0),
    ({'executable': 'asleep', 'arguments': ['5']}, 0.0),
    ({'executable': '', 'metadata': {'duration': 0.5}}, 0.5),
])
def test_how_long_a_task_runs(description: dict[str, Any], seconds: float) -> None:
    assert duration(a_task(**description).description) == seconds


@pytest.mark.parametrize(('description', 'message'), [
    ({'executable': 'sleep', 'arguments': ['soon']}, "'soon' is not a time for sleep"),
    ({'executable': 'sleep', 'arguments': ['-1']}, "'-1' is not a time"),
    ({'executable': 'sleep', 'arguments': ['nan']}, "'nan' is not a time"),
    ({'executable': 'sleep', 'arguments': ['']}, "'' is not a time"),
    ({'metadata': {'duration': '5'}}, "metadata['duration'] is '5', allowed: a number of seconds"),
    ({'metadata': {'duration': -5}}, 'is -5, allowed'),
    ({'metadata': {'exit_code': 'x'}}, "metadata['exit_code'] is 'x', allowed: a whole number"),
])
def test_what_cannot_be_simulated_fails(harness: Harness, description: dict[str, Any], message: str) -> None:
    bad, good = harness.task('bad', **description), harness.task('good')
    harness.run(bad, good)
    assert (bad.target_state, good.target_state) == (states.FAILED, states.DONE)
    assert message in str(bad.exception_detail)
    with pytest.raises(LaunchRefused):
        raise LaunchRefused(bad.exception_detail)


@pytest.mark.parametrize(('code', 'detail'), [(3, 'exit code: 3'), (-9, 'killed by signal 9 (SIGKILL)')])
def test_exit_codes(harness: Harness, code: int, detail: str) -> None:
    task = harness.run_one(metadata={'exit_code': code})
    assert (task.target_state, task.exit_code, task.exception) == (states.FAILED, code, "RuntimeError('task failed')")
    assert task.exception_detail == detail


def test_tasks_end_when_their_time_is_over(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(harness, monkeypatch)
    ended: list[tuple[float, str]] = []
    harness.on_output = lambda tasks: ended.extend((clock.now, task.uid) for task in tasks)
    harness.run(harness.task('a', metadata={'duration': 3600}), harness.task('b', metadata={'duration': 60}),
                harness.task('c'), harness.task('d', metadata={'duration': 60}))
    assert ended == [(0.0, 'c'), (60.0, 'b'), (60.0, 'd'), (3600.0, 'a')]
    assert [len(bulk) for bulk in harness.bulks] == [1, 2, 1]


def test_launches_take_the_time_of_the_model(make: Callable[..., Harness],
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    harness = make({'seconds': 0.5, 'rate': 2})
    clock = Clock(harness, monkeypatch)
    ended: list[float] = []
    harness.on_output = lambda tasks: ended.append(clock.now)
    harness.run(*(harness.task(str(index), metadata={'duration': 10}) for index in range(3)))
    assert ended == [10.5, 11.0, 11.5]


def test_the_model_is_told_the_ranks(make: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch) -> None:
    harness = make({'distribution': 'table', 'seconds': [[1, 1], [101, 2]]})
    clock = Clock(harness, monkeypatch)
    harness.run_one(ranks=51, use_mpi=True)
    assert clock.now == 1.5


def test_cancel(harness: Harness) -> None:
    task, other = harness.task('a', metadata={'duration': 1e9}), harness.task('b', metadata={'duration': 1e9})
    harness.loop.call_soon(harness.executor.cancel, ['no.such.task', task.uid, task.uid])
    harness.loop.call_soon(harness.executor.cancel, [task.uid])
    harness.loop.call_soon(harness.executor.cancel, [other.uid])
    harness.run(task, other)
    assert (task.target_state, task.exit_code, task.exception) == (states.CANCELED, -signal.SIGTERM, None)
    assert len(harness.out) == 2


def test_cancel_of_a_task_that_is_being_launched(make: Callable[..., Harness], tmp_path: Path) -> None:
    harness = make({'seconds': 1e9}, profile=tmp_path / 'x.prof')
    task = harness.task()
    harness.loop.call_soon(harness.executor.cancel, [task.uid])
    harness.run(task)
    assert task.target_state == states.CANCELED
    assert harness.events()[-6:] == ['task_run_cancel_start', 'launch_collect', 'launch_post', 'launch_stop',
                                     'task_run_stop', 'task_run_cancel_stop']


@pytest.mark.parametrize(('limit', 'run_time', 'state'), [(5.0, 6.0, states.CANCELED), (5.0, 5.0, states.DONE)])
def test_timeout(harness: Harness, monkeypatch: pytest.MonkeyPatch, limit: float, run_time: float,
                 state: str) -> None:
    clock = Clock(harness, monkeypatch)
    task = harness.run_one(metadata={'duration': run_time}, timeout=limit)
    assert (task.target_state, clock.now) == (state, 5.0)
    if state == states.CANCELED:
        assert task.exception == "TimeoutError('timeout: the task ran longer than 5 s')"


def test_startup_timeout(make: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit counts from the start of execution."""
    harness = make({'seconds': 3})
    clock = Clock(harness, monkeypatch)
    late = harness.task('late', startup_timeout=2.0)
    in_time = harness.task('in time', startup_timeout=4.0, timeout=2.0, metadata={'duration': 10})
    harness.run(late, in_time)
    assert late.exception_detail == 'startup_timeout: the task did not start to execute within 2 s'
    assert in_time.exception_detail == 'timeout: the task ran longer than 2 s'
    assert clock.now == 5.0


def test_many_tasks_at_a_time(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """They use no process, no descriptor and no turn of the loop while they run."""
    clock = Clock(harness, monkeypatch)
    before = open_descriptors()
    tasks = [harness.task(f'task.{index:06d}', metadata={'duration': 3600 + index % 7}) for index in range(5_000)]
    harness.loop.call_later(1, lambda: during.update(open_descriptors()))
    during: set[tuple[int, int, int]] = set()
    harness.run(*tasks)
    assert before & during
    assert during <= before
    assert {task.target_state for task in tasks} == {states.DONE}
    assert clock.now == 3606.0
    assert [len(bulk) for bulk in harness.bulks] == [len(tasks[index::7]) for index in range(7)]


def test_events(make: Callable[..., Harness], tmp_path: Path) -> None:
    harness = make(profile=tmp_path / 'x.prof')
    harness.run_one(ranks=2)
    assert harness.events() == [
        'task_start', 'task_run_start', 'task_run_ok', 'launch_start', 'launch_pre', 'launch_submit',
        *['exec_start', 'exec_pre', 'rank_start'] * 2, *['rank_stop', 'exec_post', 'exec_stop'] * 2,
        'launch_collect', 'launch_post', 'launch_stop', 'task_run_stop']
