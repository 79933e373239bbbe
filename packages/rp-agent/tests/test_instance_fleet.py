"""Instances of a launcher: which one runs a task, and what follows when instances and launches fail."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rp_agent.executor.backends import fleet
from rp_agent.executor.backends.fleet import (
    FAULTS,
    RESTARTS,
    RETRIES,
    Abandon,
    Demand,
    Fleet,
    Kill,
    LaunchTask,
    Lost,
    PlaceAgain,
    Refuse,
    Start,
    State,
    Stop,
)


def a_fleet(*sizes: int, ready: bool = True) -> Fleet:
    found = Fleet(sizes or (1,))
    assert found.start() == [Start(index) for index in range(len(sizes or (1,)))]
    for index in range(len(found.instances)):
        assert not ready or found.ready(index) == []
    return found


def lose(found: Fleet, index: int, reason: str = 'it died') -> list[fleet.Command]:
    """Let an instance end until it is lost; gives what follows from the last time."""
    for _ in range(1 + RESTARTS):
        commands = found.ended(index, reason)
    assert found.instances[index].state is State.LOST
    return commands


def test_a_task_waits_until_an_instance_is_ready() -> None:
    found = a_fleet(1, ready=False)
    assert found.admit(Demand('t', 1)) == []
    assert found.ready(0) == [LaunchTask('t', 0)]
    assert found.ready(0) == [], 'said twice'
    assert found.done('t') == []
    assert 't' not in found


def test_tasks_go_where_there_is_least_to_do_for_the_size() -> None:
    found = a_fleet(1, 3)
    launched = [found.admit(Demand(f't{number}', 1)) for number in range(8)]
    on = [command.instance for commands in launched for command in commands if isinstance(command, LaunchTask)]
    assert (on.count(0), on.count(1)) == (2, 6)


def test_a_task_that_has_to_be_on_an_instance_waits_for_that_one() -> None:
    found = a_fleet(1, 1, ready=False)
    found.ready(0)
    assert found.admit(Demand('t', 1, instance=1)) == []
    assert found.ready(1) == [LaunchTask('t', 1)]


def test_an_instance_that_dies_is_started_again_and_its_tasks_run_on_the_others() -> None:
    found = a_fleet(1, 1)
    found.admit(Demand('a', 1))
    found.admit(Demand('b', 1))
    assert found.ended(0, 'it died') == [Abandon('a', 'it died'), Start(0)]
    assert 'a' in found, 'what is left of its launch has to end first'
    assert found.failed('a', 'it died') == [LaunchTask('a', 1)]


def test_launches_of_tasks_that_have_not_started_do_not_count() -> None:
    found = a_fleet()
    found.admit(Demand('waits', 1))
    found.admit(Demand('runs', 1))
    for attempt in range(RETRIES + 1):
        found.ended(0, 'it died')
        found.failed('waits', 'it died', started=False)
        last = found.failed('runs', 'it died')
        assert last == ([] if attempt < RETRIES else [Refuse('runs', '3 launches have failed, the last one: it died')])
        assert found.instances[0].state is State.STARTING
        ready = found.ready(0)
    assert ready == [LaunchTask('waits', 0)]


def test_an_instance_that_cannot_be_reached_is_started_again() -> None:
    found = a_fleet()
    found.admit(Demand('t', 1))
    assert found.unreachable(0, 'connection refused') == [Kill(0)]
    assert found.admit(Demand('u', 1)) == [], 'nothing goes there any more'
    assert found.ended(0, 'was killed') == [Abandon('t', 'connection refused'), Start(0)]
    assert found.unreachable(0, 'again') == [], 'it is starting'


def test_a_task_whose_launch_was_abandoned_may_have_ended_all_the_same() -> None:
    found = a_fleet()
    found.admit(Demand('t', 1))
    found.ended(0, 'it died')
    assert found.done('t') == []
    assert 't' not in found


def test_a_placed_task_waits_for_its_instance_to_come_back() -> None:
    found = a_fleet(1, 1)
    found.admit(Demand('t', 1, 0, placed=True))
    found.ended(0, 'it died')
    assert found.failed('t', 'it died') == []
    assert found.ready(0) == [LaunchTask('t', 0)]


def test_tasks_of_a_lost_instance_are_placed_again() -> None:
    found = a_fleet(1, 1)
    lose(found, 0, 'no route to host')
    assert found.admit(Demand('t', 1, 0, placed=True)) == [PlaceAgain('t', 'instance 0 is lost: no route to host')]
    assert found.admit(Demand('asked', 1, 0)) == [Refuse('asked', 'instance 0 is lost: no route to host')]
    assert found.admit(Demand('any', 1)) == [LaunchTask('any', 1)]


def test_tasks_that_wait_hear_of_the_loss_after_the_nodes_are_known_to_be_lost() -> None:
    found = a_fleet(1, 1, ready=False)
    found.admit(Demand('t', 1, 0, placed=True))
    assert lose(found, 0) == [Lost(0, 'it died'), PlaceAgain('t', 'instance 0 is lost: it died')]


def test_without_any_instance_left_tasks_fail() -> None:
    found = a_fleet(1, 1)
    lose(found, 0)
    lose(found, 1, 'so did this one')
    assert found.admit(Demand('t', 1)) == [Refuse('t', 'no instance is left, the last one is lost: so did this one')]


def test_an_instance_that_is_not_ready_in_time_is_killed_and_started_again() -> None:
    found = a_fleet(1, ready=False)
    assert found.overdue(0, 'too slow') == [Kill(0)]
    assert found.ended(0, 'killed') == [Start(0)]
    found.ready(0)
    assert found.overdue(0, 'too slow') == [], 'just in time'


def test_the_reason_of_an_instance_that_never_came_up_is_the_deadline() -> None:
    found = a_fleet(1, ready=False)
    for _ in range(1 + RESTARTS):
        found.overdue(0, 'was not ready within 1 s')
        commands = found.ended(0, 'was killed')
    assert commands == [Lost(0, 'was not ready within 1 s')]


def test_a_task_that_was_done_gives_the_instance_new_credit() -> None:
    found = a_fleet()
    for number in range(3 * RESTARTS):
        found.ended(0, 'it died')
        found.ready(0)
        found.admit(Demand(f't{number}', 1))
        found.done(f't{number}')
    assert found.instances[0].state is State.READY


def test_an_instance_is_drained_after_failed_launches_in_a_row() -> None:
    found = a_fleet(1, 1)
    found.admit(Demand('long', 1, 0))
    for number in range(FAULTS):
        found.admit(Demand(f't{number}', 1, 0))
        found.failed(f't{number}', 'hangs')
        found.forget(f't{number}')
    assert found.instances[0].state is State.DRAINING
    assert found.admit(Demand('more', 1, 0)) == []
    assert found.admit(Demand('any', 9)) == [LaunchTask('any', 1)]
    assert found.done('long') == [Kill(0)]
    assert found.ended(0, 'killed') == [Start(0)]
    assert found.ready(0) == [LaunchTask('more', 0)]


def test_why_a_drained_instance_was_lost_is_told() -> None:
    found = a_fleet()
    for _ in range(1 + RESTARTS):
        found.ready(0)
        for number in range(FAULTS):
            found.admit(Demand(f't{number}', 1, 0))
            drained = found.failed(f't{number}', 'hangs')
            found.forget(f't{number}')
        assert drained == [Kill(0)]
        commands = found.ended(0, 'was killed')
    assert commands == [Lost(0, f'{FAULTS} launches in a row have failed, the last one: hangs')]


def test_one_failed_launch_is_tried_again_at_once() -> None:
    found = a_fleet()
    found.admit(Demand('t', 1))
    assert found.failed('t', 'hangs') == [LaunchTask('t', 0)]
    assert found.done('t') == []
    assert found.instances[0].faults == 0


def test_a_task_that_breaks_its_instance_is_refused_before_it_has_cost_one() -> None:
    found = a_fleet(1)
    found.admit(Demand('t', 1))
    for number in range(RETRIES + 1):
        found.ended(0, 'it died')
        commands = found.failed('t', 'it died')
        if number < RETRIES:
            assert found.ready(0) == [LaunchTask('t', 0)]
    assert commands == [Refuse('t', f'{RETRIES + 1} launches have failed, the last one: it died')]
    assert found.instances[0].state is State.STARTING


def test_a_cancelled_task_counts_for_nothing() -> None:
    found = a_fleet(1, ready=False)
    found.admit(Demand('waits', 1))
    found.forget('waits')
    assert found.ready(0) == []
    found.admit(Demand('runs', 1))
    found.forget('runs')
    assert found.failed('runs', 'late') == []
    assert found.instances[0].load == 0


def test_the_end_of_all() -> None:
    found = a_fleet(1, 1, 1, ready=False)
    found.ready(0)
    lose(found, 2)
    assert found.stop() == [Stop(0), Stop(1)]
    assert not found.stopped
    assert found.ready(1) == [], 'too late'
    assert found.ended(0, '') == found.ended(1, '') == []
    assert found.stopped


def test_instances_that_were_never_needed() -> None:
    found = Fleet((1,))
    assert found.stop() == []
    assert found.stopped
    assert found.start() == []
    assert found.admit(Demand('t', 1)) == [Refuse('t', 'no instance is left, the last one was stopped')]


class Life(RuleBasedStateMachine):
    """Anything may happen in any order; a supervisor that does what it is told keeps no task waiting for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet((1, 2, 1))
        self.processes: set[int] = set()
        self.dying: set[int] = set()
        self.launched: set[str] = set()
        self.abandoned: set[str] = set()
        self.tasks = 0
        self.do(self.fleet.start())

    def do(self, commands: list[Any]) -> None:
        for command in commands:
            if isinstance(command, Start):
                assert command.instance not in self.processes
                self.processes.add(command.instance)
            elif isinstance(command, Stop | Kill):
                assert command.instance in self.processes
                self.dying.add(command.instance)
            elif isinstance(command, LaunchTask):
                assert command.uid not in self.launched | self.abandoned
                self.launched.add(command.uid)
            elif isinstance(command, Abandon):
                self.launched.remove(command.uid)
                self.abandoned.add(command.uid)
            elif isinstance(command, PlaceAgain | Refuse):
                assert command.uid not in self.launched | self.abandoned
                assert command.uid not in self.fleet

    @rule(instance=st.sampled_from([None, 0, 1, 2]), placed=st.booleans(), cores=st.integers(1, 4))
    def come(self, instance: int | None, placed: bool, cores: int) -> None:
        self.tasks += 1
        self.do(self.fleet.admit(Demand(f't{self.tasks}', cores, instance, placed and instance is not None)))

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def ready(self, data: st.DataObject) -> None:
        self.do(self.fleet.ready(data.draw(st.sampled_from(sorted(self.processes)))))

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def ended(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.processes)))
        self.processes.remove(index)
        self.dying.discard(index)
        self.do(self.fleet.ended(index, 'it died'))

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def overdue(self, data: st.DataObject) -> None:
        self.do(self.fleet.overdue(data.draw(st.sampled_from(sorted(self.processes))), 'too slow'))

    @precondition(lambda self: self.launched or self.abandoned)
    @rule(data=st.data(), how=st.sampled_from(['done', 'failed', 'forget']))
    def launch_ends(self, data: st.DataObject, how: str) -> None:
        uid = data.draw(st.sampled_from(sorted(self.launched | self.abandoned)))
        self.launched.discard(uid)
        self.abandoned.discard(uid)
        if how == 'done':
            self.do(self.fleet.done(uid))
        elif how == 'failed':
            self.do(self.fleet.failed(uid, 'hangs'))
        else:
            self.do(self.fleet.forget(uid))

    @precondition(lambda self: self.fleet.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.do(self.fleet.forget(data.draw(st.sampled_from(sorted(self.fleet.waiting)))))

    @invariant()
    def holds(self) -> None:
        self.fleet.check()
        assert self.processes == {index for index, instance in enumerate(self.fleet.instances)
                                  if instance.state not in (State.NEW, State.LOST, State.STOPPED)}
        for index, instance in enumerate(self.fleet.instances):
            if instance.state is State.DRAINING and not instance.running:
                assert index in self.dying, f'nobody ends instance {index}'


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
