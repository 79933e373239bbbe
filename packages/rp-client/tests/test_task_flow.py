"""The way of tasks through the client: to a pilot, to its agent, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from flow_support import Site

from rp_api import states
from rp_api.constants import RAPTOR_MASTER, RAPTOR_WORKER, TASK_FUNCTION
from rp_api.coordination.contract import BULK, KnownTask
from rp_api.errors import NoPilot
from rp_api.failures.retry_rules import RESTARTS
from rp_client.completion.task_future import TaskFuture
from rp_client.core.pilot import PilotRecord
from rp_client.core.sweep import ChunkRecord
from rp_client.core.task import TaskRecord
from rp_client.engine.tracker import Change
from rp_client.scheduler.backfilling import Backfilling
from rp_client.scheduler.base import TaskScheduler
from rp_client.scheduler.round_robin import RoundRobin

SENT = states.AGENT_STAGING_INPUT_PENDING
LEFT = states.TMGR_STAGING_OUTPUT_PENDING


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    with made.opened:
        yield made
        made.check()


@pytest.fixture
def late(tmp_path: Path) -> Iterator[Site]:
    """One whose tasks are bound late."""
    made = Site(tmp_path, Backfilling())
    yield made
    made.check()


def are(tasks: Iterable[TaskRecord]) -> list[str]:
    return [task.state for task in tasks]


# there and back

def test_way_of_a_task(site: Site) -> None:
    site.pilot()
    (task,) = site.submit('task.1', arguments=['a'])
    assert site.connection.tasks == [('pilot.0000', [('task.1', {'executable': '/bin/true', 'arguments': ['a']})])]
    assert (task.state, task.handle.pilot) == (SENT, 'pilot.0000')
    site.report(task, states.AGENT_EXECUTING)
    site.report(task, LEFT, target_state=states.DONE, exit_code=0, stdout='out')
    assert (task.state, task.handle.exit_code, task.handle.stdout) == (states.DONE, 0, 'out')
    assert site.states['task.1'] == [row.name for row in states.TASK_STATES][1:-2]
    assert site.updates() == [('task.1', states.DONE, None)]


def test_events(site: Site) -> None:
    site.pilot()
    (task,) = site.submit('task.1')
    site.report(task, LEFT, target_state=states.DONE)
    seen = [(event, state) for event, uid, state, _ in site.events.rows if uid == 'task.1']
    assert seen == [('get', states.NEW), *(('advance', state) for state in (
        states.TMGR_SCHEDULING_PENDING, states.TMGR_SCHEDULING, states.TMGR_STAGING_INPUT_PENDING,
        states.TMGR_STAGING_INPUT, SENT, states.TMGR_STAGING_OUTPUT, states.DONE))]
    assert ('get', 'test', '', 'bulk size: 1') in site.events.rows


def test_task_of_which_the_agent_has_the_last_word(site: Site) -> None:
    """It has nothing to be staged here; all states are passed all the same, and nobody has to be told."""
    site.pilot()
    (task,) = site.submit('task.1')
    site.report(task, states.DONE, exit_code=0, stdout='out')
    assert (task.state, task.handle.exit_code, task.handle.stdout) == (states.DONE, 0, 'out')
    assert site.states['task.1'] == [row.name for row in states.TASK_STATES][1:-2]
    assert site.updates() == []
    assert [state for event, uid, state, _ in site.events.rows if uid == 'task.1'][-2:] == [
        states.TMGR_STAGING_OUTPUT, states.DONE]


@pytest.mark.parametrize('state', [states.FAILED, states.CANCELED])
def test_task_that_does_not_succeed(site: Site, state: str) -> None:
    site.pilot()
    (task,) = site.submit('task.1')
    site.report(task, LEFT, target_state=state, exit_code=3, exception='why')
    assert (task.state, task.handle.exit_code, task.handle.exception) == (state, 3, 'why')
    assert site.states['task.1'][-2:] == [states.TMGR_STAGING_OUTPUT, state]


def test_task_that_fails_before_it_runs(site: Site) -> None:
    """It does not come back through output staging."""
    site.pilot()
    (task,) = site.submit('task.1')
    site.report(task, states.FAILED, reached=states.AGENT_SCHEDULING, exception='too large')
    assert (task.state, task.handle.exception) == (states.FAILED, 'too large')
    assert site.states['task.1'][-2:] == [states.AGENT_SCHEDULING, states.FAILED]
    assert site.updates() == []


def test_files_on_both_ways(site: Site) -> None:
    (site.base / 'client/in').write_text('data')
    site.pilot()
    (task,) = site.submit('task.1', input_staging='in', output_staging='in > out')
    assert (task.state, site.sent()) == (states.TMGR_STAGING_INPUT, [])
    site.later.work()
    assert (task.state, site.sent()) == (SENT, [('pilot.0000', ['task.1'])])
    site.report(task, LEFT, target_state=states.DONE, exit_code=0)
    assert task.state == states.TMGR_STAGING_OUTPUT
    site.later.work()
    assert task.state == states.DONE
    assert (site.base / 'client/out').read_text() == 'data'


def test_input_that_is_not_there(site: Site) -> None:
    site.pilot()
    (task,) = site.submit('task.1', input_staging='in')
    site.later.work()
    assert (task.state, task.handle.exception_detail, site.sent()) == (states.FAILED, 'input staging failed', [])
    assert [(uid, state) for uid, state, _ in site.updates()] == [('task.1', states.FAILED)]


def test_result_that_is_not_there(site: Site) -> None:
    """The hub gets to know why, for those who read its results later."""
    site.pilot()
    (task,) = site.submit('task.1', output_staging='none')
    site.report(task, LEFT, target_state=states.DONE, exit_code=0)
    site.later.work()
    assert (task.state, task.handle.exit_code, task.handle.exception_detail) == (
        states.FAILED, 0, 'output staging failed')
    (update,) = site.updates()
    assert update.info is not None
    assert (update.info['exit_code'], update.info['exception']) == (0, task.handle.exception)


def test_nothing_is_told_twice(site: Site) -> None:
    """A restarted hub may deliver again what was seen."""
    site.pilot()
    (task,) = site.submit('task.1')
    for _ in range(2):
        site.report(task, LEFT, target_state=states.DONE)
        site.report(task, states.AGENT_EXECUTING)
    assert site.states['task.1'].count(states.DONE) == 1
    assert len(site.updates()) == 1


def test_results_are_handled_in_bulks(site: Site) -> None:
    site.pilot()
    tasks = site.submit_many(5)
    site.flow.update([Change(task, LEFT, {'target_state': states.DONE}) for task in tasks])
    assert [len(bulk) for bulk in site.connection.updates] == [5]


# what is on its way to the hub

def test_bulks_have_a_limit(site: Site) -> None:
    site.pilot()
    tasks = site.submit_many(2 * BULK + 1)
    assert [len(uids) for _, uids in site.sent()] == [BULK, BULK, 1]
    assert [uid for _, uids in site.sent() for uid in uids] == [task.uid for task in tasks]


def test_large_submission_is_looked_at_in_steps(site: Site) -> None:
    """The first tasks are on their way before the last ones are bound."""
    site.pilot()
    tasks = site.make(*(f'task.{number}' for number in range(BULK + 1)))
    site.flow.submit(tasks, Future())
    assert set(are(tasks)) == {states.TMGR_SCHEDULING_PENDING}
    assert site.sent() == []
    site.engine.loop.turn()
    assert [len(uids) for _, uids in site.sent()] == [BULK, 1]


def test_nothing_is_sent_without_room(site: Site) -> None:
    """The connection itself would fail this test."""
    site.pilot()
    site.connection.free = False
    tasks = site.submit_many(BULK + 1)
    assert set(are(tasks)) == {SENT}
    assert site.sent() == []
    site.engine.have_room()
    assert [len(uids) for _, uids in site.sent()] == [BULK, 1]


def test_room_for_one_bulk_at_a_time(site: Site) -> None:
    """What is left waits for the next time; several pilots take turns."""
    site.pilot('pilot.1')
    site.pilot('pilot.2')
    site.connection.free = False
    tasks = site.submit_many(4 * BULK)
    insert = site.connection.insert_batch

    def insert_one(pilot: str, bulk: Any, owner: str) -> None:
        insert(pilot, bulk, owner)
        site.connection.free = False

    site.connection.insert_batch = insert_one   # type: ignore[method-assign,assignment]
    for number in range(1, 5):
        site.engine.have_room()
        assert len(site.sent()) == number
    assert [(pilot, len(uids)) for pilot, uids in site.sent()] == [
        ('pilot.1', BULK), ('pilot.2', BULK), ('pilot.1', BULK), ('pilot.2', BULK)]
    assert {uid for _, uids in site.sent() for uid in uids} == {task.uid for task in tasks}
    site.engine.have_room()
    assert len(site.sent()) == 4


def test_tasks_wait_for_a_pilot(site: Site) -> None:
    tasks = site.submit('task.1', 'task.2')
    assert are(tasks) == [states.TMGR_SCHEDULING] * 2
    assert site.waiting == [2]
    site.pilot()
    assert site.sent() == [('pilot.0000', ['task.1', 'task.2'])]
    assert site.waiting == [2, 0]


def test_removed_pilot_gets_no_more_tasks(site: Site) -> None:
    pilot = site.pilot()
    (first,) = site.submit('task.1')
    site.flow.remove_pilots([pilot], site.tasks.values)
    assert site.connection.withdrawn == []
    (second,) = site.submit('task.2')
    assert are([first, second]) == [SENT, states.TMGR_SCHEDULING]
    assert site.sent() == [('pilot.0000', ['task.1'])]


def test_tasks_of_a_removed_pilot_that_waits_run_on_another(site: Site) -> None:
    """Those that no agent has taken, and that do not request it; the pilot may be added again."""
    pilot = site.pilot(state=states.PMGR_ACTIVE_PENDING)
    tasks = site.submit('task.1', 'task.2')
    site.submit('task.3', pilot='pilot.0000')
    site.flow.remove_pilots([pilot], site.tasks.values)
    assert site.connection.withdrawn == ['task.1', 'task.2']
    assert site.connection.commands == []
    site.report(tasks[0], states.AGENT_SCHEDULING, returned='pilot.0000')
    site.engine.loop.turn()
    assert [task.handle.pilot for task in tasks] == [None, 'pilot.0000']
    site.pilot('pilot.0001')
    assert [task.handle.pilot for task in tasks] == ['pilot.0001', 'pilot.0000']
    site.flow.add_pilots([pilot])
    assert {task.handle.pilot for task in site.submit('task.4', 'task.5')} == {'pilot.0000', 'pilot.0001'}
    assert len(site.sent()) == 5


def test_a_drained_pilot_that_waits_has_nothing_to_finish(site: Site) -> None:
    pilot = site.pilot(state=states.PMGR_ACTIVE_PENDING)
    (task,) = site.submit('task.1')
    drained = drain(site, pilot)
    assert site.connection.withdrawn == ['task.1']
    site.report(task, states.AGENT_SCHEDULING, returned='pilot.0000')
    assert drained.done()


def _waits(site: Site, task: TaskRecord) -> str:
    """The error that ends a wait for a task; empty if it goes on."""
    try:
        assert not site.board.wait([task], None, 0)
    except NoPilot as error:
        return str(error)
    return ''


def test_waits_without_a_pilot_end(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    pilot = site.pilot()
    (bound,) = site.submit('task.1')
    site.end(pilot, states.DONE, 'its runtime is over')
    tasks = site.submit(*(f'task.{number}' for number in range(2, 7)))
    future = TaskFuture(tasks[0].handle, lambda *_: None)
    site.board.listen(tasks[0], future)
    site.engine.loop.wait(59)
    said = ('task.2, task.3, task.4 and 2 others wait for a pilot: tmgr.0000 has none any more, pilot.0000 is DONE: '
            'its runtime is over (see add_pilots)')
    assert [record.message for record in caplog.records] == [said]
    assert (_waits(site, tasks[0]), future.done()) == ('', False)
    site.engine.loop.wait(60)
    assert _waits(site, tasks[0]) == f'{said}; no_pilot_timeout of the TaskManager is 60 s'
    assert isinstance(future.exception(0), NoPilot)
    assert bound.state in states.FINAL
    site.pilot('pilot.0001', states.PMGR_ACTIVE_PENDING)   # a pilot that waits is one
    assert _waits(site, tasks[0]) == ''
    site.engine.loop.wait(100)
    assert _waits(site, tasks[0]) == ''


def test_the_time_without_a_pilot_begins_with_the_tasks(site: Site) -> None:
    (first,) = site.submit('task.1')
    site.engine.loop.wait(60)
    assert _waits(site, first).startswith('task.1 wait for a pilot: tmgr.0000 has none (see add_pilots);')
    site.flow.cancel([first])
    (second,) = site.submit('task.2')
    assert _waits(site, second) == ''
    site.engine.loop.wait(60)
    assert _waits(site, second)


# cancellation

def test_cancel_of_what_was_just_submitted(site: Site) -> None:
    site.pilot()
    tasks = site.make('task.1', 'task.2')
    site.flow.submit(tasks, Future())
    site.flow.cancel(tasks[:1])
    assert (tasks[0].state, tasks[0].handle.exception) == (states.CANCELED, 'cancelled before it was sent to a pilot')
    site.engine.loop.turn()
    assert site.sent() == [('pilot.0000', ['task.2'])]
    assert site.connection.commands == []


def test_cancel_of_what_waits_for_a_pilot(site: Site) -> None:
    tasks = site.submit('task.1', 'task.2')
    site.flow.cancel(tasks[:1])
    assert are(tasks) == [states.CANCELED, states.TMGR_SCHEDULING]
    assert site.waiting == [2, 1]
    site.pilot()
    assert site.sent() == [('pilot.0000', ['task.2'])]
    assert [(uid, state) for uid, state, _ in site.updates()] == [('task.1', states.CANCELED)]


def test_cancel_of_what_could_not_be_sent_yet(site: Site) -> None:
    site.pilot('pilot.1')
    site.pilot('pilot.2')
    site.connection.free = False
    tasks = site.submit('task.1', 'task.2', 'task.3', 'task.4')
    site.flow.cancel(tasks[:3])
    assert are(tasks) == [states.CANCELED] * 3 + [SENT]
    site.engine.have_room()
    assert site.sent() == [('pilot.2', ['task.4'])]
    assert site.connection.commands == []


def test_cancel_of_what_was_sent(site: Site) -> None:
    """The agents end it, and tell about it."""
    site.pilot('pilot.1')
    site.pilot('pilot.2')
    tasks = site.submit('task.1', 'task.2', 'task.3')
    site.flow.cancel(tasks)
    assert set(are(tasks)) == {SENT}
    assert site.connection.commands == [('pilot.1', {'cmd': 'cancel_tasks', 'uids': ['task.1', 'task.3']}),
                                        ('pilot.2', {'cmd': 'cancel_tasks', 'uids': ['task.2']})]
    site.report(tasks[0], LEFT, target_state=states.CANCELED)
    assert tasks[0].state == states.CANCELED


def test_cancel_while_files_are_moved(site: Site) -> None:
    (site.base / 'client/in').touch()
    site.pilot()
    (task,) = site.submit('task.1', input_staging='in')
    site.flow.cancel([task])
    assert (task.state, task.handle.exception) == (states.CANCELED, 'cancelled while its input was staged')
    site.later.work()
    assert (task.state, site.sent(), site.connection.commands) == (states.CANCELED, [], [])


def test_cancel_of_what_has_ended(site: Site) -> None:
    site.pilot()
    (task,) = site.submit('task.1')
    site.report(task, LEFT, target_state=states.DONE)
    site.flow.cancel([task])
    assert (task.state, site.connection.commands) == (states.DONE, [])


def test_cancel_of_many(site: Site) -> None:
    """Wherever they are, each is told about once."""
    site.connection.free = False
    waiting = site.submit('task.1', pilot='pilot.9')
    site.pilot()
    boxed = site.submit('task.2')
    new = site.make('task.3')
    site.flow.submit(new, Future())
    tasks = [*waiting, *boxed, *new]
    site.flow.cancel(tasks)
    site.flow.cancel(tasks)
    site.engine.loop.turn()
    assert set(are(tasks)) == {states.CANCELED}
    assert [site.states[task.uid].count(states.CANCELED) for task in tasks] == [1, 1, 1]
    site.engine.have_room()
    assert site.sent() == []


# pilots that end

@pytest.mark.parametrize(('pilot_state', 'task_state'), [
    (states.FAILED, states.FAILED), (states.CANCELED, states.CANCELED), (states.DONE, states.FAILED)])
def test_end_of_a_pilot(site: Site, pilot_state: str, task_state: str) -> None:
    """Tasks end with it, and say why; those that have left their agent go on."""
    pilot = site.pilot()
    other = site.pilot('pilot.1')
    tasks = site.submit('task.1', 'task.2', 'task.3', 'task.4', 'task.5', output_staging='none')
    mine, theirs = tasks[::2], tasks[1::2]
    site.report(mine[1], LEFT, target_state=states.DONE)
    site.end(pilot, pilot_state)
    assert are(mine) == [task_state, states.TMGR_STAGING_OUTPUT, task_state]
    assert set(are(theirs)) == {SENT}
    assert mine[0].handle.exception == 'pilot.0000 ended before the task did: it was hit by a truck'
    assert mine[0].handle.exception_detail == ('see there' if pilot_state == states.FAILED else None)
    assert {(uid, state) for uid, state, _ in site.updates()} == {('task.1', task_state), ('task.5', task_state)}
    (late,) = site.submit('task.6')
    assert late.pilot is other


def test_end_of_a_pilot_whose_tasks_could_not_be_sent(site: Site) -> None:
    pilot = site.pilot()
    site.connection.free = False
    tasks = site.submit_many(3)
    site.end(pilot)
    site.engine.have_room()
    assert {task.handle.pilot for task in tasks} == {None}   # they wait for another one
    assert site.sent() == []
    other = site.pilot('pilot.1')
    site.engine.loop.turn()
    site.engine.have_room()
    assert site.sent() == [(other.uid, [task.uid for task in tasks])]
    assert {task.handle.attempts for task in tasks} == {1}


@pytest.mark.parametrize('exists', [True, False])
def test_end_of_a_pilot_while_files_are_moved(site: Site, exists: bool) -> None:
    """The reason stays the first one."""
    if exists:
        (site.base / 'client/in').touch()
    pilot = site.pilot()
    (task,) = site.submit('task.1', input_staging='in')
    site.end(pilot, states.CANCELED)
    site.later.work()
    assert task.state == states.CANCELED
    assert 'hit by a truck' in str(task.handle.exception)
    assert site.sent() == []
    assert site.states['task.1'].count(states.CANCELED) == 1


def test_end_of_a_pilot_that_said_nothing(site: Site) -> None:
    pilot = site.pilot()
    (task,) = site.submit('task.1')
    pilot.state = states.DONE
    site.flow.pilot_ended(pilot, [task], dead_end=None)
    assert task.handle.exception == 'pilot.0000 ended before the task did: pilot.0000 is DONE'


def test_waiting_tasks_wait_for_the_next_pilot(site: Site) -> None:
    site.end(site.pilot())
    (task,) = site.submit('task.1')
    assert task.state == states.TMGR_SCHEDULING
    site.pilot('pilot.1')
    assert (task.state, task.handle.pilot) == (SENT, 'pilot.1')


def test_tasks_for_a_pilot_that_has_ended(site: Site) -> None:
    """They fail, before and after its end; others go on waiting."""
    pilot = site.pilot(add=False)
    before, other = site.submit('task.1', pilot=pilot.uid) + site.submit('task.2', pilot='pilot.9')
    site.end(pilot)
    (after,) = site.submit('task.3', pilot=pilot.uid)
    assert are([before, other, after]) == [states.FAILED, states.TMGR_SCHEDULING, states.FAILED]
    for task in (before, after):
        assert task.handle.exception == 'pilot.0000, which the task requests, has ended: it was hit by a truck'
    assert site.waiting[-1] == 1


def test_dead_end(site: Site) -> None:
    """Where no pilot is left, neither those that wait nor later ones are kept waiting, until there is a new pilot."""
    (waiting,) = site.submit('task.1', pilot='pilot.9')
    site.end(site.pilot(), dead_end='no pilot is left')
    (late,) = site.submit('task.2')
    assert [(task.state, task.handle.exception) for task in (waiting, late)] == [
        (states.FAILED, 'no pilot is left')] * 2
    site.flow.add_pilots([])
    (later,) = site.submit('task.3')
    assert later.state == states.FAILED
    site.pilot('pilot.1')
    (good,) = site.submit('task.4')
    assert good.state == SENT


def test_task_bound_to_a_pilot_that_has_just_ended(site: Site) -> None:
    site.pilot('pilot.1', states.FAILED)
    (task,) = site.submit('task.1')
    assert (task.handle.pilot, task.state in states.FINAL, task.handle.attempts) == (None, False, 0)
    assert site.sent() == []


# the end of it all

def test_end_of_all_tasks(site: Site) -> None:
    (site.base / 'client/in').touch()
    site.pilot()
    done, sent = site.submit('task.1', 'task.2')
    (moving,) = site.submit('task.3', input_staging='in')
    (waiting,) = site.submit('task.4', pilot='pilot.9')
    site.report(done, LEFT, target_state=states.DONE)
    tasks = [done, sent, moving, waiting]
    site.flow.end_all(tasks, 'the session was closed')
    site.later.work()
    assert are(tasks) == [states.DONE] + [states.CANCELED] * 3
    assert [task.handle.exception for task in tasks] == [None] + ['the session was closed'] * 3
    assert site.sent() == [('pilot.0000', ['task.1', 'task.2'])]


def test_close(site: Site) -> None:
    """Nothing is sent any more, and components leave their last event."""
    site.pilot()
    site.connection.free = False
    tasks = site.submit('task.1')
    site.flow.end_all(tasks, 'the session was closed')
    site.flow.close()
    site.engine.have_room()
    assert site.sent() == []
    assert [uid for event, uid, _, _ in site.events.rows if event == 'component_final'] == [
        'tmgr_scheduling.0000', 'tmgr_staging_input.0000', 'tmgr_staging_output.0000']


# what the coordinator is asked to keep

def submitted(site: Site, *uids: str, **description: Any) -> tuple[list[TaskRecord], Future[None]]:
    """Tasks, and what tells whether the coordinator has accepted them."""
    tasks, accepted = site.make(*uids, **description), Future[None]()
    site.flow.submit(tasks, accepted)
    site.engine.loop.turn()
    return tasks, accepted


def test_tasks_without_a_pilot_are_kept_and_bound_later(site: Site) -> None:
    tasks = site.submit('task.1', 'task.2')
    assert site.connection.kept == ['task.1', 'task.2']
    assert (site.sent(), [task.handle.attempts for task in tasks]) == ([], [0, 0])
    site.pilot()
    assert site.sent() == [('pilot.0000', ['task.1', 'task.2'])]
    assert len(site.connection.tasks) == 1
    assert [task.handle.attempts for task in tasks] == [1, 1]


def test_tasks_that_are_bound_at_once_are_not_kept(site: Site) -> None:
    site.pilot()
    (task,) = site.submit('task.1')
    assert (site.connection.kept, len(site.connection.tasks), task.handle.attempts) == ([], 1, 1)


def test_task_is_kept_while_its_files_are_moved(site: Site) -> None:
    (site.base / 'client/in').touch()
    site.pilot()
    (task,) = site.submit('task.1', input_staging='in')
    assert (site.connection.kept, site.sent(), task.handle.attempts) == (['task.1'], [], 0)
    site.later.work()
    assert (site.sent(), task.handle.attempts) == ([('pilot.0000', ['task.1'])], 1)


def test_task_that_is_bound_before_there_was_room(site: Site) -> None:
    """It goes to the coordinator once."""
    site.connection.free = False
    site.submit('task.1')
    site.pilot()
    site.engine.have_room()
    assert (site.connection.kept, site.sent()) == ([], [('pilot.0000', ['task.1'])])


def test_task_that_ends_before_there_was_room(site: Site) -> None:
    """The coordinator has it all the same, with its end."""
    site.connection.free = False
    (task,) = site.submit('task.1')
    site.flow.cancel([task])
    assert site.updates() == []
    site.engine.have_room()
    assert site.connection.kept == ['task.1']
    assert [(uid, state) for uid, state, _ in site.updates()] == [('task.1', states.CANCELED)]


def test_submission_is_accepted_when_the_coordinator_has_it(site: Site) -> None:
    site.pilot()
    site.connection.away = True
    _, accepted = submitted(site, 'task.1')
    assert len(site.sent()) == 1
    assert not accepted.done()
    site.connection.come_back()
    assert accepted.done()


def test_submission_is_not_accepted_before_it_was_sent(site: Site) -> None:
    site.pilot()
    site.connection.free = False
    _, accepted = submitted(site, 'task.1')
    assert not accepted.done()
    site.engine.have_room()
    assert accepted.done()


@pytest.mark.parametrize('what', ['cancelled', 'pilot ended'])
def test_submission_of_which_nothing_is_left(site: Site, what: str) -> None:
    """Nobody waits for what will not be sent."""
    pilot = site.pilot()
    site.connection.free = False
    tasks, accepted = submitted(site, 'task.1')
    site.connection.free = True
    if what == 'cancelled':
        site.flow.cancel(tasks)
    else:
        site.end(pilot)
    assert accepted.done()


# pilots that are drained

def drain(site: Site, pilot: PilotRecord) -> Future[None]:
    drained: Future[None] = Future()
    site.flow.drain_pilots([pilot], list(site.tasks.values()), drained)
    site.engine.loop.turn()
    return drained


@pytest.mark.parametrize('scheduler', [RoundRobin, Backfilling])
def test_a_drained_pilot_keeps_what_has_started(tmp_path: Path, scheduler: type[TaskScheduler]) -> None:
    site = Site(tmp_path, scheduler())
    pilot = site.sized('pilot.1', 8)
    running, first, second = site.submit('task.1', 'task.2', 'task.3')
    own, call = site.submit('task.4', pilot='pilot.1')[0], site.submit('task.5', raptor_id='*')[0]
    (master,) = site.submit('task.6', mode=RAPTOR_MASTER)
    (user,) = site.submit('task.8', services=['db'])
    site.report(running, states.AGENT_EXECUTING)
    drained = drain(site, pilot)
    assert site.connection.commands[-1] == (
        'pilot.1', {'cmd': 'return_tasks', 'uids': ['task.1', 'task.2', 'task.3']})
    site.sized('pilot.2', 8)
    site.report(first, states.AGENT_SCHEDULING, returned='pilot.1')
    site.report(second, states.AGENT_SCHEDULING, returned='pilot.1')
    site.engine.loop.turn()
    assert [uid for pilot, uids in site.sent() for uid in uids if pilot == 'pilot.2'] == ['task.2', 'task.3']
    site.report(first, states.AGENT_SCHEDULING, returned='pilot.1')   # again
    assert (first.handle.pilot, first.handle.attempts) == ('pilot.2', 1)
    assert (running.handle.pilot, own.handle.pilot) == ('pilot.1', 'pilot.1')
    assert (call.handle.pilot, master.handle.pilot, user.handle.pilot) == ('pilot.1', 'pilot.1', 'pilot.1')
    for task in (running, own, user):
        site.report(task, LEFT, target_state=states.DONE)
    assert not drained.done()
    site.report(call, LEFT, target_state=states.DONE)
    assert drained.done(), 'the master may go on'
    assert master.state not in states.FINAL
    (later,) = site.submit('task.7')
    assert later.handle.pilot == 'pilot.2'


def test_a_drained_pilot_does_not_get_what_was_not_sent(site: Site) -> None:
    (site.base / 'client/in').touch()
    pilot = site.pilot('pilot.1')
    site.connection.free = False
    (unsent,) = site.submit('task.1')
    (own,) = site.submit('task.2', pilot='pilot.1')
    (staging,) = site.submit('task.3', input_staging='in')
    drained = drain(site, pilot)
    site.pilot('pilot.2')
    site.engine.have_room()
    site.later.work()
    site.engine.loop.turn()
    site.later.work()
    assert [each.handle.pilot for each in (unsent, own, staging)] == ['pilot.2', 'pilot.1', 'pilot.2']
    assert site.sent() == [('pilot.1', ['task.2']), ('pilot.2', ['task.1']), ('pilot.2', ['task.3'])]
    assert site.connection.commands == []
    site.report(own, LEFT, target_state=states.FAILED)
    assert drained.done()


def test_tasks_that_wait_for_room_on_a_drained_pilot_alone_go_there(late: Site) -> None:
    pilot = late.sized('pilot.1', 1)
    other = late.sized('pilot.2', 1)
    tasks = late.submit('task.1', 'task.2', pilot='pilot.1')
    assert [task.handle.pilot for task in tasks] == ['pilot.1', None]
    drained = drain(late, pilot)
    assert [task.handle.pilot for task in tasks] == ['pilot.1', 'pilot.1']
    for task in tasks:
        late.report(task, LEFT, target_state=states.DONE)
    assert drained.done()
    assert late.submit('task.3')[0].pilot is other


def test_end_of_a_pilot_that_is_drained(site: Site) -> None:
    """What it has certainly not started runs elsewhere, the rest ends with it."""
    pilot = site.pilot('pilot.1')
    running, waiting, cancelled = site.submit('task.1', 'task.2', 'task.3')
    site.report(running, states.AGENT_EXECUTING)
    drained = drain(site, pilot)
    site.flow.cancel([cancelled])
    site.report(cancelled, states.AGENT_SCHEDULING, returned='pilot.1')
    assert cancelled.state == states.CANCELED
    site.pilot('pilot.2')
    pilot.learn({'kept': ['task.1']})
    site.end(pilot)
    site.engine.loop.turn()
    assert drained.done()
    assert (running.state, waiting.handle.pilot) == (states.FAILED, 'pilot.2')


def test_tasks_that_were_returned_when_the_application_left(site: Site) -> None:
    """The record still names their pilot."""
    pilot = site.pilot('pilot.1', add=False)
    tasks = site.make('task.1', 'task.2')
    for task, info in zip(tasks, ({'returned': 'pilot.1'}, None), strict=True):
        known = KnownTask(task.uid, 'tmgr.0000', 'pilot.1', 1, {}, states.AGENT_SCHEDULING, info, states.NEW)
        task.restore(known, pilot)
        site.flow.restore(task, known)
    site.pilot('pilot.2')
    site.flow.resume()
    site.engine.loop.turn()
    assert site.sent() == [('pilot.2', ['task.1'])]
    site.report(tasks[1], states.AGENT_SCHEDULING, returned='pilot.1')
    site.engine.loop.turn()
    assert site.sent()[1:] == [('pilot.2', ['task.2'])]


# tasks that may be restarted

def test_restartable_tasks_go_to_another_pilot(site: Site) -> None:
    first, _ = site.pilot('pilot.1'), site.pilot('pilot.2')
    tasks = site.submit('task.1', 'task.2', 'task.3', restartable=True)
    for task in tasks:
        site.report(task, states.AGENT_EXECUTING)
    site.end(first)
    assert [task.handle.pilot for task in tasks] == [None, 'pilot.2', None]
    site.engine.loop.turn()
    assert site.sent()[-1] == ('pilot.2', ['task.1', 'task.3'])
    assert [(task.handle.pilot, task.handle.attempts, task.state) for task in tasks] == [
        ('pilot.2', 2, states.AGENT_EXECUTING), ('pilot.2', 1, states.AGENT_EXECUTING),
        ('pilot.2', 2, states.AGENT_EXECUTING)]
    site.report(tasks[0], states.AGENT_SCHEDULING)
    site.report(tasks[0], LEFT, target_state=states.DONE)
    assert tasks[0].state == states.DONE
    assert len(set(site.states['task.1'])) == len(site.states['task.1'])


def test_restartable_task_has_its_last_attempt(site: Site) -> None:
    (task,) = site.submit('task.1', restartable=True)
    for attempt in range(1, RESTARTS + 1):
        assert task.state not in states.FINAL
        pilot = site.pilot(f'pilot.{attempt}')
        assert (task.handle.pilot, task.handle.attempts) == (pilot.uid, attempt)
        site.end(pilot)
        site.engine.loop.turn()
    assert (task.state, task.handle.attempts) == (states.FAILED, RESTARTS)
    assert 'hit by a truck' in str(task.handle.exception)


@pytest.mark.parametrize('state', [states.CANCELED, states.DONE])
def test_restartable_task_of_a_pilot_that_did_not_fail(site: Site, state: str) -> None:
    """Only a user ends it with its pilot."""
    pilot = site.pilot()
    site.pilot('pilot.1')
    (task,) = site.submit('task.1', restartable=True)
    site.end(pilot, state)
    site.engine.loop.turn()
    assert (task.state, task.handle.pilot) == (
        (states.CANCELED, pilot.uid) if state == states.CANCELED else (SENT, 'pilot.1'))


@pytest.mark.parametrize('description', [{'restartable': True}, {'retries': 1}, {}])
def test_tasks_that_an_agent_returns_run_elsewhere(site: Site, description: dict[str, Any]) -> None:
    """Before the pilot is final, and only once; those that have not started have made no attempt."""
    site.pilot('pilot.1')
    lost, waiting = site.submit('task.1', 'task.2', **description)
    site.pilot('pilot.2')
    site.report(lost, states.AGENT_EXECUTING)
    entry = {'attempt': 1, 'kind': 'pilot', 'reason': 'its time was over', 'pilot': 'pilot.1', 'lost': 'end'}
    for _ in range(2):
        site.report(lost, states.AGENT_EXECUTING, returned='pilot.1', history=[entry])
        site.report(waiting, states.AGENT_SCHEDULING, returned='pilot.1')
        site.engine.loop.turn()
    assert site.sent()[1:] == [('pilot.2', ['task.1']), ('pilot.2', ['task.2'])]
    assert [(task.handle.pilot, task.handle.attempts, task.handle.losses) for task in (lost, waiting)] == [
        ('pilot.2', 2, 1), ('pilot.2', 1, 0)]
    assert site.connection.commands == [('pilot.2', {'cmd': 'history', 'tasks': {'task.1': [entry]}})]
    assert site.submit('task.3')[0].handle.pilot == 'pilot.2'   # none goes to a pilot that ends


def test_losses_do_not_count_for_retries(site: Site) -> None:
    """However many there are, if the end of the job was announced."""
    (task,) = site.submit('task.1', retries=1)
    for number in range(2 * RESTARTS):
        pilot = site.pilot(f'pilot.{number}')
        assert (task.handle.pilot, task.handle.attempts, task.handle.losses) == (pilot.uid, number + 1, number)
        pilot.learn({'announced': True})
        site.end(pilot)
        site.engine.loop.turn()
    assert {entry['lost'] for entry in task.handle.history} == {'end'}
    assert (task.handle.pilot, site.flow.end_of_pilot(pilot.uid)) == (None, 'it was hit by a truck')
    kept = site.updates()[-1]
    assert kept.info is not None
    assert (kept.uid, kept.state, len(kept.info['history'])) == ('task.1', states.AGENT_EXECUTING, 2 * RESTARTS)


def test_suspect_is_named(site: Site) -> None:
    (task,) = site.submit('task.1', restartable=True)
    for number in range(RESTARTS):
        pilot = site.pilot(f'pilot.{number}')
        site.end(pilot)
        site.engine.loop.turn()
    assert (task.state, task.handle.losses, task.handle.error.kind) == (states.FAILED, RESTARTS, 'pilot')
    assert 'task.1 is suspected of causing the loss of its nodes or agents' in str(task.handle.exception)


@pytest.mark.parametrize('state', [states.FAILED, states.CANCELED])
def test_a_job_that_never_ran_costs_nothing(site: Site, state: str) -> None:
    """The batch system has refused or cancelled it; if a user cancels the pilot, its tasks end with it."""
    pilot, _ = site.pilot('pilot.1', states.PMGR_ACTIVE_PENDING), site.pilot('pilot.2')
    (task,) = site.submit('task.1')
    assert task.handle.pilot == 'pilot.1'
    pilot.learn({'reached': states.PMGR_LAUNCHING})
    site.end(pilot, state)
    site.engine.loop.turn()
    if state == states.CANCELED:
        assert task.state == states.CANCELED
    else:
        assert (task.handle.pilot, task.handle.attempts) == ('pilot.2', 1)
        assert (task.handle.losses, task.handle.history) == (0, [])


def test_restartable_task_that_has_run_is_not_restarted(site: Site) -> None:
    pilot = site.pilot()
    site.pilot('pilot.1')
    (task,) = site.submit('task.1', restartable=True, output_staging='none')
    site.report(task, LEFT, target_state=states.DONE)
    site.end(pilot)
    assert (task.state, task.handle.pilot) == (states.TMGR_STAGING_OUTPUT, 'pilot.0000')


def test_restartable_task_is_staged_for_the_new_pilot(site: Site) -> None:
    """After what was begun for the former one, which is not interrupted."""
    (site.base / 'client/in').touch()
    pilot = site.pilot('pilot.1')
    (task,) = site.submit('task.1', input_staging='in', restartable=True)
    site.end(pilot)
    site.pilot('pilot.2')
    site.later.work()
    site.engine.loop.turn()
    assert (task.handle.pilot, site.sent()) == ('pilot.2', [])
    site.later.work()
    assert site.sent() == [('pilot.2', ['task.1'])]
    assert (task.handle.attempts, len(site.connection.kept)) == (1, 1)


def test_restartable_task_bound_to_a_pilot_that_has_just_failed(site: Site) -> None:
    """The news of its end is on its way; nobody runs in circles meanwhile."""
    failed = site.pilot('pilot.1', states.FAILED)
    (task,) = site.submit('task.1', restartable=True)
    assert task.pilot is None
    site.end(failed)
    site.pilot('pilot.2')
    assert site.sent() == [('pilot.2', ['task.1'])]


def test_restartable_task_that_waits_is_cancelled(site: Site) -> None:
    pilot = site.pilot()
    (task,) = site.submit('task.1', restartable=True)
    site.end(pilot)
    site.flow.cancel([task])
    assert task.state == states.CANCELED
    site.engine.loop.turn()
    site.pilot('pilot.1')
    assert len(site.sent()) == 1
    assert site.updates()[-1][:2] == ('task.1', states.CANCELED)


# tasks of a session that was taken over

def restored(site: Site, uid: str, state: str, pilot: PilotRecord | None = None, info: dict[str, Any] | None = None,
             **description: Any) -> TaskRecord:
    """A task as the coordinator knows it."""
    (task,) = site.make(uid, **description)
    known = KnownTask(uid, 'tmgr.0000', pilot.uid if pilot else '', 1 if pilot else 0, task.sparse(), state, info,
                      states.NEW)
    task.restore(known, pilot)
    site.flow.restore(task, known)
    return task


def test_restored_tasks_go_on(site: Site) -> None:
    (site.base / 'client/in').write_text('data')
    pilot = site.pilot()
    waiting = restored(site, 'task.1', SENT)
    running = restored(site, 'task.2', states.AGENT_EXECUTING, pilot)
    run = restored(site, 'task.3', LEFT, pilot, {'target_state': states.DONE, 'exit_code': 0, 'stdout': 'out'})
    failed = restored(site, 'task.4', states.TMGR_STAGING_OUTPUT, pilot, {'target_state': states.FAILED})
    done = restored(site, 'task.5', states.DONE, pilot, {'exit_code': 0})
    cancelled = restored(site, 'task.6', states.CANCELED)
    staged = restored(site, 'task.7', SENT, input_staging='in')
    assert are([waiting, staged, cancelled]) == [states.TMGR_SCHEDULING_PENDING] * 2 + [states.CANCELED]
    site.flow.resume()
    site.engine.loop.turn()
    site.later.work()
    assert are([waiting, running, run, failed, done, cancelled, staged]) == [
        SENT, states.AGENT_EXECUTING, states.DONE, states.FAILED, states.DONE, states.CANCELED, SENT]
    assert site.sent() == [('pilot.0000', ['task.1']), ('pilot.0000', ['task.7'])]
    assert site.connection.tasks == []
    assert (run.handle.stdout, run.handle.exit_code, done.handle.exit_code) == ('out', 0, 0)
    assert (running.handle.attempts, waiting.handle.attempts) == (1, 1)
    assert {(uid, state) for uid, state, _ in site.updates()} == {('task.3', states.DONE), ('task.4', states.FAILED)}


def test_restored_output_is_brought_back(site: Site) -> None:
    pilot = site.pilot()
    task = restored(site, 'task.1', states.TMGR_STAGING_OUTPUT, pilot, {'target_state': states.DONE},
                    output_staging='file > there')
    (site.base / f'resource/session/pilot.0000/{task.uid}').mkdir(parents=True)
    (site.base / f'resource/session/pilot.0000/{task.uid}/file').write_text('data')
    site.flow.resume()
    site.engine.loop.turn()
    site.later.work()
    assert task.state == states.DONE
    assert (site.base / 'client/there').read_text() == 'data'


@pytest.mark.parametrize('target', ['nowhere', states.AGENT_EXECUTING, 5, [], {'a': 1}, None])
def test_task_whose_agent_tells_an_odd_end(site: Site, target: Any) -> None:
    """It fails with the reason, instead of waiting for ever."""
    site.pilot()
    odd, other = site.submit('odd', 'other')
    site.report(odd, states.TMGR_STAGING_OUTPUT_PENDING, target_state=target)
    site.report(other, states.TMGR_STAGING_OUTPUT_PENDING, target_state=states.DONE)
    assert are([odd, other]) == [states.FAILED, states.DONE]
    assert repr(target)[:20] in str(odd.handle.exception)


def test_forgotten_tasks_are_forgotten_by_the_coordinator(site: Site) -> None:
    site.pilot()
    tasks = site.submit_many(BULK + 1)
    for task in tasks:
        site.report(task, states.DONE)
    uids = [task.uid for task in tasks]
    site.flow.forget(uids)
    assert site.forgotten() == uids


def test_forgotten_tasks_that_were_not_sent_never_are(site: Site) -> None:
    """They have ended before there was room for them."""
    site.connection.free = False
    tasks = site.submit('a', 'b')
    site.flow.cancel(tasks)
    assert {task.state for task in tasks} == {states.CANCELED}
    site.flow.forget(['a'])
    site.engine.have_room()
    assert site.connection.kept == ['b']


def store_result(site: Site) -> None:
    """Have the cache know the result of the task of these tests."""
    site.pilot()
    (task,) = site.submit('a', cache=True)
    site.lookups.work()
    site.engine.loop.turn()
    site.report(task, states.DONE, exit_code=0, stdout='text')
    site.lookups.work()


def test_cached_tasks_that_end_before_they_are_sent(site: Site) -> None:
    """Another application gets their results from the coordinator."""
    store_result(site)
    site.connection.free = False
    (task,) = site.submit('b', cache=True)
    site.lookups.work()
    assert task.handle.cached
    site.engine.have_room()
    (update,) = site.updates()
    assert update.info is not None
    assert (update.uid, update.state, update.info['exit_code'], update.info['stdout']) == ('b', states.DONE, 0, 'text')


@pytest.mark.parametrize('hit', [True, False])
def test_chunks_are_opened_while_few_are_looked_up(site: Site, monkeypatch: pytest.MonkeyPatch, hit: bool) -> None:
    monkeypatch.setattr('rp_client.flow.chunk_flow.QUEUE', 2)
    store_result(site)
    opened: list[TaskRecord] = []

    def open_chunk(_: ChunkRecord) -> list[TaskRecord]:
        tasks = site.make(f'b.{len(opened)}', cache=True, arguments=[] if hit else [f'{len(opened)}'])
        opened.extend(tasks)
        return tasks

    site.open_chunk = open_chunk
    site.flow.chunks.add([cast(ChunkRecord, SimpleNamespace(passed_on=True, stored=True)) for _ in range(5)])
    site.engine.loop.turn()
    assert len(opened) == 2
    for _ in range(4):
        site.lookups.work()
        site.engine.loop.turn()
    assert are(opened) == [states.DONE if hit else SENT] * 5


# late binding

RETURN = {'cmd': 'return_unstarted'}


def test_pilots_get_what_they_can_run(late: Site) -> None:
    """Tasks that wait are sent without a pilot, and bound when there is room."""
    late.sized('pilot.1', 2)
    tasks = late.submit_many(4)
    assert late.connection.commands == [('pilot.1', RETURN)]
    assert are(tasks) == [SENT] * 2 + [states.TMGR_SCHEDULING] * 2
    assert late.connection.kept == ['task.000002', 'task.000003']
    late.report(tasks[0], states.AGENT_STAGING_OUTPUT)   # its cores are free already
    assert late.sent() == [('pilot.1', ['task.000000', 'task.000001']), ('pilot.1', ['task.000002'])]
    late.report(tasks[0], states.DONE)
    assert late.waiting == [2, 1]
    late.report(tasks[1], LEFT, target_state=states.FAILED)
    assert late.sent()[2:] == [('pilot.1', ['task.000003'])]


def test_pilot_that_becomes_active_later(late: Site) -> None:
    pilot = late.sized('pilot.1', 2, states.PMGR_ACTIVE_PENDING)
    tasks = late.submit_many(3)
    assert (late.sent(), late.connection.commands) == ([], [])
    pilot.state = states.PMGR_ACTIVE
    late.flow.places_changed(pilot)
    assert late.connection.commands == [('pilot.1', RETURN)]
    assert are(tasks) == [SENT] * 2 + [states.TMGR_SCHEDULING]


@pytest.mark.parametrize('state', states.FINAL)
def test_tasks_that_a_pilot_has_not_started_run_elsewhere(late: Site, state: str) -> None:
    pilot = late.sized('pilot.1', 4)
    tasks = late.submit_many(3)
    (own,) = late.submit('own', pilot='pilot.1')
    other = late.sized('pilot.2', 2)
    pilot.learn({'kept': ['task.000001']})   # it may have started
    late.end(pilot, state)
    late.engine.loop.turn()
    assert are([*tasks, own]) == [SENT, states.FAILED, SENT, states.FAILED]   # no user has ended it
    assert [task.pilot for task in (tasks[0], tasks[2])] == [other, other]
    assert late.sent()[-1] == ('pilot.2', ['task.000000', 'task.000002'])


def test_agent_that_died_may_have_started_all_that_it_got(late: Site) -> None:
    pilot = late.sized('pilot.1', 2)
    sent = late.submit('sent')
    late.connection.free = False
    unsent = late.submit('unsent')
    late.end(pilot)
    late.engine.loop.turn()
    assert are([*sent, *unsent]) == [states.FAILED, SENT]
    assert unsent[0].pilot is None
    late.connection.free = True
    late.sized('pilot.2', 1)
    assert late.sent()[-1] == ('pilot.2', ['unsent'])


def test_cancelled_task_does_not_run_elsewhere(late: Site) -> None:
    """Its agent has ended before the command arrived."""
    pilot = late.sized('pilot.1', 2)
    late.sized('pilot.2', 2)
    tasks = late.submit_many(4)
    mine = [task for task in tasks if task.pilot is pilot]
    late.flow.cancel(mine[:1])
    pilot.learn({'kept': []})
    late.end(pilot, states.DONE)
    assert [mine[0].state, mine[1].state] == [states.CANCELED, SENT]
    late.engine.loop.turn()
    assert mine[1].pilot is None


def test_files_of_a_task_whose_pilot_ends_meanwhile(late: Site) -> None:
    (late.base / 'client/in').touch()
    pilot = late.sized('pilot.1', 1)
    (task,) = late.submit('task.1', input_staging='in')
    late.end(pilot, states.CANCELED)
    late.later.work()
    late.engine.loop.turn()
    assert task.pilot is None
    late.sized('pilot.2', 1)
    late.later.work()
    assert late.sent()[-1] == ('pilot.2', ['task.1'])


def test_cancelled_tasks_make_room(late: Site) -> None:
    late.sized('pilot.1', 1)
    late.connection.free = False
    tasks = late.submit_many(3)
    late.flow.cancel(tasks[:2])
    assert are(tasks) == [states.CANCELED, states.CANCELED, SENT]


def test_a_manager_that_closes_binds_no_more(late: Site) -> None:
    late.sized('pilot.1', 1)
    tasks = late.submit_many(3)
    late.flow.end_all(tasks, 'closed')
    assert set(are(tasks)) == {states.CANCELED}
    assert [uids for _, uids in late.sent()] == [['task.000000']]


def test_restored_tasks_take_their_room(late: Site) -> None:
    pilot = late.sized('pilot.1', 2)
    restored(late, 'task.1', states.AGENT_EXECUTING, pilot)
    waiting = [restored(late, f'task.{number}', states.TMGR_SCHEDULING) for number in (2, 3)]
    late.flow.resume()
    late.engine.loop.turn()
    assert are(waiting) == [SENT, states.TMGR_SCHEDULING]


def test_raptor_follows_its_master(late: Site) -> None:
    """Workers take cores, and calls run in workers."""
    late.sized('pilot.1', 2)
    late.submit('plain')
    late.submit('master', mode=RAPTOR_MASTER, raptor_file='m.py', raptor_class='M')
    calls = late.submit('call.1', 'call.2', mode=TASK_FUNCTION, function='f', raptor_id='master')
    (worker,) = late.submit('worker', mode=RAPTOR_WORKER, raptor_id='master', ranks=1)
    assert are(calls) == [SENT] * 2
    assert worker.state == states.TMGR_SCHEDULING
