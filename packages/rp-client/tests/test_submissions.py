"""Callbacks for new entities wait until the call that submits them has returned."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from client_support import Calls, Connection, a_task

from rp_api import states
from rp_api.coordination.contract import Mark
from rp_api.loop.event_loop import Loop
from rp_client.core.task import TaskRecord
from rp_client.engine.callbacks import Dispatcher, Registry, told
from rp_client.engine.tracker import Submission, Submissions, Tracker

LONG_AGO = 0.0


class Timers:
    """Takes the place of the event loop: `pass_by` runs the timers of that moment."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []

    def call_later(self, _delay: float, callback: Callable[[], object]) -> object:
        self.waiting.append(callback)
        return callback

    def pass_by(self) -> None:
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()


class Site:
    """A tracker whose callbacks are written down: task and state, or tasks for a callback for bulks."""

    def __init__(self) -> None:
        self.timers, self.connection, self.calls = Timers(), Connection(), Calls()
        self.announced: list[Any] = []
        self.submissions = Submissions(cast(Loop, self.timers), self.connection,
                                       lambda: self.announced.append(self.submissions.mark))
        self.registry = Registry({'TASK_STATE': told('task')})
        self.registry.add(lambda *args: None, 'TASK_STATE')
        self.tracker = Tracker(states.TASK, 'TASK_STATE', self.registry, cast(Dispatcher, self.calls))

    def submit(self, *tasks: TaskRecord) -> Submission:
        submission = Submission(self.tracker, tasks)
        self.submissions.hold(submission)
        self.tracker.advance(tasks, states.TMGR_SCHEDULING_PENDING)
        self.tracker.advance(tasks, states.TMGR_SCHEDULING)
        self.submissions.returns(submission)
        return submission

    @property
    def seen(self) -> list[list[Any]]:
        return [args for _, *args in self.calls.made]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.delenv('RADICAL_PILOT_BULK_CB', raising=False)
    return Site()


FIRST = [states.TMGR_SCHEDULING_PENDING, states.TMGR_SCHEDULING]


def test_states_are_told_after_the_return_and_not_at_once(site: Site) -> None:
    """The application gets a moment in which it may store the result."""
    task = a_task('a')
    submission = site.submit(task)
    for _ in range(3):
        site.timers.pass_by()
    assert site.seen == []
    assert task.state == states.TMGR_SCHEDULING
    submission.returned = time.monotonic() + 1000
    site.timers.pass_by()
    site.tracker.advance([task], states.TMGR_STAGING_INPUT_PENDING)
    assert site.seen == []
    submission.returned = LONG_AGO
    site.timers.pass_by()
    assert site.seen == [[task.handle, state] for state in [*FIRST, states.TMGR_STAGING_INPUT_PENDING]]
    site.tracker.advance([task], states.TMGR_STAGING_INPUT)
    assert site.seen[-1] == [task.handle, states.TMGR_STAGING_INPUT]
    assert site.timers.waiting == []


def test_other_tasks_do_not_wait(site: Site) -> None:
    """Each submission waits for its own call, also where one bulk has tasks of several."""
    old, one, two = a_task('old'), a_task('one'), a_task('two')
    first, second = site.submit(one), site.submit(two)
    site.tracker.advance([old, one, two], states.TMGR_STAGING_INPUT_PENDING)
    assert {task for task, _ in site.seen} == {old.handle}
    for submission, task in ((second, two), (first, one)):
        submission.returned = LONG_AGO
        del site.calls.made[:]
        site.timers.pass_by()
        assert site.seen == [[task.handle, state] for state in [*FIRST, states.TMGR_STAGING_INPUT_PENDING]]


def test_submissions_after_the_first_news_wait_as_well(site: Site) -> None:
    first = site.submit(a_task('one'))
    task = a_task('two')
    second = site.submit(task)
    first.returned = LONG_AGO
    site.timers.pass_by()
    site.tracker.advance([task], states.TMGR_STAGING_INPUT_PENDING)
    assert {handle.uid for handle, _ in site.seen} == {'one'}
    second.returned = LONG_AGO
    del site.calls.made[:]
    site.timers.pass_by()
    assert site.seen == [[task.handle, state] for state in [*FIRST, states.TMGR_STAGING_INPUT_PENDING]]


def test_a_callback_of_a_later_moment_waits_for_the_return(site: Site) -> None:
    """No states were announced when the submission began."""
    site.registry.remove(None, ['TASK_STATE'])
    task = a_task('one')
    submission = site.submit(task)
    site.registry.add(lambda *args: None, 'TASK_STATE')
    site.tracker.advance([task], states.TMGR_STAGING_INPUT_PENDING)
    assert site.seen == []
    submission.returned = LONG_AGO
    site.timers.pass_by()
    assert site.seen == [[task.handle, states.TMGR_STAGING_INPUT_PENDING]]


def test_bulks_stay_bulks(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_BULK_CB', 'TRUE')
    site = Site()
    tasks = [a_task(uid) for uid in 'abc']
    site.submit(*tasks).returned = LONG_AGO
    site.timers.pass_by()
    handles = [task.handle for task in tasks]
    assert site.seen == [[handles], [handles]]


def test_states_that_wait_are_not_acknowledged(site: Site) -> None:
    submissions = []
    for number in range(1, 4):
        site.connection.reached = Mark(number, number)
        submissions.append(site.submit(a_task(str(number))))
    site.connection.reached = Mark(4, 4)
    assert site.submissions.mark == Mark(1, 1)
    for returned in (1, 0, 2):
        submissions[returned].returned = LONG_AGO
        site.timers.pass_by()
    assert site.announced == [Mark(1, 1), Mark(3, 3), Mark(4, 4)]


def test_a_session_that_ends_tells_what_waits(site: Site) -> None:
    """Also of calls that have not returned, which may still say so later."""
    task = a_task('a')
    submission = site.submit(task)
    site.submissions.announce_all()
    assert site.seen == [[task.handle, state] for state in FIRST]
    site.timers.pass_by()
    site.submissions.returns(submission)
    assert (len(site.seen), site.timers.waiting) == (2, [])


def test_nothing_is_looked_for_before_the_coordinator_has_accepted(site: Site) -> None:
    """Which may take seconds."""
    submission = Submission(site.tracker, [a_task('a')])
    site.submissions.hold(submission)
    assert site.timers.waiting == []
    for _ in range(2):   # the call has ended with an error, and was accepted later
        site.submissions.returns(submission)
    assert len(site.timers.waiting) == 1


def test_what_else_happens_makes_the_loop_look(site: Site) -> None:
    """The next submission does, and updates of agents do."""
    one, two = a_task('one'), a_task('two')
    first = site.submit(one)
    site.submissions.look()
    assert site.seen == []
    first.returned = LONG_AGO
    second = site.submit(two)
    assert site.seen == [[one.handle, state] for state in FIRST]
    second.returned = LONG_AGO
    site.submissions.look()
    assert [task for task, _ in site.seen[2:]] == [two.handle] * 2
    assert len(site.timers.waiting) == 1
