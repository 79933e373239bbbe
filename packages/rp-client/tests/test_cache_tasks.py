"""Lookups of tasks in the cache, and results that are kept."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from client_support import Later, a_task

from rp_api import states
from rp_api.loop.offload import Helpers
from rp_client.cache.store import ResultStore
from rp_client.cache.tasks import Hit, TaskCache
from rp_client.stager.base import Sandbox
from rp_client.task import Task


class Lookups(TaskCache):
    """Lookups that are made when the test says so, with the tasks that they have found and not found."""

    def __init__(self, base: Path) -> None:
        self.store = ResultStore(base / 'cache')
        self.later = Later()
        super().__init__(str(base), str(base), cast(Helpers, self.later), lambda: self.store)
        self.found: list[Hit] = []
        self.others: list[Task] = []
        self.hit = self.found.extend
        self.missed = self.others.extend


@pytest.fixture
def lookups(tmp_path: Path) -> Iterator[Lookups]:
    made = Lookups(tmp_path)
    yield made
    made.store.close()


def test_result_that_has_no_place_does_not_fail_its_task(lookups: Lookups, caplog: pytest.LogCaptureFixture) -> None:
    task = a_task(cache=True)
    lookups.look_up([task])
    lookups.later.work()
    assert lookups.others == [task]
    shutil.rmtree(lookups.store.directory / 'outputs')
    lookups.keep(task, [], cast(Sandbox, None))
    assert f'the result of {task.uid} is not cached' in caplog.text
    lookups.ended([task], states.DONE)
    lookups.later.work()
    assert lookups.store.results() == []
