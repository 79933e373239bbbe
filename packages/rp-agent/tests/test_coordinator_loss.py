"""The rules by which an agent goes on without its coordinator, and says its last word."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from rp_agent.reporting import coordinator_link
from rp_agent.reporting.coordinator_link import RETURN_TIMEOUT, SETTLE_TIMEOUT, CoordinatorLoss, FinalReport
from rp_api import states
from rp_api.coordination.contract import Update
from rp_api.loop.event_loop import Timer


class Clock:
    """A loop of which only the timers are needed; time passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._timers: list[Timer] = []

    def monotonic(self) -> float:
        return self.now

    def call_at(self, deadline: float, callback: Callable[..., object], *args: Any) -> Timer:
        self._timers.append(Timer(deadline, len(self._timers), callback, args))
        return self._timers[-1]

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        return self.call_at(self.now + delay, callback, *args)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with each timer called when it is due."""
        end = self.now + seconds
        while due := [timer for timer in self._timers if timer.deadline <= end]:
            first = min(due)
            self._timers.remove(first)
            self.now = max(self.now, first.deadline)
            if first.callback is not None:
                first.callback(*first.args)
        self.now = end

    def stand_still(self, seconds: float) -> None:
        """Let time pass without anything being called: the process is stopped."""
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, 'monotonic', clock.monotonic)
    return clock


class Agent:
    """Somebody who has tasks and may be left alone."""

    def __init__(self, clock: Clock, timeout: float = 60.0) -> None:
        loop: Any = clock
        self.tasks = 3
        self.given_up = 0
        self.loss = CoordinatorLoss(loop, timeout, lambda: self.tasks > 0, self._give_up)

    def _give_up(self) -> None:
        self.given_up += 1

    def end_tasks(self) -> None:
        self.tasks = 0
        self.loss.left()


def test_an_agent_with_tasks_never_gives_up(clock: Clock) -> None:
    agent = Agent(clock)
    before = agent.loss.lost
    agent.loss.coordinator_lost('it died')
    assert (before, agent.loss.lost) == (False, True)
    clock.pass_time(1e6)
    assert agent.given_up == 0
    agent.end_tasks()
    clock.pass_time(59)
    assert agent.given_up == 0
    clock.pass_time(1)
    assert agent.given_up == 1


def test_an_agent_without_tasks_waits_for_somebody(clock: Clock) -> None:
    agent = Agent(clock)
    agent.end_tasks()
    clock.pass_time(1000)
    agent.loss.coordinator_lost('it died')
    clock.pass_time(RETURN_TIMEOUT + 59)
    assert agent.given_up == 0
    clock.pass_time(1)
    assert agent.given_up == 1


def test_a_coordinator_that_comes_back_ends_the_waiting(clock: Clock) -> None:
    agent = Agent(clock)
    agent.tasks = 0
    for patience in (1, RETURN_TIMEOUT + 59):
        agent.loss.coordinator_lost('it died')
        clock.pass_time(patience)
        agent.loss.coordinator_found()
        assert not agent.loss.lost
        clock.pass_time(1000)
        agent.end_tasks()
    assert agent.given_up == 0


def test_an_agent_that_is_not_to_wait(clock: Clock) -> None:
    """With a timeout of 0 only the time counts that a living client takes to start a hub again."""
    agent = Agent(clock, 0)
    agent.loss.coordinator_lost('it died')
    clock.pass_time(RETURN_TIMEOUT - 0.1)
    assert agent.given_up == 0
    clock.pass_time(0.1)
    assert agent.given_up == 1


@pytest.mark.parametrize('timeout', [0, 60])
def test_an_agent_that_was_stopped_looks_around_first(clock: Clock, timeout: float) -> None:
    """The coordinator may have come back meanwhile, and be heard now."""
    agent = Agent(clock, timeout)
    agent.tasks = 0
    for before in (1, RETURN_TIMEOUT + 30):
        agent.loss.coordinator_lost('it died')
        clock.pass_time(before if timeout else 1)
        clock.stand_still(300)
        clock.pass_time(0.1)
        assert agent.given_up == 0
        agent.loss.coordinator_found()
        clock.pass_time(1000)
    assert agent.given_up == 0
    agent.loss.coordinator_lost('it died')
    clock.stand_still(300)
    clock.pass_time(RETURN_TIMEOUT + timeout)
    assert agent.given_up == 1


class Ears:
    """A reporter and a connection, and what they were told."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.arrived: list[Callable[[], object]] = []

    def flush(self) -> None:
        self.done.append('flush')

    def keep(self, pilot: Update | None) -> None:
        self.done.append(('keep', pilot))

    def forget(self) -> None:
        self.done.append('forget')

    def update_pilots(self, updates: list[Update]) -> None:
        self.done += updates

    def when_settled(self, callback: Callable[[], object]) -> None:
        self.arrived.append(callback)

    def over(self) -> None:
        self.done.append('over')


LAST = Update('pilot.0000', states.DONE, {'reason': 'over'})


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
def goodbye(clock: Clock, ears: Ears) -> FinalReport:
    everything: Any = ears
    loop: Any = clock
    return FinalReport(loop, everything, everything, LAST, ears.over)


def test_the_last_word_comes_after_all_else(goodbye: FinalReport, ears: Ears) -> None:
    goodbye.found()
    assert ears.done == ['flush', LAST]
    ears.arrived[0]()
    assert ears.done == ['flush', LAST, 'forget', 'over']


def test_without_a_coordinator_everything_is_kept(goodbye: FinalReport, ears: Ears, clock: Clock) -> None:
    clock.pass_time(coordinator_link.DELIVERY_TIMEOUT)
    assert ears.done == [('keep', LAST), 'over']


def test_a_coordinator_that_comes_back_is_told_once(goodbye: FinalReport, ears: Ears) -> None:
    for _ in range(3):
        goodbye.found()
        goodbye.lost()
    assert ears.done == ['flush', LAST]


def test_a_slow_coordinator_gets_more_time(goodbye: FinalReport, ears: Ears, clock: Clock) -> None:
    """But everything is on disk by then: whoever wants this process to end may kill it soon."""
    goodbye.found()
    clock.pass_time(coordinator_link.DELIVERY_TIMEOUT)
    assert ears.done == ['flush', LAST, ('keep', LAST)]
    clock.pass_time(SETTLE_TIMEOUT)
    assert ears.done[3:] == ['over']


def test_what_arrives_late_is_not_kept(goodbye: FinalReport, ears: Ears, clock: Clock) -> None:
    goodbye.found()
    clock.pass_time(coordinator_link.DELIVERY_TIMEOUT)
    ears.arrived[0]()
    assert ears.done[2:] == [('keep', LAST), 'forget', 'over']


def test_a_coordinator_that_is_lost_while_it_should_listen(goodbye: FinalReport, ears: Ears, clock: Clock) -> None:
    goodbye.found()
    goodbye.lost()
    clock.pass_time(coordinator_link.DELIVERY_TIMEOUT)
    assert ears.done[2:] == [('keep', LAST), 'over']
