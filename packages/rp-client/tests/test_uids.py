"""Uids of tasks: fresh ones are not in use, given ones are used once, those of tasks that are gone never again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from client_support import Manager, a_task

from rp_client.flow.task_store import TaskStore
from rp_client.flow.uids import Uids
from rp_client.ids import MASTER


@pytest.fixture
def store(tmp_path: Path) -> TaskStore:
    return TaskStore(str(tmp_path / 'tasks'), lambda *_: pytest.fail('nothing is to be read'))


@pytest.fixture
def uids(store: TaskStore) -> Uids:
    uids = Uids()
    uids.tasks.append(store)
    return uids


def submit(uids: Uids, store: TaskStore, *wanted: str | None) -> list[str]:
    """The uids that tasks get."""
    manager: Any = Manager()
    found = uids.of_tasks(wanted)
    uids.claim_tasks(found, lambda: store.add(found, [a_task(uid, manager) for uid in found]))
    return found


def test_fresh_uids_go_on(uids: Uids, store: TaskStore) -> None:
    assert submit(uids, store, None, '', None) == ['task.000000', 'task.000001', 'task.000002']
    assert submit(uids, store, None) == ['task.000003']
    assert uids.of_tasks([None], MASTER) == ['raptor.0000']


def test_fresh_uids_pass_over_given_ones(uids: Uids, store: TaskStore) -> None:
    assert submit(uids, store, 'task.000003') == ['task.000003']
    assert submit(uids, store, None, 'task.000001', 'x', None, None) == [
        'task.000000', 'task.000001', 'x', 'task.000002', 'task.000004']
    assert submit(uids, store, None) == ['task.000005']


def test_fresh_uids_after_many_that_were_there(uids: Uids, store: TaskStore) -> None:
    uids.removed_tasks(f'task.{number:06d}' for number in range(1000))
    submit(uids, store, *(f'task.{number:06d}' for number in range(1000, 1007)))
    assert submit(uids, store, None, None) == ['task.001007', 'task.001008']
    assert submit(uids, store, None) == ['task.001009']


@pytest.mark.parametrize('wanted', [['a'], ['gone'], ['new', 'new'], ['x', 'y', 'a']])
def test_a_uid_is_used_once(uids: Uids, store: TaskStore, wanted: list[str]) -> None:
    submit(uids, store, 'a')
    uids.removed_tasks(['gone'])
    with pytest.raises(ValueError, match=r"task uid '(a|gone|new)' is in use already"):
        submit(uids, store, *wanted)
    assert list(store) == ['a']


def test_uids_of_pilots(uids: Uids) -> None:
    uids.claim_pilots(['pilot.0000', 'p'])
    assert uids.new('pilot') == 'pilot.0001'
    with pytest.raises(ValueError, match="pilot uid 'p' is in use already"):
        uids.claim_pilots(['q', 'p'])
    assert not uids.knows_pilot('q')
