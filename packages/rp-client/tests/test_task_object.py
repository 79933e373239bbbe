"""The application's handle of a task: what it shows, from when on, and how much memory that takes."""

from __future__ import annotations

import copy
import json
import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from client_support import Manager, a_pilot, a_task

from rp_api import states
from rp_api.description.task import TaskDescription
from rp_api.errors import DeserializationError
from rp_api.resources import Slot
from rp_api.values import to_plain
from rp_client.common_description import CommonDescription
from rp_client.core.task import TaskRecord
from rp_client.handles.task import Task
from rp_client.ids import chosen

SLOT = {'node_index': 0, 'node_name': 'localhost', 'cores': [{'index': 1, 'occupation': 1.0}], 'gpus': [], 'lfs': 0,
        'mem': 0, 'version': 1}
RESULT = {'exit_code': 0, 'stdout': 'out\n', 'stderr': 'err\n', 'slots': [SLOT], 'output_files': ['a', 'b'],
          'target_state': states.DONE}


def test_new_task() -> None:
    manager = Manager()
    task: Any = a_task('task.000007', manager, name='name, with a comma', arguments=['a'], metadata={'my': [1]}).handle
    assert (task.uid, task.state, task.origin, task.mode) == ('task.000007', states.NEW, 'client', 'task.executable')
    assert (task.name, task.metadata) == ('name, with a comma', {'my': [1]})
    assert (task.tmgr, task.session, task.client_sandbox) == (manager, manager, '/client')
    assert (task.exit_code, task.exception, task.exception_detail, task.return_value) == (None,) * 4
    assert (task.stdout, task.stderr, task.output_files) == ('', '', [])
    assert (task.slots, task.info, task.partition) == (None,) * 3
    assert repr(task) == '<Task task.000007 NEW>'
    assert str(task) == "['task.000007', None, 'NEW']"


def test_task_that_is_not_bound_has_no_place() -> None:
    task = a_task(sandbox='here').handle
    places = (task.pilot, task._record.pilot, task.sandbox, task.task_sandbox, task.pilot_sandbox, task.session_sandbox,
              task.resource_sandbox, task.endpoint_fs)
    assert places == (None,) * 8


@pytest.mark.parametrize('packed', [lambda bad: {'__rp_pickled__': bad}, lambda bad: [1, {'__rp_pickled__': bad}]],
                         ids=['value', 'value of a rank'])
def test_objects_are_restored_only_for_tasks_that_can_have_returned_them(tmp_path: Path, packed: Any) -> None:
    """Whoever says something in the name of an agent could have code run here otherwise."""
    bad = pickle.dumps(Touches(tmp_path / 'touched'))
    task, call = a_task('task.1', executable='date').handle, a_task(
        'task.2', mode='task.eval', code='1', raptor_id='m').handle
    for each in (task, call):
        each._record.learn({'return_value': packed(bad), 'mode': 'task.eval', 'raptor_id': 'm'})
    for look in (lambda: task.return_value, task.as_dict):
        with pytest.raises(DeserializationError, match=r'return_value of task\.1 is a pickled object.* raptor_id'):
            look()
    assert not (tmp_path / 'touched').exists()
    _ = call.return_value   # which is what it is for
    assert (tmp_path / 'touched').exists()


def test_files_of_values_are_opened_only_for_tasks_that_can_have_returned_them(tmp_path: Path) -> None:
    value = to_plain(bytes(2 << 20), str(tmp_path), 'task')
    task, call = a_task('task.1', executable='date').handle, a_task(
        'task.2', mode='task.eval', code='1', raptor_id='m').handle
    for each in (task, call):
        each._record.learn({'return_value': value})
    with pytest.raises(DeserializationError, match=r'task\.1'):
        _ = task.return_value
    assert call.return_value == bytes(2 << 20)
    path, = value.values()
    os.chmod(path, 0o666)   # others may have changed it
    with pytest.raises(DeserializationError, match=f'{path} is not ours alone: others may use it'):
        _ = call.return_value


class Touches:
    """Makes a file when it is restored."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_bound_task_knows_its_places() -> None:
    pilot = a_pilot(base='/base')
    task = a_task('task.1').handle
    task._record.pilot = pilot
    assert (task.pilot, task._record.pilot, task.endpoint_fs) == ('pilot.0000', pilot, '/')
    assert task.sandbox == task.task_sandbox == '/base/resource/session/pilot.0000/task.1'
    assert (task.resource_sandbox, task.session_sandbox, task.pilot_sandbox) == (
        '/base/resource', '/base/resource/session', '/base/resource/session/pilot.0000')
    other = a_task('task.2', sandbox='/own').handle
    other._record.pilot = pilot
    assert other.sandbox == '/own'


def test_description_is_a_copy_with_all_attributes() -> None:
    task = a_task('task.1', arguments=['a'], environment={'A': '1'}).handle
    description = task.description
    assert isinstance(description, TaskDescription)
    assert (description.uid, description.executable, description.ranks) == ('task.1', '/bin/true', 1)
    description.arguments.append('b')
    description.environment['B'] = '2'
    assert (task.description.arguments, task.description.environment) == (['a'], {'A': '1'})


@pytest.mark.parametrize(('uid', 'generated'), [
    ('task.000001', True), ('task.1234567', True), ('task.1', False), ('tasks.000001', False), ('raptor.0000', False),
    ('task.00000x', False), ('mine', False), ('sweep.0000.000000', True),
    ('sweep.0000.0', False), ('my.0000.000000', False)])
def test_the_description_knows_whether_its_uid_was_generated(uid: str, generated: bool) -> None:
    task = a_task(uid).handle
    for description in (task.description, TaskDescription(task.description), copy.deepcopy(task.description),
                        TaskDescription(task.as_dict()['description'])):
        assert description.uid == uid
        description.verify()
        assert chosen(description.uid) == (None if generated else uid)
    assert json.dumps(description.uid) == f'"{uid}"'
    description.uid = f'{description.uid}'
    assert chosen(description.uid) == uid


def test_only_what_was_set_travels() -> None:
    assert a_task('task.1', ranks=1, cores_per_rank=2).sparse() == {'executable': '/bin/true', 'cores_per_rank': 2}


def test_result() -> None:
    task = a_task().handle
    task._record.learn(RESULT)
    assert (task.exit_code, task.stdout, task.stderr, task.output_files) == (0, 'out\n', 'err\n', ['a', 'b'])
    assert task.slots == [SLOT]
    assert isinstance(task.slots[0], Slot)


def test_news_come_in_pieces() -> None:
    """What is not mentioned stays as it was."""
    task = a_task().handle
    task._record.learn({'slots': [SLOT], 'exit_code': 1})
    task._record.learn({'exception': 'why', 'exception_detail': 'more'})
    task._record.learn({'return_value': {'a': 1}, 'partition': 0, 'info': 'address'})
    task._record.learn({'stderr': 'err', 'reached': states.AGENT_EXECUTING, 'target_state': states.FAILED})
    assert (task.exit_code, task.exception, task.exception_detail, task.stderr) == (1, 'why', 'more', 'err')
    assert (task.slots, task.return_value, task.info) == ([SLOT], {'a': 1}, 'address')


def test_results_are_copies() -> None:
    task = a_task().handle
    task._record.learn(RESULT)
    task.output_files.append('c')
    assert task.slots is not None
    task.slots.clear()
    assert (task.output_files, len(task.slots)) == (['a', 'b'], 1)


@pytest.mark.parametrize('bound', [False, True])
def test_as_plain_data(bound: bool) -> None:
    task = a_task('task.1', name='name').handle
    if bound:
        task._record.pilot = a_pilot()
        task._record.learn(RESULT)
    data = task.as_dict()
    assert json.loads(json.dumps(data)) == data
    assert {name: data[name] for name in ('type', 'uid', 'name', 'state', 'tmgr', 'exit_code', 'pilot')} == {
        'type': 'task', 'uid': 'task.1', 'name': 'name', 'state': states.NEW, 'tmgr': 'manager.0000',
        'exit_code': 0 if bound else None, 'pilot': 'pilot.0000' if bound else None}
    assert data['slots'] == ([SLOT] if bound else None)
    assert data['description'] == task.description.as_dict()


def test_what_is_asked_of_the_manager() -> None:
    manager = Manager()
    task = a_task('task.1', manager).handle
    assert task.wait('DONE', 3) == states.NEW
    task.cancel()
    task.register_callback(print)
    task.register_callback(print, 'data', 'METRIC')
    assert manager.calls == [
        ('wait_for', [task._record], 'DONE', 3), ('check_process',), ('cancel_tasks', 'task.1'),
        ('register_callback', print, None, 'TASK_STATE', 'task.1'),
        ('register_callback', print, 'data', 'METRIC', 'task.1')]


def test_nothing_can_be_set_by_mistake() -> None:
    task: Any = a_task().handle
    for name in ('state', 'exit_code', 'no_such_attribute'):
        with pytest.raises(AttributeError):
            setattr(task, name, 1)


def test_memory() -> None:
    """A session may hold hundreds of thousands of tasks."""
    from rp_api.wire import codec

    count = 2_000
    manager: Any = Manager()
    pilot = a_pilot()

    def one(number: int) -> TaskRecord:
        """A task as the manager makes it, with a result as it comes off the wire."""
        uid = f'task.{number:06d}'
        sparse = TaskDescription({'executable': '/usr/bin/simulate', 'arguments': ['--input', f'{uid}.dat', '-n', '8'],
                                  'environment': {'MODE': 'fast'}, 'cores_per_rank': 2}).sparse()
        task = TaskRecord(uid, CommonDescription(sparse, codec.pack(sparse)))
        task.pilot = pilot
        task.handle = Task(manager, task)
        task.learn(codec.unpack(codec.pack(RESULT | {'stdout': f'{uid} has converged\n'})))
        return task

    one(0)
    tracemalloc.start()
    try:
        tasks = [one(number) for number in range(count)]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(tasks) == count
    assert used / count < 900


def test_a_failed_task_has_an_error_that_can_be_raised() -> None:
    task: Any = a_task('task.1').handle
    assert task.error is None
    task._record.learn({'exit_code': 2, 'exception': "RuntimeError('task failed')", 'exception_detail': 'exit code: 2',
                         'error': {'kind': 'exit', 'sentence': 'exit code: 2', 'path': '/s/task.1.err', 'lines': 'no'}})
    assert task.error is None   # its output is staged
    task._record.state = states.FAILED
    error: Any = task.error
    assert (error.kind, error.exit_code, error.path) == ('exit', 2, '/s/task.1.err')
    assert (task.exception, task.exception_detail) == ("RuntimeError('task failed')", 'exit code: 2')
