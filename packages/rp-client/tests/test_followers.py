"""The tasks of RAPTOR masters go to the pilot of their master, and wait until it has one."""

from __future__ import annotations

from typing import Any

import pytest
from client_support import Events, a_pilot, common

from rp_api import constants as c
from rp_api import states
from rp_api.reasons.kinds import WORKERS
from rp_api.reasons.wait import WAITS_FOR, wait
from rp_client.core.task import TaskRecord
from rp_client.flow.task_flow import log_wait
from rp_client.scheduler.component import TaskScheduling
from rp_client.scheduler.round_robin import RoundRobin


class Scheduling:
    """The component with two pilots to come, and what came out of it."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskRecord] = {}
        self.sizes: list[int] = []
        self.component = TaskScheduling('0000', Events(), lambda tasks, state: None, RoundRobin(), self.tasks,
                                        self.sizes.append)
        self.pilots = [a_pilot(uid=f'pilot.000{number}') for number in range(2)]

    def put(self, *tasks: TaskRecord) -> None:
        self.tasks.update((task.uid, task) for task in tasks)
        self.component.put(list(tasks))

    def add_pilots(self) -> None:
        self.component.add_pilots(self.pilots)

    def bound(self) -> dict[str, str | None]:
        return {uid: task.place for uid, task in self.tasks.items()}


@pytest.fixture
def scheduling() -> Scheduling:
    return Scheduling()


def a_task(uid: str, raptor_id: str = 'raptor.0', **values: Any) -> TaskRecord:
    return TaskRecord(uid, common({'mode': c.TASK_EVAL, 'raptor_id': raptor_id} | values))


def a_master(uid: str = 'raptor.0', pilot: str = '') -> TaskRecord:
    return TaskRecord(uid, common({'mode': c.RAPTOR_MASTER, **({'pilot': pilot} if pilot else {})}))


def test_tasks_follow_their_master(scheduling: Scheduling) -> None:
    scheduling.add_pilots()
    scheduling.put(a_task('early'), a_master(pilot='pilot.0001'), a_task('worker'))
    scheduling.put(a_task('late'))
    assert set(scheduling.bound().values()) == {'pilot.0001'}


def test_tasks_wait_for_their_master(scheduling: Scheduling) -> None:
    scheduling.add_pilots()
    scheduling.put(a_task('task.0'), a_task('task.1', '*'), a_task('task.2', pilot='pilot.0000'))
    assert scheduling.bound() == {'task.0': None, 'task.1': None, 'task.2': 'pilot.0000'}
    assert [task.uid for task in scheduling.component.waiting()] == ['task.0', 'task.1']
    assert scheduling.sizes[-1] == 2
    scheduling.put(a_master(pilot='pilot.0001'))
    assert scheduling.bound()['task.0'] == scheduling.bound()['task.1'] == 'pilot.0001'
    assert scheduling.sizes[-1] == 0


def test_all_wait_for_pilots(scheduling: Scheduling) -> None:
    scheduling.put(a_master(), a_task('task.0'), a_task('task.1', '*'))
    assert set(scheduling.bound().values()) == {None}
    scheduling.add_pilots()
    assert set(scheduling.bound().values()) == {'pilot.0000'}


def test_tasks_for_any_master_are_spread_over_the_pilots_that_have_one(scheduling: Scheduling) -> None:
    scheduling.add_pilots()
    first, second = a_master('raptor.0', 'pilot.0000'), a_master('raptor.1', 'pilot.0001')
    scheduling.put(first)
    scheduling.put(*[a_task(f'a.{number}', '*') for number in range(4)])
    scheduling.put(second)
    scheduling.put(*[a_task(f'b.{number}', '*') for number in range(4)])
    first.state = states.DONE
    scheduling.put(*[a_task(f'c.{number}', '*') for number in range(4)])
    second.state = states.FAILED
    scheduling.put(a_task('late', '*'))   # where its agent knows what has become of the masters
    found = scheduling.bound()
    assert [found[f'a.{number}'] for number in range(4)] == ['pilot.0000'] * 4
    assert sorted(str(found[f'b.{number}']) for number in range(4)) == ['pilot.0000'] * 2 + ['pilot.0001'] * 2
    assert {found[f'c.{number}'] for number in range(4)} == {found['late']} == {'pilot.0001'}


@pytest.mark.parametrize('raptor_id', ['raptor.0', '*'])
def test_tasks_of_a_master_that_never_had_a_pilot(scheduling: Scheduling, raptor_id: str) -> None:
    master = a_master()
    scheduling.put(master, a_task('task.0', raptor_id), a_task('other', 'raptor.1'))
    assert scheduling.component.orphans() == []
    master.state = states.CANCELED
    master.learn({'exception': 'why'})
    (task, sentence), = scheduling.component.orphans()
    assert (task.uid, sentence) == ('task.0', 'raptor.0 has ended before it ran the task: why')
    assert [task.uid for task in scheduling.component.waiting()] == ['raptor.0', 'other']


def test_tasks_that_wait_for_a_master_can_be_dropped(scheduling: Scheduling) -> None:
    scheduling.put(a_task('task.0'), a_task('task.1'))
    assert [task.uid for task in scheduling.component.forget(['task.0', 'unknown'])] == ['task.0']
    scheduling.add_pilots()
    scheduling.put(a_master())
    assert scheduling.bound() == {'task.0': None, 'task.1': 'pilot.0000', 'raptor.0': 'pilot.0000'}


def test_restored_master_is_followed(scheduling: Scheduling) -> None:
    scheduling.add_pilots()
    master = a_master()
    master.pilot = scheduling.pilots[1]
    scheduling.component.know(master)
    scheduling.put(a_task('task.0'))
    assert scheduling.bound() == {'task.0': 'pilot.0001'}


@pytest.mark.parametrize('raptor_id', ['raptor.0', '*'])
def test_tasks_for_a_master_that_was_not_submitted(scheduling: Scheduling, raptor_id: str) -> None:
    task, other, plain = a_task('task.0', raptor_id), a_task('task.1', raptor_id), a_task('plain', '')
    scheduling.put(plain, task, other)
    assert scheduling.component.without_master([plain, task, other]) == [task]
    task.state = states.CANCELED
    assert scheduling.component.without_master([plain, task, other]) == [other]
    scheduling.put(a_master())
    assert scheduling.component.without_master([other]) == []


def test_a_wait_of_a_master_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    master = a_master()
    master.state = states.AGENT_EXECUTING
    logged: dict[str, str] = {}
    for text in ('workers', 'workers', '', 'others'):
        master.learn({WAITS_FOR: wait(WORKERS, text)})
        log_wait(master, logged)
    assert caplog.messages == ['raptor.0 waits for workers', 'raptor.0 waits for others']
    master.state = states.DONE
    master.learn({WAITS_FOR: wait(WORKERS, 'nothing')})
    log_wait(master, logged)
    assert len(caplog.messages) == 2


def test_a_master_that_is_submitted_with_its_tasks_and_scheduled_after_them(scheduling: Scheduling) -> None:
    master = a_master()
    scheduling.tasks['raptor.0'] = master
    scheduling.put(a_task('task.0'))
    assert scheduling.component.orphans() == []
    scheduling.put(master)
    scheduling.add_pilots()
    assert scheduling.bound() == {'raptor.0': 'pilot.0000', 'task.0': 'pilot.0000'}


def test_a_task_whose_master_is_none_fails(scheduling: Scheduling) -> None:
    scheduling.add_pilots()
    scheduling.put(a_task('wrong', 'plain'), a_task('right'))
    assert scheduling.component.orphans() == []
    scheduling.put(a_task('plain', ''), a_task('later', 'plain', pilot='pilot.0000'))
    assert scheduling.component.orphans() == [
        (scheduling.tasks[uid], f"raptor_id of {uid} is plain, which is not a RAPTOR master: its mode is 'task.eval'")
        for uid in ('wrong', 'later')]
    assert [task.uid for task in scheduling.component.waiting()] == ['right']
