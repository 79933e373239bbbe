"""Cached tasks of a manager that are in flight: one of equal ones runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from client_support import Later, a_pilot, a_task

from rp_api import states
from rp_api.loop.offload import Helpers
from rp_api.wire import codec
from rp_client.cache.claims import Claims
from rp_client.cache.store import ResultStore
from rp_client.cache.tasks import Hit, TaskCache
from rp_client.core.task import TaskRecord


class Lookups(TaskCache):
    """Lookups that are made when the test says so, with the tasks that they have found and not found."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.store = ResultStore(base / 'cache')
        self.claims = Claims(base)
        self.later = Later()
        super().__init__(str(base), str(base), cast(Helpers, self.later), lambda: self.store, tuple,
                         lambda: self.claims, self._answered)
        self.found: list[Hit] = []
        self.others: list[TaskRecord] = []

    def _answered(self, hits: list[Hit], missed: list[TaskRecord]) -> None:
        self.found += hits
        self.others += missed


@pytest.fixture
def lookups(tmp_path: Path) -> Iterator[Lookups]:
    made = Lookups(tmp_path)
    yield made
    made.claims.close()
    made.store.close()


def looked_up(lookups: Lookups, *tasks: TaskRecord) -> list[list[str]]:
    """The uids of tasks that have to run, and of those with a result, once these were looked up."""
    lookups.look_up(list(tasks))
    lookups.later.work()
    return last(lookups)


def last(lookups: Lookups) -> list[list[str]]:
    found = [[task.uid for task in lookups.others], [task.uid for task, _ in lookups.found]]
    lookups.others.clear()
    lookups.found.clear()
    return found


def end(lookups: Lookups, task: TaskRecord, state: str) -> list[list[str]]:
    task.pilot = a_pilot(base=lookups.base)
    assert task.pilot
    Path(task.pilot.directories.pilot).mkdir(parents=True, exist_ok=True)
    task.state = state
    task.known = codec.pack({'exit_code': 0, 'stdout': 'x', 'stderr': ''}) if state == states.DONE else None
    lookups.ended([task], state)
    lookups.later.work()
    return last(lookups)


def test_equal_tasks_wait_for_the_one_that_runs(lookups: Lookups) -> None:
    one, two, three, other = (a_task(f'task.{number}', cache=True, executable='echo', arguments=[word])
                              for number, word in enumerate('aaab'))
    assert looked_up(lookups, one, two) == [['task.0'], []]
    assert looked_up(lookups, three, other) == [['task.3'], []]
    assert lookups.size == 2
    assert end(lookups, one, states.FAILED) == [['task.1'], []]   # the next one tries
    assert end(lookups, two, states.DONE) == [[], ['task.2']]
    assert lookups.size == 0


def test_cancelled_tasks_are_not_waited_for(lookups: Lookups) -> None:
    one, two, three = (a_task(f'task.{number}', cache=True, executable='echo') for number in range(3))
    assert looked_up(lookups, one, two, three) == [['task.0'], []]
    assert end(lookups, two, states.CANCELED) == [[], []]
    assert end(lookups, one, states.CANCELED) == [['task.2'], []]


def test_task_after_another_one_is_not_waited_for(lookups: Lookups) -> None:
    """They could be after tasks that wait for them."""
    first, second = (a_task(f'task.{number}', cache=True, executable='echo', after=[other])
                     for number, other in enumerate(('task.9', 'task.0')))
    third = a_task('task.2', cache=True, executable='echo')
    assert looked_up(lookups, first, second) == [['task.0', 'task.1'], []]
    assert looked_up(lookups, third) == [['task.2'], []]


def test_tasks_that_no_pilot_can_run_are_not_waited_for(lookups: Lookups) -> None:
    lookups.resume(active=False)
    assert looked_up(lookups, a_task('task.0', cache=True), a_task('task.1', cache=True)) == [
        ['task.0', 'task.1'], []]
