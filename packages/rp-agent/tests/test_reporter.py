"""Reports wait for others, but not long; of several states of a task the last one is sent, when there is room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rp_agent.reporter import DELAY_PER_TASK, MAX_DELAY, Reporter
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.coordination.contract import AgentConnection, Update


class Clock:
    """A loop of which only the timers are needed; time passes when the test says so."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, delay: float, callback: Callable[[], object]) -> None:
        self.timers.append((delay, callback))

    def pass_time(self) -> None:
        timers, self.timers = self.timers, []
        for _, callback in timers:
            callback()


class Wire(AgentConnection):
    """A connection that keeps what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[list[Update]] = []
        self.has_room = True

    @property
    def room(self) -> bool:
        return self.has_room

    @property
    def settled(self) -> bool:
        return True

    def update_pilots(self, updates: Sequence[Update]) -> None:
        raise AssertionError('a reporter knows nothing of pilots')

    def update_tasks(self, updates: Sequence[Update]) -> None:
        assert updates, 'an empty message'
        self.sent.append(list(updates))

    def close(self) -> None:
        pass


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def reporter(clock: Clock, wire: Wire) -> Reporter:
    loop: Any = clock
    return Reporter(loop, wire)


def tasks(*uids: str) -> list[AgentTask]:
    return [AgentTask(uid, {}, 'pilot.0000', '/') for uid in uids]


def test_states_are_sent_together_a_little_later(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    reporter.changed(tasks('a', 'b'), states.AGENT_SCHEDULING)
    reporter.changed(tasks('c'), states.AGENT_EXECUTING)
    assert wire.sent == []
    assert len(clock.timers) == 1
    clock.pass_time()
    assert wire.sent == [[Update('a', states.AGENT_SCHEDULING), Update('b', states.AGENT_SCHEDULING),
                          Update('c', states.AGENT_EXECUTING)]]
    clock.pass_time()
    assert len(wire.sent) == 1


def test_only_the_last_state_of_a_task_is_sent(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    for state in (states.AGENT_STAGING_INPUT, states.AGENT_SCHEDULING, states.AGENT_EXECUTING):
        reporter.changed(tasks('a'), state)
    clock.pass_time()
    assert wire.sent == [[Update('a', states.AGENT_EXECUTING)]]


@pytest.mark.parametrize(('number', 'delay'), [(0, 0), (1, 0), (100, 100 * DELAY_PER_TASK),
                                               (100_000, MAX_DELAY)])
def test_reports_wait_longer_when_there_are_many_tasks(
        reporter: Reporter, clock: Clock, number: int, delay: float) -> None:
    reporter.tasks = number
    reporter.changed(tasks('a'), states.AGENT_EXECUTING)
    assert clock.timers[0][0] == pytest.approx(delay)


def test_a_task_for_the_client_takes_its_result_along(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    task, = tasks('a')
    task.exit_code = 0
    task.stdout = 'hello'
    task.target_state = states.DONE
    task.state = states.TMGR_STAGING_OUTPUT_PENDING
    reporter.changed([task], states.TMGR_STAGING_OUTPUT_PENDING)
    reporter.finished([task])
    clock.pass_time()
    assert wire.sent == [[Update('a', states.TMGR_STAGING_OUTPUT_PENDING,
                                 {'exit_code': 0, 'stdout': 'hello', 'target_state': states.DONE})]]


def test_a_task_that_ended_early_says_how_far_it_got(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    task, = tasks('a')
    task.state = states.AGENT_SCHEDULING
    task.fail('it can never run', 'too large')
    reporter.changed([task], states.AGENT_SCHEDULING)
    reporter.finished([task])
    clock.pass_time()
    assert wire.sent == [[Update('a', states.FAILED, {
        'exception': 'it can never run', 'exception_detail': 'too large', 'reached': states.AGENT_SCHEDULING})]]


def test_without_room_nothing_is_sent_until_there_is(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    wire.has_room = False
    reporter.changed(tasks('a'), states.AGENT_SCHEDULING)
    clock.pass_time()
    assert wire.sent == []
    reporter.changed(tasks('a', 'b'), states.AGENT_EXECUTING)
    clock.pass_time()
    wire.has_room = True
    wire.on_room()
    assert wire.sent == [[Update('a', states.AGENT_EXECUTING), Update('b', states.AGENT_EXECUTING)]]


def test_room_does_not_send_before_the_time(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    reporter.changed(tasks('a'), states.AGENT_SCHEDULING)
    wire.on_room()
    assert wire.sent == []
    clock.pass_time()
    assert len(wire.sent) == 1


def test_room_without_news_sends_nothing(reporter: Reporter, wire: Wire) -> None:
    wire.on_room()
    reporter.flush()
    assert wire.sent == []


def test_flush_sends_at_once_whether_there_is_room_or_not(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    wire.has_room = False
    reporter.changed(tasks('a'), states.AGENT_SCHEDULING)
    reporter.flush()
    assert wire.sent == [[Update('a', states.AGENT_SCHEDULING)]]
    wire.has_room = True
    clock.pass_time()
    assert len(wire.sent) == 1
