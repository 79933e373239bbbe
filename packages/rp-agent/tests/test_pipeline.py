"""The agent's components together, wherever they live: real tasks on the way from the hub to the hub, without a hub."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline_support import ALL, LAYOUTS, SLEEP, Agent

from rp_agent.agent import Agent as RealAgent
from rp_agent.components.stage import Flow, Owner
from rp_agent.pipeline.pipeline import Pipeline
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.constants import COPY
from rp_api.staging import expand


@pytest.fixture(params=LAYOUTS.values(), ids=list(LAYOUTS))
def agent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Agent]:
    made = Agent(tmp_path, request.param)
    yield made
    made.close()


@pytest.mark.parametrize(('interface', 'kind'), [(Flow, Pipeline), (Owner, RealAgent)])
def test_nothing_that_stages_ask_for_is_missing(interface: type, kind: type) -> None:
    """Methods of the interfaces do nothing by default, so that parts of them suffice in tests."""
    assert [name for name in vars(interface) if not name.startswith('_')
            and getattr(kind, name) is getattr(interface, name)] == []


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


def test_same_results_everywhere(agent: Agent) -> None:
    """Whatever the layout: all outcomes, outputs and states are the same, and no core has two tasks at a time."""
    busy: dict[int, str] = {}

    def check(task: AgentTask, state: str) -> None:
        cores = [core['index'] for slot in task.slots or [] for core in slot['cores']]
        if state == states.AGENT_EXECUTING_PENDING:
            assert not busy.keys() & cores
            busy.update(dict.fromkeys(cores, task.uid))
        elif state == states.AGENT_STAGING_OUTPUT_PENDING:
            assert [busy.pop(core) for core in cores] == [task.uid] * len(cores)

    agent.on_state = check
    (agent.base / 'in').write_text('data')
    expected = {}
    tasks = []
    for number in range(24):
        uid, code, staged = f'task.{number:06d}', number % 3, number % 4 == 0
        staging = {'input_staging': expand({'source': 'pilot:///in', 'action': COPY}),
                   'output_staging': expand({'source': 'in', 'target': f'pilot:///out.{number}', 'action': COPY})}
        tasks.append(agent.task(uid, executable='/bin/sh', arguments=['-c', f'echo {number}; exit {code}'],
                                cores_per_rank=1 + number % 2, **(staging if staged else {})))
        expected[uid] = (states.FAILED if code else states.DONE, code, f'{number}\n', ALL)
    out = agent.run(*tasks)
    assert {task.uid: (task.target_state, task.exit_code, task.stdout, agent.states[task.uid])
            for task in out} == expected
    assert busy == {}
    assert {path.name for path in agent.base.glob('out.*')} == {'out.0', 'out.12'}
    assert all(task is tasks[int(task.uid[-2:])] for task in out)


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
    assert {path.name for path in agent.base.iterdir()} >= {'gtod', 'prof'}
