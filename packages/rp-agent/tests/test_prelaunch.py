"""Tasks that are prepared while they wait: they start as others do, and leave nothing when they do not start."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from children import nothing_stays
from pipeline_support import ALL, SLEEP, Agent, nothing_left
from plain_support import Site

from rp_agent.executor.popen.plain import PREPARED_MAX, Prelaunch
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.loop.event_loop import Loop
from rp_profiling.read.profile import read_profile


class Turns:
    """What is asked of a loop."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.callbacks.append(callback)

    def run(self) -> int:
        """Call all that is due, until nothing is; gives the number of turns."""
        turns = 0
        while self.callbacks:
            turns += 1
            callbacks, self.callbacks = self.callbacks, []
            for callback in callbacks:
                callback()
        return turns


class Preparing(Site):
    """What prepares tasks of a list."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.turns = Turns()
        self.ahead = Prelaunch(cast('Loop', self.turns), self.plain)
        self.waiting: list[AgentTask] = []
        self.ahead.expected = lambda count: self.waiting[:count]

    def add(self, count: int, **description: Any) -> list[AgentTask]:
        tasks = [self.task(f'task.{len(self.waiting) + number:06}', **description) for number in range(count)]
        for task in tasks:
            task.state = states.AGENT_SCHEDULING
        self.waiting += tasks
        return tasks

    def refill(self) -> list[str]:
        """The uids of the tasks that are prepared then, for each of which there is a sandbox and a process."""
        self.ahead.refill()
        self.turns.run()
        held = sorted(self.ahead.held)
        assert len(self.launched) == len(held)
        assert sorted(os.listdir(self.path)) == held
        return held

    def close(self) -> None:
        self.ahead.close()
        super().close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Preparing]:
    with nothing_stays():
        made = Preparing(tmp_path)
        yield made
        made.close()


def uids(tasks: list[AgentTask]) -> list[str]:
    return [task.uid for task in tasks]


def test_the_first_ones_are_prepared_one_in_a_turn(site: Preparing) -> None:
    tasks = site.add(3 * PREPARED_MAX)
    site.ahead.refill()
    assert site.ahead.held == {tasks[0].uid}
    assert site.turns.run() == PREPARED_MAX - 1
    assert site.refill() == uids(tasks[:PREPARED_MAX])


def test_who_is_started_makes_room_for_the_next(site: Preparing) -> None:
    tasks = site.add(PREPARED_MAX + 1)
    site.refill()
    run = site.ahead.start(tasks[0], None)
    assert run is not None
    assert run.task is tasks[0]
    assert site.end().run is run
    tasks[0].state = states.AGENT_EXECUTING
    site.waiting.remove(tasks[0])
    site.ahead.refill()
    assert sorted(site.ahead.held) == uids(tasks[1:])
    assert site.ahead.start(tasks[0], None) is None, 'it was started before'


def test_nothing_is_expected(site: Preparing) -> None:
    assert site.refill() == []
    assert site.ahead.start(site.task(), None) is None
    site.ahead.discard('task.000000')


def test_those_that_cannot_be_prepared_are_passed_over(site: Preparing) -> None:
    site.add(2, pre_exec=['true'])
    tasks = site.add(2)
    assert site.refill() == uids(tasks)


def test_those_that_cannot_be_prepared_are_not_tried_again(site: Preparing, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    class Refusing:
        def hold(self, task: AgentTask) -> None:
            tried.append(task.uid)

    tasks = site.add(3)
    monkeypatch.setattr(site.ahead, '_plain', Refusing())
    for _ in range(3):
        assert site.refill() == []
    assert tried == uids(tasks)


def test_those_that_do_not_wait_any_more_are_passed_over(site: Preparing) -> None:
    placed, cancelled, failed, other = site.add(4)
    placed.state = states.AGENT_EXECUTING_PENDING
    cancelled.cancelled = True
    failed.target_state = states.FAILED
    assert site.refill() == [other.uid]


def test_discard_leaves_nothing(site: Preparing) -> None:
    tasks = site.add(2)
    site.refill()
    site.ahead.discard(tasks[0].uid)
    tasks[0].cancelled = True
    assert site.refill() == [tasks[1].uid]


def test_clear_leaves_nothing(site: Preparing) -> None:
    tasks = site.add(2)
    site.refill()
    site.ahead.clear()
    assert len(site.launched) == 0
    assert os.listdir(site.path) == []
    site.waiting = tasks[1:]
    assert site.refill() == [tasks[1].uid]


def test_close_leaves_nothing_and_prepares_nothing(site: Preparing) -> None:
    site.add(2)
    site.refill()
    site.ahead.close()
    assert site.refill() == []


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path, cores=1, profile=True)
    yield made
    made.close()
    nothing_left(str(tmp_path))


def sandboxes(agent: Agent) -> list[str]:
    return sorted(path.name for path in agent.base.glob('task.*') if path.is_dir())


def when_prepared(agent: Agent, count: int, action: Callable[[], object]) -> None:
    """Call `action` in the loop when there are so many sandboxes."""
    if len(sandboxes(agent)) == count:
        action()
    else:
        agent.loop.call_later(0.002, when_prepared, agent, count, action)


def test_tasks_come_in_order_and_are_traced_alike(agent: Agent) -> None:
    """The first one was not prepared, as nobody knew its program."""
    tasks = [agent.task(f'task.{number:06}', executable='/bin/echo', arguments=[str(number)]) for number in range(12)]
    assert uids(agent.run(*tasks)) == uids(tasks)
    assert [task.stdout for task in tasks] == [f'{number}\n' for number in range(12)]
    assert set(map(tuple, agent.states.values())) == {tuple(ALL)}
    agent.pipeline.flush_traces()
    rows = read_profile(agent.base / 'agent_executing.0000.prof')
    events = [[row.event for row in rows if row.uid == task.uid] for task in tasks]
    assert all(each == events[0] for each in events)


def test_waiting_tasks_are_cancelled(agent: Agent) -> None:
    first, *others = (agent.task(f'task.{number:06}', **SLEEP) for number in range(PREPARED_MAX + 3))

    def cancel() -> None:
        agent.pipeline.cancel(others)
        assert sandboxes(agent) == [first.uid]
        agent.pipeline.cancel([first])

    when_prepared(agent, PREPARED_MAX + 1, cancel)
    agent.run(first, *others)
    assert {task.target_state for task in agent.out} == {states.CANCELED}


def test_a_prepared_task_can_never_run(tmp_path: Path) -> None:
    """What fails in the scheduler leaves no sandbox."""
    agent = Agent(tmp_path, cores=1, nodes=2)
    first, other = (agent.task(f'task.00000{number}', tags={'nodes': [0]}, **SLEEP) for number in range(2))

    def lose() -> None:
        agent.pipeline._scheduler.nodes_down([0], 'it is lost')
        assert sandboxes(agent) == [first.uid]
        agent.pipeline.cancel([first])

    when_prepared(agent, 2, lose)
    agent.run(first, other)
    agent.close()
    assert [task.target_state for task in (first, other)] == [states.CANCELED, states.FAILED]


def test_stop(agent: Agent) -> None:
    tasks = [agent.task(f'task.{number:06}', **SLEEP) for number in range(3)]
    when_prepared(agent, 3, agent.stop)
    agent.run(*tasks)
    assert {task.target_state for task in tasks} == {states.CANCELED}
    assert sandboxes(agent) == ['task.000000']
