"""Tasks that are killed in a batch job, which may be the end of that job: they keep their cores for some time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pipeline_support import Agent

from rp_agent.task import AgentTask
from rp_api import states

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
