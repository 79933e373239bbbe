"""Tasks that end in a batch job, which may be the end of that job: some keep their cores for some time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from pipeline_support import Agent

from rp_agent.components.killed import HeldBack
from rp_agent.pipeline.retry import restarts
from rp_agent.task import EXITED, AgentTask
from rp_api import states
from rp_api.loop.event_loop import Loop

Make = Callable[[str], Agent]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Agent] = []

    def agent(resource_manager: str) -> Agent:
        made.append(Agent(tmp_path, cores=1, resource_manager=resource_manager))
        return made[0]

    yield agent
    made[0].close()


def one_after_the_other(agent: Agent) -> tuple[AgentTask, AgentTask]:
    """A task that is killed, and one that gets the core after it."""
    return (agent.task('killed', executable='/bin/sh', arguments=['-c', 'kill -TERM $$']),
            agent.task('waits', executable='/usr/bin/touch', arguments=[str(agent.base / 'ran')]))


@pytest.mark.parametrize('resource_manager', ['SLURM', 'FORK'])
def test_the_next_task_runs(make: Make, resource_manager: str) -> None:
    agent = make(resource_manager)
    killed, waits = one_after_the_other(agent)
    agent.run(killed, waits)
    assert (killed.target_state, waits.target_state) == (states.FAILED, states.DONE)


def test_nothing_starts_in_a_job_that_ends_next(make: Make) -> None:
    agent = make('SLURM')
    killed, waits = one_after_the_other(agent)
    agent.loop.call_later(1.0, agent.stop)   # sooner than the core is free again
    agent.run(killed, waits)
    assert waits.target_state == states.CANCELED
    assert not (agent.base / 'ran').exists()


def test_what_is_held_back() -> None:
    """In a job, each failure, and each end of a task that may run again: all of them may be answers to a signal."""
    loop = Loop()
    for in_job in (True, False):
        for state in (states.DONE, states.FAILED, states.CANCELED):
            for description in ({}, {'restartable': True}, {'retries': 1}):
                task = AgentTask('task', dict(description), 'pilot.0000', '/sandbox')
                task.target_state = state
                released: list[AgentTask] = []
                held_back = HeldBack(loop, in_job=in_job, restarts=restarts)
                passed = held_back.hold([task], released.extend)
                held = in_job and (state == states.FAILED or (state == states.DONE and bool(description)))
                assert passed == ([] if held else [task]), (in_job, state, description)
                held_back.release()
                assert released == ([task] if held else [])
    loop.close()


@pytest.mark.parametrize('code', [0, 9])
@pytest.mark.parametrize('option', [{'restartable': True}, {'retries': 1}])
def test_an_answer_to_a_signal_that_comes_first(make: Make, option: dict[str, object], code: int,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent gets its signal a moment later: nothing has started meanwhile, and the end is one of the job."""
    monkeypatch.setattr('rp_agent.components.killed.END_HOLD_S', 30.0)
    agent = make('SLURM')
    ends = agent.task('ends', executable='/bin/sh', arguments=['-c', f'exit {code}'], **option)
    waits = agent.task('waits', executable='/usr/bin/touch', arguments=[str(agent.base / 'ran')])
    agent.loop.call_later(1.0, partial(agent.pipeline.stop, 'pilot.0000 ends', lambda: None, job_ends=True))
    agent.run(ends, waits)
    assert EXITED in ends.extra
    assert waits.target_state == states.CANCELED
    assert not (agent.base / 'ran').exists()
