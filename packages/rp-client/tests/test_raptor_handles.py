"""The application's handles of masters and workers."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any, cast

import pytest
from client_support import Manager, a_pilot, common

from rp_api import constants as c
from rp_api import states
from rp_api.description.task import TaskDescription
from rp_api.errors import AttributeTypeError, PilotError
from rp_api.raptor_link import RPC
from rp_client.common_description import listed
from rp_client.core.task import TaskRecord
from rp_client.handles.raptor import KINDS, RaptorMaster, RaptorWorker, of_mode
from rp_client.handles.task import Task
from rp_client.handles.task_manager import TaskManager
from rp_client.ids import TASK

ACCESS = {'address': 'a', 'server': 'b', 'public': 'c', 'secret': 'hidden'}


class Answering(Manager):
    """A task manager whose masters answer."""

    def __init__(self, answer: Any = None) -> None:
        super().__init__()
        self.answer = answer
        self.session = SimpleNamespace(calls=SimpleNamespace(call=self.call))   # type: ignore[assignment]

    def call(self, *args: Any) -> Any:
        self.calls.append(args)
        return self.answer


def a_handle(kind: type[Task], manager: Manager | None = None, uid: str = 'raptor.0000') -> Any:
    return kind(cast(TaskManager, manager or Manager()), TaskRecord(uid, common({'mode': c.RAPTOR_MASTER})))


def test_kinds() -> None:
    assert [KINDS.get(mode, Task) for mode in (c.RAPTOR_MASTER, c.RAPTOR_WORKER, c.TASK_EVAL, None)] == [
        RaptorMaster, RaptorWorker, Task, Task]


def test_access_is_known_when_the_master_is_up_and_not_shown() -> None:
    manager = Manager()
    manager.session = SimpleNamespace(   # type: ignore[assignment]
        tmgrs={}, pmgrs={}, away=None, pilots=list, client_sandbox='/here')
    master = a_handle(RaptorMaster, manager)
    before = master.access
    master._record.learn({'raptor': ACCESS})
    master._record.learn({'exit_code': 0})
    assert (before, master.access, master.exit_code) == (None, ACCESS, 0)
    assert 'hidden' not in f'{master} {master!r} {master.as_dict()}'


def test_workers_that_are_submitted_are_for_this_master() -> None:
    manager = Manager()
    given = TaskDescription({'mode': c.RAPTOR_WORKER, 'raptor_id': 'other'})
    for tds in (given, [given]):
        a_handle(RaptorMaster, manager).submit_workers(tds)
    assert manager.calls == [('submit_workers', [TaskDescription(given) | {'raptor_id': 'raptor.0000'}])] * 2
    assert given.raptor_id == 'other'


def test_tasks_that_are_submitted_are_for_this_master() -> None:
    manager = Manager()
    given = TaskDescription({'mode': c.TASK_EVAL, 'code': '1'})
    for tds in (given, [given]):
        a_handle(RaptorMaster, manager).submit_tasks(tds)
    assert manager.calls == [('submit', [given], TASK, 'raptor.0000')] * 2


def test_question() -> None:
    manager = Answering([1, 2])
    master = a_handle(RaptorMaster, manager)
    with pytest.raises(RuntimeError, match='not bound to a pilot yet'):
        master.rpc('stop')
    master._record.pilot = a_pilot()
    assert master.rpc('do', 1, rpc_timeout=7, fast=True) == [1, 2]
    assert manager.calls[-1] == ([master._record.pilot], 'raptor.0000', {
        'mode': RPC, 'raptor_id': 'raptor.0000', 'method': 'do', 'args': [1], 'kwargs': {'fast': True}}, 7)
    master._record.state = states.FAILED
    with pytest.raises(RuntimeError, match=r'raptor\.0000 is FAILED and answers no requests'):
        master.rpc('stop')


def test_objects_need_rp_raptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which an application has only if it makes calls itself."""
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(PilotError, match=r'rp-raptor is not installed, .*: pip install rp-raptor'):
        a_handle(RaptorMaster).put_object(1)


def test_descriptions_in_any_number() -> None:
    one = TaskDescription({'executable': 'x'})
    assert listed(one, 'task') == listed([one], 'task') == [one]
    assert listed([], 'task') == []
    for wrong in ([None], 7, ['/bin/true']):
        with pytest.raises((AttributeTypeError, TypeError)):
            listed(wrong, 'task')


def test_descriptions_of_one_mode() -> None:
    master = TaskDescription({'mode': c.RAPTOR_MASTER})
    copy, = of_mode(master, c.RAPTOR_MASTER, 'submit_raptors')
    assert copy == master
    assert copy is not master
    with pytest.raises(ValueError, match=r"submit_raptors takes tasks of mode 'raptor\.master', not 'task\.eval'"):
        of_mode([master, TaskDescription({'mode': c.TASK_EVAL})], c.RAPTOR_MASTER, 'submit_raptors')
