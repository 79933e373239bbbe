"""Random events: wherever a task manager's tasks are, each of them is at one place."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flow_support import Site
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rp_api import states
from rp_api.constants import RAPTOR_MASTER, TASK_EVAL, TRANSFER
from rp_client.core.pilot import PilotRecord
from rp_client.core.task import RETURNED, TaskRecord
from rp_client.scheduler.backfilling import Backfilling
from rp_client.scheduler.base import TaskScheduler

KINDS: list[dict[str, Any]] = [
    {}, {'restartable': True}, {'pilot': 'pilot.0001'}, {'cache': True}, {'mode': RAPTOR_MASTER},
    {'mode': TASK_EVAL, 'code': '1', 'raptor_id': '*'},
    {'input_staging': {'source': 'there', 'target': 'f', 'action': TRANSFER}},
    {'input_staging': {'source': 'missing', 'target': 'f', 'action': TRANSFER}},
    {'output_staging': {'source': 'missing', 'target': 'f', 'action': TRANSFER}}]
NUMBERS = st.integers(0, 99)


class RandomEvents(RuleBasedStateMachine):
    """A task manager whose pilots come and go, while its tasks run, fail, are cancelled, returned and forgotten."""

    scheduler: type[TaskScheduler] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.site = Site(Path(self.directory.name), self.scheduler() if self.scheduler else None)
        (self.site.base / 'client' / 'there').touch()
        self.pilots: list[PilotRecord] = []
        self.count = 0

    def teardown(self) -> None:
        self.site.flow.end_all(self.site.tasks.values(), 'it is over')
        assert all(task.state in states.FINAL for task in self.site.tasks.values())
        self.site.opened.close()
        self.directory.cleanup()

    @rule(count=st.integers(1, 3), kind=st.sampled_from(KINDS))
    def submit(self, count: int, kind: dict[str, Any]) -> None:
        self.count += count
        self.site.submit(*(f'task.{number:06d}' for number in range(self.count - count, self.count)), **kind)

    @precondition(lambda self: len(self.pilots) < 5)
    @rule(state=st.sampled_from([states.PMGR_ACTIVE, states.PMGR_LAUNCHING]), cores=st.integers(1, 3))
    def add_pilot(self, state: str, cores: int) -> None:
        self.pilots.append(self.site.sized(f'pilot.{len(self.pilots):04d}', cores, state))

    @rule(number=NUMBERS, state=st.sampled_from([
        states.AGENT_SCHEDULING, states.AGENT_EXECUTING, states.TMGR_STAGING_OUTPUT_PENDING, states.DONE,
        states.FAILED]), end=st.sampled_from([*sorted(states.FINAL), 'odd']), returned=st.booleans())
    def report(self, number: int, state: str, end: str, returned: bool) -> None:
        there = [task for task in self.site.tasks.values() if self.is_at_agent(task)]
        if there:
            task = there[number % len(there)]
            info = {RETURNED: task.place} if returned and state.startswith('AGENT') else {'target_state': end}
            self.site.report(task, state, **info)

    def is_at_agent(self, task: TaskRecord) -> bool:
        return (task.stored and task.pilot is not None and task.pilot.state == states.PMGR_ACTIVE
                and task.uid in {uid for pilot, uids in self.site.sent() if pilot == task.place for uid in uids}
                and states.TASK.value(task.state) >= states.TASK.value(states.AGENT_STAGING_INPUT_PENDING))

    @rule(number=NUMBERS, state=st.sampled_from(sorted(states.FINAL)),
          kept=st.sampled_from([None, [], ['task.000000']]))
    def end_pilot(self, number: int, state: str, kept: list[str] | None) -> None:
        live = [pilot for pilot in self.pilots if pilot.state not in states.FINAL]
        if live:
            pilot = live[number % len(live)]
            pilot.kept = kept
            self.site.end(pilot, state)

    @rule(number=NUMBERS, drain=st.booleans())
    def remove_pilot(self, number: int, drain: bool) -> None:
        if self.pilots:
            pilot, tasks = self.pilots[number % len(self.pilots)], list(self.site.tasks.values())
            if drain:
                self.site.flow.drain_pilots([pilot], tasks, Future())
            else:
                self.site.flow.remove_pilots([pilot], lambda: tasks)

    @rule(numbers=st.lists(NUMBERS, max_size=3))
    def cancel(self, numbers: list[int]) -> None:
        tasks = list(self.site.tasks.values())
        self.site.flow.cancel([tasks[number % len(tasks)] for number in numbers if tasks])

    @rule()
    def forget(self) -> None:
        final = [task.uid for task in self.site.tasks.values() if task.state in states.FINAL
                 and task.common.mode != RAPTOR_MASTER]
        self.site.flow.forget(final)
        for uid in final:
            del self.site.tasks[uid]

    @rule(free=st.booleans())
    def room(self, free: bool) -> None:
        self.site.connection.free = free
        if free:
            self.site.engine.have_room()

    @rule()
    def move_files(self) -> None:
        self.site.later.work()

    @rule()
    def look_up(self) -> None:
        self.site.lookups.work()

    @invariant()
    def each_task_is_at_one_place(self) -> None:
        self.site.check()


class RandomEventsBackfilling(RandomEvents):
    """The same with a scheduler that binds late."""

    scheduler = Backfilling


TestRandomEvents = RandomEvents.TestCase
TestRandomEventsBackfilling = RandomEventsBackfilling.TestCase
TestRandomEvents.settings = TestRandomEventsBackfilling.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None)
