"""What callbacks have been told is acknowledged, and nothing else; however much there is, once in a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from client_support import Connection, a_task

from rp_api import states
from rp_api.coordination.contract import Mark
from rp_api.loop.event_loop import Loop
from rp_client.engine import engine
from rp_client.engine.callbacks import Dispatcher, Registry, told
from rp_client.engine.engine import Acknowledger
from rp_client.engine.tracker import Submission, Submissions, Tracker

TIMEOUT = 30.0


class Site:
    """An acknowledger with a loop that runs when the test says so, and trackers of two managers."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.connection = Connection()
        self.dispatcher = Dispatcher('callbacks')
        self.submissions = Submissions(self.loop, self.connection, lambda: self.acknowledger.soon())
        self.acknowledger = Acknowledger(self.loop, self.connection, self.dispatcher, self.submissions)
        self.registries = {owner: Registry({'TASK_STATE': told('task')}) for owner in ('one', 'two')}
        self.trackers = {owner: Tracker(states.TASK, 'TASK_STATE', registry, self.dispatcher, owner=owner)
                         for owner, registry in self.registries.items()}
        for tracker in self.trackers.values():
            self.acknowledger.follow(tracker)
        self._marks = 0

    def register(self, owner: str, callback: Any) -> None:
        self.trackers[owner].release(self.registries[owner].add(callback, 'TASK_STATE'))
        self.acknowledger.soon()

    def happens(self, owner: str = 'one') -> Mark:
        """A task of an owner gets to a state; the mark is what is to be acknowledged then."""
        self.trackers[owner].advance([a_task()], states.TMGR_SCHEDULING)
        self._marks += 1
        self.connection.reached = Mark(self._marks, 10 * self._marks)
        self.acknowledger.soon()
        return self.connection.reached

    def run(self) -> None:
        """Run until callbacks have nothing to do, and nothing is left to be acknowledged."""
        for _ in range(3):
            self.loop.call_later(3 * engine.ACKNOWLEDGE_PERIOD, self.stop_when_idle)
            self.loop.run()

    def stop_when_idle(self) -> None:
        self.dispatcher.call(self.loop.stop)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(engine, 'ACKNOWLEDGE_PERIOD', 0.01)
    site = Site()
    yield site
    site.dispatcher.close(TIMEOUT)
    site.loop.close()


def nothing(*_: Any) -> None:
    """A callback."""


def test_a_manager_without_callbacks_has_told_nothing(site: Site) -> None:
    site.happens()
    site.run()
    assert site.connection.acknowledged == []
    site.register('two', nothing)
    mark = site.happens()
    site.run()
    assert site.connection.acknowledged == [(['two'], mark)]


def test_what_callbacks_have_returned_from_is_acknowledged_for_all_managers_at_once(site: Site) -> None:
    for owner in ('one', 'two'):
        site.register(owner, nothing)
    for _ in range(100):
        site.happens('one')
        mark = site.happens('two')
    site.run()
    assert site.connection.acknowledged == [(['one', 'two'], mark)]
    site.run()   # nothing new
    assert len(site.connection.acknowledged) == 1


def test_nothing_is_acknowledged_before_its_callback_has_returned(site: Site) -> None:
    """And then only what was there when the mark was taken."""
    go, begun, acknowledged = threading.Event(), threading.Event(), site.connection.acknowledged

    def slow(*_: Any) -> None:
        begun.set()
        assert go.wait(TIMEOUT)

    site.register('one', slow)
    first = site.happens()
    assert begun.wait(TIMEOUT)
    site.loop.call_later(5 * engine.ACKNOWLEDGE_PERIOD, site.loop.stop)
    site.loop.run()
    assert acknowledged == []
    last = site.happens()
    go.set()
    site.run()
    assert acknowledged == [(['one'], first), (['one'], last)]


def test_states_that_wait_for_the_return_of_a_submission_are_not_acknowledged(site: Site) -> None:
    """They are as soon as it has returned, although nothing else happens."""
    site.register('one', nothing)
    before = site.happens()
    site.run()
    task = a_task()
    submission = Submission(site.trackers['one'], [task])
    site.submissions.hold(submission)
    site.trackers['one'].advance([task], states.TMGR_SCHEDULING)
    last = site.happens()
    site.run()
    assert site.connection.acknowledged == [(['one'], before)]
    submission.returned = 0.0
    site.submissions.returns(submission)
    site.run()
    assert site.connection.acknowledged == [(['one'], before), (['one'], last)]


def test_a_callback_that_fails_was_told(site: Site) -> None:
    site.register('one', lambda task, state: 1 / 0)
    mark = site.happens()
    site.run()
    assert site.connection.acknowledged == [(['one'], mark)]


def test_nothing_is_acknowledged_while_states_of_a_former_application_wait_for_a_callback(site: Site) -> None:
    a, b = a_task('a'), a_task('b')
    for task in (a, b):
        task.state = states.DONE
        site.trackers['one'].restored(task, states.NEW)
    registry = site.registries['one']
    site.trackers['one'].release(registry.add(nothing, 'TASK_STATE', uid='a'), a)
    site.happens()
    site.run()
    assert site.connection.acknowledged == []
    site.register('one', nothing)
    site.run()
    assert site.connection.acknowledged == [(['one'], Mark(1, 10))]


def test_at_the_end_all_that_is_in_the_queue_is_told_and_acknowledged_and_no_more(site: Site) -> None:
    seen: list[str] = []
    site.register('one', lambda task, state: seen.append(state))
    mark = site.happens()
    site.acknowledger.finish()
    site.happens()
    site.dispatcher.close(TIMEOUT)
    site.loop.call_later(5 * engine.ACKNOWLEDGE_PERIOD, site.loop.stop)
    site.loop.run()
    assert site.connection.acknowledged == [(['one'], mark)]
    assert seen == [states.TMGR_SCHEDULING_PENDING, states.TMGR_SCHEDULING]
