"""Lookups of tasks in the cache, and results that are kept."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from client_support import Later, a_pilot, a_task

from rp_api import states
from rp_api.constants import NON_FATAL
from rp_api.errors import StagingError
from rp_api.loop.offload import Helpers
from rp_api.staging.directive import expand
from rp_api.staging.location import Sandboxes
from rp_client.cache.claims import Claims
from rp_client.cache.store import CachedResult, ResultStore
from rp_client.cache.tasks import Hit, TaskCache
from rp_client.core.task import TaskRecord
from rp_client.engine.tracker import Change
from rp_client.launcher.sandbox import Sandbox


class Lookups(TaskCache):
    """Lookups that are made when the test says so, with the tasks that they have found and not found."""

    def __init__(self, base: Path) -> None:
        self.store = ResultStore(base / 'cache')
        self.later = Later()
        self.claims = Claims(base)
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


def stored(lookups: Lookups, task: TaskRecord) -> bool:
    """Return whether the result of a task that is DONE is stored."""
    before = len(lookups.store.results())
    lookups.ended([task], states.DONE)
    lookups.later.work()
    return len(lookups.store.results()) > before


def looked_up(lookups: Lookups, base: Path, **description: Any) -> TaskRecord:
    """Return a task on a pilot of this host, which was looked up."""
    task = a_task(cache=True, **description)
    task.pilot = a_pilot(base=base)
    assert task.pilot is not None
    Path(task.pilot.directories.pilot).mkdir(parents=True, exist_ok=True)
    lookups.look_up([task])
    lookups.later.work()
    return task


def test_a_result_of_unchanged_files_is_stored(lookups: Lookups, tmp_path: Path) -> None:
    (tmp_path / 'input').write_text('1')
    task = looked_up(lookups, tmp_path, input_staging=['input'])
    lookups.started([task])
    lookups.ending([Change(task, states.DONE, None)])
    (tmp_path / 'input').write_text('2')   # the application has heard of the end
    assert stored(lookups, task)


@pytest.mark.parametrize('when', ['started', 'ending', 'staged'])
def test_a_file_that_is_written_meanwhile_prevents_storing(
        lookups: Lookups, tmp_path: Path, when: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / 'input'
    path.write_text('1')
    task = looked_up(lookups, tmp_path, input_staging=['input'])
    path.write_text('2')
    if when == 'started':
        lookups.started([task])
        lookups.later.work()
        path.write_text('1')
    elif when == 'ending':
        lookups.ending([Change(task, states.DONE, None)])
    else:
        lookups.keep(task, [], cast(Sandbox, None))
    assert not stored(lookups, task)
    assert f'file {path} has changed since it was submitted (said once; cache=rp.Cache(key=...)' in caplog.text


def test_a_full_file_system_prevents_storing(
        lookups: Lookups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    task = looked_up(lookups, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr('rp_client.cache.output.os.fsync', full)
        assert not stored(lookups, task)
    assert 'its output may be incomplete' in caplog.text
    assert stored(lookups, looked_up(lookups, tmp_path))


def test_results_of_another_host_are_not_stored(
        lookups: Lookups, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for key, expected in ((True, False), ('key', True)):
        task = looked_up(lookups, tmp_path)
        task = a_task(cache=key)
        pilot = a_pilot(base=tmp_path)
        pilot.directories = replace(pilot.directories, here=False)
        task.pilot = pilot
        lookups.look_up([task])
        lookups.later.work()
        assert stored(lookups, task) == expected
    assert 'pilot.0000 is on another host' in caplog.text


def test_an_optional_output_that_cannot_be_copied_prevents_storing(
        lookups: Lookups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> StagingError:
        error = StagingError('output > output', 'output', 'No space left on device')
        error.__cause__ = OSError(errno.ENOSPC, '')
        return error

    directive, = expand(['output > output'])
    sandbox = Sandbox(Sandboxes(client=str(tmp_path), task=str(tmp_path)))
    task = looked_up(lookups, tmp_path, output_staging=['output > output'])
    lookups.keep(task, [{**directive, 'flags': NON_FATAL}], sandbox)   # there is none, as may be
    assert stored(lookups, task)
    task = looked_up(lookups, tmp_path, output_staging=['output > output'], arguments=['x'])
    monkeypatch.setattr('rp_client.cache.tasks.attempt', fails)
    lookups.keep(task, [directive], sandbox)
    assert not stored(lookups, task)


def test_a_hit_whose_inputs_change_meanwhile_is_none(lookups: Lookups, tmp_path: Path) -> None:
    path = tmp_path / 'input'
    path.write_text('1')
    assert stored(lookups, looked_up(lookups, tmp_path, input_staging=['input']))
    take = lookups.store.take

    def edited(result: CachedResult) -> Path:
        path.write_text('2')
        return take(result)

    lookups.store.take = edited   # type: ignore[method-assign]
    looked_up(lookups, tmp_path, input_staging=['input'])
    assert lookups.found == []


def test_the_first_time_says_why(lookups: Lookups, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        looked_up(lookups, tmp_path, executable='no-such-program')
    said, = [record.getMessage() for record in caplog.records if 'without the cache' in record.getMessage()]
    assert "the executable 'no-such-program', which this host does not have" in said
    assert 'cache=rp.Cache(key=...) decides' in said
