"""Final tasks leave the memory, are the same again when they are asked for, and one object as long as there is one."""

from __future__ import annotations

import gc
import os
import tracemalloc
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from client_support import Manager, a_pilot, common

from rp_api import states
from rp_api.constants import RAPTOR_MASTER
from rp_api.wire import codec
from rp_client.core.task import TaskRecord
from rp_client.flow.task_store import BLOCK, TaskStore
from rp_client.handles.raptor import KINDS, RaptorMaster
from rp_client.handles.task import Task

SLOT = {'node_name': 'node', 'node_index': 0, 'cores': [{'index': 3, 'occupation': 1.0}]}


class Site:
    """A store, with as many tasks as a test needs."""

    def __init__(self, path: Path) -> None:
        self.directory = path
        self.manager: Any = Manager()
        self.store = TaskStore(str(path / 'tasks'), self.make_handle)
        self.pilot = a_pilot()
        self._fillers = 0

    def make_handle(self, task: TaskRecord) -> Task:
        return KINDS.get(task.common.mode, Task)(self.manager, task)

    def handle(self, uid: str) -> Any:
        """What the application gets."""
        return self.store.handle(self.store[uid])

    def add(self, uid: str, state: str = states.DONE, own: dict[str, Any] | None = None,
            info: dict[str, Any] | None = None, **description: Any) -> TaskRecord:
        """A task that has come to this state."""
        task = TaskRecord(uid, common({'executable': '/bin/true', **description}), codec.pack(own or {}))
        task.pilot = self.pilot
        task.stored = True
        task.attempts += 1
        task.learn(info or {'exit_code': 0})
        task.state = state
        self.store.add([uid], [task])
        if state in states.FINAL:
            self.store.settled([task])
        return task

    def move_on(self) -> None:
        """Have so many more tasks end that all those before are written."""
        for number in range(self._fillers, self._fillers + 2 * BLOCK):
            self.add(f'filler.{number:06d}')
        self._fillers += 2 * BLOCK


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_task_is_as_it_was(site: Site) -> None:
    info = {'exit_code': 3, 'stdout': 'out\n', 'stderr': 'err\udcff', 'exception': 'no', 'slots': [SLOT]}
    task = site.add('a', states.FAILED, {'arguments': ['x'], 'metadata': {'b': [1]}}, info, name='n', restartable=True)
    handle = site.handle('a')
    before = handle.as_dict() | {'sandbox': task.sandbox, 'mode': handle.mode}
    gone = weakref.ref(handle)
    del task, handle
    site.move_on()
    assert gone() is None
    again, handle = site.store['a'], site.handle('a')
    assert handle.as_dict() | {'sandbox': again.sandbox, 'mode': handle.mode} == before
    assert (again.pilot, again.attempts, again.stored, again.common.restartable) == (site.pilot, 1, True, True)


def test_a_master_is_one_again(site: Site) -> None:
    access = {'endpoint': 'tcp://x', 'public': 'p'}
    site.add('m', mode=RAPTOR_MASTER, info={'raptor': access})
    site.move_on()
    master = site.handle('m')
    assert isinstance(master, RaptorMaster)
    assert master.access == access


def test_a_task_is_one_object(site: Site) -> None:
    site.add('kept')
    kept = site.handle('kept')
    site.add('dropped')
    for _ in range(4):
        site.move_on()
        assert site.handle('kept') is kept
        again = site.handle('dropped')
        assert site.handle('dropped') is again
        del again
        gc.collect()


def test_a_task_leaves_the_memory_when_it_is_let_go(site: Site) -> None:
    kept = [site.handle(site.add(f'kept.{number:06d}').uid) for number in range(3 * BLOCK)]
    site.move_on()
    assert all(site.store.look(task.uid) is task._record for task in kept)
    gone = list(map(weakref.ref, kept))
    kept.clear()
    for _ in range(4):
        site.move_on()
    assert not any(reference() for reference in gone)
    assert site.handle('kept.000000').exit_code == 0


def test_a_sweep_puts_dropped_tasks_away_when_no_task_ends(site: Site) -> None:
    kept = [site.handle(site.add(f'kept.{number:06d}').uid) for number in range(3 * BLOCK)]
    assert not site.store.sweep()
    gone = list(map(weakref.ref, kept))
    kept.clear()
    assert site.store.sweep()
    assert not any(reference() for reference in gone)
    assert not site.store.sweep()
    assert site.handle('kept.000000').exit_code == 0


def test_a_task_that_is_asked_for_before_it_is_written_is_one_object(site: Site) -> None:
    for number in range(BLOCK // 2):   # selected, but too few for a block
        site.add(f'asked.{number:06d}')
    asked = site.handle('asked.000000')
    site.move_on()
    assert not isinstance(site.store.look('asked.000000'), TaskRecord)
    assert site.handle('asked.000000') is asked


def test_many_are_found_at_once(site: Site) -> None:
    kept = site.add('kept')
    handle = site.handle('kept')
    assert site.store.find_each(['kept', 'unknown']) == [kept, None]
    site.add('dropped')
    site.move_on()
    found = site.store.find_each(['unknown', 'dropped', 'kept'])
    assert [task and task.uid for task in found] == [None, 'dropped', 'kept']
    assert (found[2], handle._record) == (kept, kept)


def test_the_order_is_that_of_submission(site: Site) -> None:
    first = site.add('z', states.AGENT_EXECUTING)
    for uid in ('y', 'x'):
        site.add(uid)
    site.move_on()
    site.add('w', states.AGENT_SCHEDULING)
    first.state = states.DONE
    site.store.settled([first])
    del first
    site.move_on()
    found = [uid for uid in site.store if not uid.startswith('filler')]
    assert found == ['z', 'y', 'x', 'w']
    assert [site.store.look(uid).state for uid in found] == [states.DONE] * 3 + [states.AGENT_SCHEDULING]
    assert {task.uid for task in site.store.in_memory()} >= {'w'}
    assert len(site.store) == 4 + 4 * BLOCK


def test_what_becomes_known_later(site: Site) -> None:
    """A cancellation is corrected by the result that was on its way."""
    site.add('a', states.CANCELED, info={'exception': 'cancelled'})
    site.move_on()
    task = site.store['a']
    task.learn({'exit_code': 0})
    task.state = states.DONE
    site.store.settled([task])
    site.store.changed([task])
    assert site.store['a'] is task
    assert site.handle('a').state == states.DONE
    del task
    site.move_on()
    again = site.store['a']
    assert (again.state, again.get('exit_code'), again.get('exception')) == (states.DONE, 0, 'cancelled')
    assert site.store.look('a').state == states.DONE


@pytest.mark.parametrize('written', [False, True])
def test_removed_tasks_are_gone(site: Site, written: bool) -> None:
    kept = site.add('a')
    site.add('b')
    if written:
        site.move_on()
    site.store.remove(['a', 'b'])
    site.store.settled([kept])   # what was on its way then
    site.move_on()
    for uid in ('a', 'b'):
        assert uid not in site.store
        assert site.store.find(uid) is None
        with pytest.raises(KeyError):
            site.store.look(uid)
    assert site.store.has_none({'a', 'b'})
    assert (kept.state, kept.get('exit_code')) == (states.DONE, 0)


def test_a_file_that_cannot_be_written(site: Site, monkeypatch: pytest.MonkeyPatch,
                                       caplog: pytest.LogCaptureFixture) -> None:
    """Tasks stay, and go when it can be; a part of a block does no harm."""
    site.add('a')
    real, full = os.pwrite, True

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        if full and len(data) < 100:
            raise OSError(28, 'No space left on device')
        return real(fd, data[:len(data) // 2] if full else data, offset)

    monkeypatch.setattr(os, 'pwrite', pwrite)
    site.move_on()
    site.move_on()
    assert len(site.store.in_memory()) == len(site.store)
    assert caplog.text.count('No space left on device') == 1
    full = False
    site.move_on()
    assert len(site.store.in_memory()) < 2 * BLOCK
    assert {task.get('exit_code') for task in site.store.values()} == {0}


def test_nothing_is_left_of_the_file(site: Site) -> None:
    before = descriptors()
    site.move_on()
    assert list(site.directory.iterdir()) == []
    (opened,) = descriptors() - before
    assert os.fstat(int(opened.split()[0])).st_mode & 0o777 == 0o600
    del site.store
    gc.collect()
    assert opened not in descriptors()


def descriptors() -> set[str]:
    """The files that are open in this process and have no name."""
    found = set()
    for name in os.listdir('/proc/self/fd'):
        with suppress(OSError):   # that of the directory itself is not there any more
            found.add(f'{name} {os.readlink(f"/proc/self/fd/{name}")}')
    return {each for each in found if each.endswith('(deleted)')}


@pytest.mark.parametrize(('forget', 'most'), [(False, 200), (True, 30)])
def test_tasks_without_handles_cost_little_memory(site: Site, forget: bool, most: int) -> None:
    def grow(count: int, *, forget: bool) -> float:
        """Bytes for each of many tasks that have ended."""
        before = tracemalloc.get_traced_memory()[0]
        for first in range(0, count, 500):
            uids = [f'{count}.{number:06d}' for number in range(first, first + 500)]
            tasks = [TaskRecord(uid, common({'executable': '/bin/true'}), codec.pack({})) for uid in uids]
            site.store.add(uids, tasks)
            for task in tasks:
                task.learn({'exit_code': 0, 'slots': [SLOT]})
                task.state = states.DONE
            site.store.settled(tasks)
            if forget:
                site.store.remove(uids)
            del tasks, task, uids
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / count

    def tasks_in_memory() -> int:
        return sum(isinstance(found, TaskRecord) for found in gc.get_objects())

    others = tasks_in_memory()   # of other tests
    tracemalloc.start()
    try:
        grow(2000, forget=True)   # what does not grow any more
        assert grow(10_000, forget=forget) < most
    finally:
        tracemalloc.stop()
    assert tasks_in_memory() - others < 2000
