"""The agent's components together: real tasks on the way from the hub to the hub, without a hub."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rp_agent.pipeline import Pipeline
from rp_agent.resource_manager.base import Allocation
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.constants import COPY
from rp_api.mesh.loop import Loop
from rp_api.mesh.offload import Helpers
from rp_api.staging import expand
from rp_profiling.tracer import Tracer

PATIENCE = 20.0
ALL = [states.AGENT_STAGING_INPUT, states.AGENT_SCHEDULING_PENDING, states.AGENT_SCHEDULING,
       states.AGENT_EXECUTING_PENDING, states.AGENT_EXECUTING, states.AGENT_STAGING_OUTPUT_PENDING,
       states.AGENT_STAGING_OUTPUT, states.TMGR_STAGING_OUTPUT_PENDING]


class Agent:
    """A pipeline of two cores on a loop, and what came out of it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.loop = Loop()
        self.helpers = Helpers(self.loop)
        self.out: list[AgentTask] = []
        self.states: dict[str, list[str]] = {}
        self.on_state: Callable[[AgentTask, str], object] = lambda task, state: None
        self.wanted = 0
        self.stopped = False
        config = {'session': f'session.{id(self)}', 'pilot': 'pilot.0000', 'resource': 'local.localhost',
                  'client_sandbox': str(base), 'resource_sandbox': str(base), 'session_sandbox': str(base),
                  'pilot_sandbox': str(base), 'hub': {'endpoint': 'ipc:///nowhere'}, 'profile': False}
        self.pipeline = Pipeline(config, self.loop, Allocation(('localhost',), 2, 0, 0, 0),
                                 lambda name: Tracer(None, name), self.helpers.run, self._left)
        self.pipeline.on_advanced = self._advanced

    def task(self, uid: str = 'task.000000', **description: Any) -> AgentTask:
        description = {'executable': '/bin/true', 'uid': uid} | description
        return AgentTask(uid, description, 'pilot.0000', str(self.base / uid))

    def run(self, *tasks: AgentTask) -> list[AgentTask]:
        """The tasks, in the order in which they came out."""
        self.wanted = len(self.out) + len(tasks)
        self.pipeline.put(list(tasks))
        self.wait()
        return self.out

    def wait(self) -> None:
        self.loop.call_later(PATIENCE, pytest.fail, f'only {len(self.out)} of {self.wanted} tasks came out')
        self.loop.run()

    def stop(self) -> None:
        """End all tasks."""
        def stopped() -> None:
            self.stopped = True

        self.pipeline.stop('pilot.0000 ends', stopped)

    def close(self) -> None:
        self.helpers.close(PATIENCE)
        self.pipeline.close()
        self.loop.close()

    def _left(self, tasks: Sequence[AgentTask]) -> None:
        self.out += tasks
        if len(self.out) >= self.wanted:
            self.loop.call_soon(self.loop.stop)

    def _advanced(self, tasks: Sequence[AgentTask], state: str) -> None:
        for task in tasks:
            self.states.setdefault(task.uid, []).append(state)
            self.on_state(task, state)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    yield made
    made.close()


SLEEP = {'executable': '/bin/sleep', 'arguments': ['100']}


def test_way_of_a_task(agent: Agent) -> None:
    (task,) = agent.run(agent.task(executable='/bin/echo', arguments=['said']))
    assert agent.states == {task.uid: ALL}
    assert (task.target_state, task.exit_code, task.stdout) == (states.DONE, 0, 'said\n')
    assert task.slots is not None
    assert [core['index'] for core in task.slots[0]['cores']] == [0]


def test_resources_come_back(agent: Agent) -> None:
    """There are two cores, and more tasks than that."""
    tasks = agent.run(*(agent.task(f'task.{number}', cores_per_rank=1 + number % 2) for number in range(9)))
    assert Counter(task.target_state for task in tasks) == {states.DONE: 9}


def test_staging_around_a_task(agent: Agent) -> None:
    (agent.base / 'in').write_text('data')
    (task,) = agent.run(agent.task(
        executable='/bin/cp', arguments=['in', 'out'],
        input_staging=expand({'source': 'pilot:///in', 'action': COPY}),
        output_staging=expand({'source': 'out', 'target': 'pilot:///result', 'action': COPY})))
    assert (task.target_state, task.exception) == (states.DONE, None)
    assert (agent.base / 'result').read_text() == 'data'
    assert task.output_files == ['out']
    assert agent.states[task.uid] == ALL


def test_failed_staging_leaves_at_once(agent: Agent) -> None:
    (task,) = agent.run(agent.task(input_staging=expand({'source': 'pilot:///none', 'action': COPY})))
    assert task.target_state == states.FAILED
    assert agent.states[task.uid] == [states.AGENT_STAGING_INPUT]


def test_task_that_is_too_large_leaves_at_once(agent: Agent) -> None:
    (task,) = agent.run(agent.task(cores_per_rank=3))
    assert task.target_state == states.FAILED
    assert agent.states[task.uid] == ALL[:3]


@pytest.mark.parametrize('state', ALL[:5])
def test_cancelled_wherever_it_is(agent: Agent, state: str) -> None:
    def cancel(task: AgentTask, reached: str) -> None:
        if reached == state:
            agent.loop.call_soon(agent.pipeline.cancel, [task])

    agent.on_state = cancel
    (task,) = agent.run(agent.task(**SLEEP))
    assert task.cancelled
    assert task.target_state == states.CANCELED


def test_cancelled_while_it_waits_for_cores(agent: Agent) -> None:
    def cancel(task: AgentTask, reached: str) -> None:
        if task is first and reached == states.AGENT_EXECUTING:
            agent.loop.call_soon(agent.pipeline.cancel, [second])
            agent.loop.call_soon(agent.pipeline.cancel, [first])

    first, second = agent.task('task.1', cores_per_rank=2, **SLEEP), agent.task('task.2', cores_per_rank=2)
    agent.on_state = cancel
    assert agent.run(first, second) == [second, first]
    assert {task.target_state for task in agent.out} == {states.CANCELED}
    assert agent.states['task.2'] == ALL[:3]


def test_tasks_that_have_left_are_not_concerned(agent: Agent) -> None:
    (task,) = agent.run(agent.task())
    agent.pipeline.cancel([task])
    assert task.target_state == states.DONE


def test_refused(agent: Agent) -> None:
    task = agent.task()
    agent.pipeline.refuse([task], 'pilot.0000 has ended')
    agent.pipeline.refuse([], 'pilot.0000 has ended')
    assert agent.out == [task]
    assert (task.target_state, task.exception) == (states.CANCELED, 'pilot.0000 has ended')
    assert agent.states == {}


def test_stop_ends_tasks_that_run_and_wait(agent: Agent) -> None:
    def stop(task: AgentTask, reached: str) -> None:
        if reached == states.AGENT_EXECUTING:
            agent.loop.call_soon(agent.stop)

    agent.on_state = stop
    tasks = agent.run(*(agent.task(f'task.{number}', cores_per_rank=2, **SLEEP) for number in range(3)))
    assert {task.target_state for task in tasks} == {states.CANCELED}
    assert all('pilot.0000 ends' in str(task.exception) for task in tasks), [task.exception for task in tasks]
    assert agent.stopped


def test_stop_without_tasks(agent: Agent) -> None:
    agent.pipeline.stop('pilot.0000 ends', agent.loop.stop)
    agent.wait()
    assert agent.out == []


def test_helpers_of_tasks_are_written(agent: Agent) -> None:
    assert {path.name for path in agent.base.iterdir()} == {'gtod', 'prof'}
