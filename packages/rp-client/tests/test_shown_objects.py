"""How objects show themselves in an interpreter and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from client_support import Manager as ClientManager
from client_support import a_pilot
from test_futures import Manager

from rp_api import states
from rp_api.description.pilot import PilotDescription
from rp_api.description.task import TaskDescription
from rp_client.flow.task_store import TaskStore
from rp_client.service.tasks import TaskOwner

SESSION = SimpleNamespace(tmgrs={}, pmgrs={}, away=None, pilots=list)


@pytest.fixture
def manager() -> Iterator[Manager]:
    manager = Manager()
    yield manager
    manager.engine.close()


def test_task(manager: Manager) -> None:
    manager.session = SESSION   # type: ignore[attr-defined]
    manager.uid = 'tmgr.0000'   # type: ignore[attr-defined]
    task: Any = manager.make(name='a <b> & "c"')
    assert repr(task) == '<Task task.1 NEW>'
    manager.end(task, states.FAILED, exit_code=3, exception='line 1\nline 2 \udcff' + 'x' * 300)
    html = task._repr_html_()
    html.encode()
    assert 'Task task.1' in html
    assert 'a &lt;b&gt; &amp; &quot;c&quot;' in html
    assert 'line 1<br>line 2 ?x' in html
    assert len(html) < 2000
    assert '>reason</th>' in html
    for shown, value in (('exit code', 3), ('state', 'FAILED')):
        assert f'>{shown}</th>' in html
        assert f'>{value}</td>' in html
    assert 'sandbox' not in html, 'it has none yet'


def test_pilot() -> None:
    owner = ClientManager()
    owner.session = SESSION   # type: ignore[assignment]
    pilot = a_pilot(manager=owner).handle
    assert repr(pilot) == '<Pilot pilot.0000 NEW>'
    assert 'Pilot pilot.0000' in pilot._repr_html_()
    assert 'local.exact' in pilot._repr_html_()


@pytest.mark.parametrize(('description', 'other'), [
    (TaskDescription({'executable': '<x>', 'ranks': 4}), 'timeout'), (PilotDescription({'resource': '<x>'}), 'queue')])
def test_descriptions(description: Any, other: str) -> None:
    html = description._repr_html_()
    assert '&lt;x&gt;' in html
    assert f'>{other}<' not in html, 'it has its default'
    names = dir(description)
    assert {other, 'as_dict', 'verify', 'copy'} <= set(names)
    assert not {'sparse', 'check', 'derive', 'cpu_processes', 'cpus'} & set(names)


def test_numbers_of_tasks_by_final_state(manager: Manager) -> None:
    tasks = [manager.make(f'task.{number}') for number in range(5)]
    manager.end(tasks[0])
    manager.end(tasks[1], states.CANCELED)
    manager.end(tasks[2], states.CANCELED)
    manager.end(tasks[1], states.DONE)   # it was on its way
    manager.end(tasks[3], states.AGENT_EXECUTING)
    assert manager.tracker.finals == {states.DONE: 2, states.FAILED: 0, states.CANCELED: 1}
    store = TaskStore('/no/file', lambda record: pytest.fail('all have a handle'))
    store.add([task.uid for task in tasks], [task._record for task in tasks])
    owner = cast(Any, manager)
    owner.tasks, owner._finals = store, lambda: TaskOwner._finals(owner)
    assert TaskOwner.counts(owner) == '5 tasks, 2 DONE, 1 CANCELED'
    manager.tracker.forgotten([states.DONE])
    assert manager.tracker.finals[states.DONE] == 1


def test_many_corrections_at_once(manager: Manager) -> None:
    """Consecutive equal changes take a short way."""
    from rp_client.engine.tracker import Change

    tasks = [manager.make(f'task.{number}') for number in range(4)]
    for state in (states.CANCELED, states.DONE, states.DONE):
        manager.tracker.apply([Change(task._record, state) for task in tasks])
    assert manager.tracker.finals == {states.DONE: 4, states.FAILED: 0, states.CANCELED: 0}
