"""The tables of a session as reasons are made from them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from client_support import a_pilot, a_task

from rp_api import states
from rp_api.constants import RAPTOR_MASTER
from rp_api.description.partitions import WHOLE
from rp_api.reasons.explain import reason_of
from rp_client.core.pilot import PartitionRecord
from rp_client.core.task import TaskRecord
from rp_client.flow.task_store import TaskStore
from rp_client.service.owner import Owner
from rp_client.service.view import LiveView


@pytest.fixture
def session(tmp_path: Path) -> Any:
    tasks = TaskStore(str(tmp_path / 'tasks'), lambda record: record)
    tmgr = SimpleNamespace(tasks=tasks, scheduler='backfilling', pilots={'pilot.0000': None},
                           flow=SimpleNamespace(last_end='pilot.0000 was removed'))
    pmgr = SimpleNamespace(flow=SimpleNamespace(queues={'pilot.0000': {'job': '17'}}))
    pilot = a_pilot(base=tmp_path)
    return SimpleNamespace(tmgrs={'tmgr.0000': tmgr}, pmgrs={'pmgr.0000': pmgr}, away=None, pilots=lambda: [pilot],
                           uids=SimpleNamespace(find_task=tasks.find), pilot=pilot, add=lambda *records: tasks.add(
                               [record.uid for record in records], records))


def view(session: Any) -> LiveView:
    return LiveView(cast(Owner, session))


def ended(uid: str, seconds: float) -> TaskRecord:
    task = a_task(uid, executable='md')
    task.state = states.DONE
    task.learn({'times': [0.0, 100.0, 100.0 + seconds]})
    return task


def test_notes(session: Any) -> None:
    assert view(session).note('tmgr.0000') == {'scheduler': 'backfilling', 'pilots': ['pilot.0000'],
                                               'last': 'pilot.0000 was removed'}
    assert view(session).note('job.pilot.0000') == {'queue': {'job': '17'}}
    assert [view(session).note(key) for key in ('job.pilot.0001', 'tmgr.0001', 'coordinator')] == [None] * 3
    session.away = {'sentence': 'it is away', 'since': 1.0}
    assert view(session).note('coordinator') == {'sentence': 'it is away', 'since': 1.0}


def test_pilots_have_partitions_beside_them(session: Any) -> None:
    session.pilot.partitions.append(PartitionRecord(session.pilot, 0))
    session.pilot.partitions[0].learn({'waiting': [{'first': 't'}]})
    assert [(pilot['uid'], pilot['waiting'], pilot['record'].get(WHOLE)) for pilot in view(session).pilots()] == [
        ('pilot.0000', [], None), ('pilot.0000.0000', [{'first': 't'}], 'pilot.0000')]


def test_a_task_that_is_slower_than_others(session: Any) -> None:
    slow = a_task('slow', executable='md')
    slow.state, slow.pilot = states.AGENT_EXECUTING, session.pilot
    slow.learn({'times': [0.0, 100.0, None]})
    others = [ended(f'peer.{number}', 10.0 + number) for number in range(6)]
    other_kind = a_task('other', executable='cat')
    session.add(slow, *others, other_kind)
    live = view(session)
    assert {peer['uid'] for peer in live.peers(live.of_task(slow, 'tmgr.0000'))} == {task.uid for task in others}
    reason = reason_of(live.of_task(slow, 'tmgr.0000'), live)
    assert reason is not None
    assert (reason.kind, reason.evidence['usual'], reason.evidence['peers']) == ('slow', 12.5, 6)


def test_any_master_is_the_one_that_has_come_the_furthest(session: Any) -> None:
    assert view(session).task('*') is None
    masters = [a_task(f'm{number}', mode=RAPTOR_MASTER) for number in range(3)]
    for master, state in zip(masters, (states.AGENT_SCHEDULING, states.AGENT_EXECUTING, states.DONE), strict=True):
        master.state = state
    session.add(*masters)
    found = view(session).task('*')
    assert found is not None
    assert (found['uid'], found['tmgr']) == ('m1', 'tmgr.0000')
    assert view(session).task('nosuch') is None


def test_how_much_of_the_input_is_left(session: Any, tmp_path: Path) -> None:
    (tmp_path / 'client').mkdir()
    for name, size in (('a', 1000), ('b', 3000), ('c', 500)):
        (tmp_path / 'client' / name).write_bytes(b'x' * size)
    task = a_task('t', input_staging=['a', 'b', 'c', 'nosuch'])
    task.state, task.pilot = states.TMGR_STAGING_INPUT, session.pilot
    sandbox = Path(str(task.sandbox))
    sandbox.mkdir(parents=True)
    (sandbox / 'a').write_bytes(b'x' * 1000)
    (sandbox / 'b').write_bytes(b'x' * 2000)
    session.add(task)
    live = view(session)
    assert live.of_task(task, 'tmgr.0000')['progress'] == {'files': 3, 'left': 2, 'bytes': 4500, 'bytes_left': 1500}
    reason = reason_of(live.of_task(task, 'tmgr.0000'), live)
    assert reason is not None
    assert reason.sentence == ('the application transfers its input files: 2 of 3 are left, 0.0015 of 0.0045 MB')
