"""An unexpected error that one task causes, in whatever step, fails this task, and neither others nor the agent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline_support import Agent

from rp_agent.components.isolation import Isolation, unless
from rp_agent.executor.popen.component import Executor
from rp_agent.executor.shell import ShellExecutor
from rp_agent.pipeline import retry
from rp_agent.pipeline import stages as the_stages
from rp_agent.pipeline.attempts import Attempts
from rp_agent.prerequisites.gate import Gate
from rp_agent.scheduler.component import Scheduler
from rp_agent.scheduler.policies.continuous import Continuous
from rp_agent.stager.component import StagerInput, StagerOutput
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.constants import TASK_EXECUTABLE

BAD = 'task.bad'
UIDS = ('task.0', BAD, 'task.1', 'task.2')


class Injected(Exception):
    """No part of the agent expects it."""


def concerns(value: Any) -> bool:
    if isinstance(value, AgentTask):
        return value.uid == BAD
    if isinstance(value, list | tuple):
        return any(map(concerns, value))
    return bool(getattr(value, 'task', None) is not None and concerns(value.task)) or value == BAD


def inject(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Have a function raise an error whenever it handles the bad task."""
    original = getattr(owner, name)

    def raises(*arguments: Any, **options: Any) -> Any:
        if concerns([*arguments]):
            raise Injected(f'in {name}')
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, raises)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    made: list[Agent] = []

    def make(**arguments: Any) -> Agent:
        made.append(Agent(tmp_path, **arguments))
        return made[-1]

    yield make
    for agent in made:
        agent.close()


def run(agent: Agent, caplog: pytest.LogCaptureFixture, **description: Any) -> AgentTask:
    """Run all tasks in one bulk, then more than there is room for at once; return the bad one, which has failed."""
    agent.run(*(agent.task(uid, **description) for uid in UIDS))
    found = {task.uid: task for task in agent.out}
    assert (sorted(found), len(agent.out)) == (sorted(UIDS), len(UIDS))
    bad = found.pop(BAD)
    assert {task.target_state for task in found.values()} == {states.DONE}, [
        (task.uid, task.exception, task.exception_detail) for task in found.values()]
    assert bad.target_state == states.FAILED
    assert 'Injected' in str(bad.exception)
    assert 'Traceback' in str(bad.exception_detail)
    assert 'in raises' in str(bad.exception_detail)
    assert any(record.exc_info and BAD in record.getMessage() for record in caplog.records)
    assert bad.error is not None
    agent.loop.call_soon(lambda: None)
    agent.out.clear()
    agent.run(*(agent.task(f'later.{number}') for number in range(6)))
    assert {task.target_state for task in agent.out} == {states.DONE}
    return bad


PLAIN: dict[str, Any] = {}
ODD: dict[str, Any] = {'mode': TASK_EXECUTABLE, 'services': []}   # with attributes that stages look at
SERVED: dict[str, Any] = {'named_env': 'rp'}
AGAIN: dict[str, Any] = {'retries': 1}
SHELL = {'agent_spawner': 'SHELL'}

STEPS: list[tuple[Any, str, dict[str, Any], dict[str, Any]]] = [
    (StagerInput, 'put', PLAIN, {}), (StagerInput, 'advance', PLAIN, {}), (StagerInput, 'forward', PLAIN, {}),
    (retry, 'concerns_attempts', ODD, {}), (the_stages, 'concerns_raptor', ODD, {}), (the_stages, 'has_needs', ODD, {}),
    (Gate, 'put', SERVED, {}), (Gate, '_missing', SERVED, {}), (Gate, '_set_variables', SERVED, {}),
    (Scheduler, 'put', PLAIN, {}), (Continuous, 'admit', PLAIN, {}), (Continuous, 'request', PLAIN, {}),
    (Continuous, 'place', PLAIN, {}),
    (Executor, 'put', PLAIN, {}), (Executor, '_begin', PLAIN, {}), (Executor, '_judge', PLAIN, {}),
    (ShellExecutor, 'put', PLAIN, SHELL), (ShellExecutor, '_begin', PLAIN, SHELL),
    (Attempts, 'entered', AGAIN, {}), (Attempts, '_keeps', AGAIN, {}),
    (StagerOutput, 'put', PLAIN, {}), (StagerOutput, '_wants_work', PLAIN, {}), (StagerOutput, '_collect', PLAIN, {})]


@pytest.mark.parametrize(('owner', 'name', 'description', 'platform'), STEPS,
                         ids=[f'{owner.__name__.rpartition(".")[2]}.{name}' for owner, name, *_ in STEPS])
def test_a_step_that_raises(make: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch,
                            caplog: pytest.LogCaptureFixture, owner: Any, name: str, description: dict[str, Any],
                            platform: dict[str, Any]) -> None:
    caplog.set_level(logging.ERROR)
    inject(monkeypatch, owner, name)
    run(make(**platform), caplog, **description)


def test_states_that_cannot_be_followed(make: Callable[..., Agent], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    agent = make()

    def on_state(task: AgentTask, state: str) -> None:
        if concerns(task) and state == states.AGENT_EXECUTING:
            raise Injected('while following')

    agent.on_state = on_state
    bad = agent.task(BAD, executable='/bin/sleep', arguments=['1000'])
    agent.run(agent.task('task.0'), bad, agent.task('task.1'))
    assert [bad.target_state, bad.exit_code] == [states.FAILED, -15]
    assert 'Traceback' in str(bad.exception_detail)
    assert {task.target_state for task in agent.out if task is not bad} == {states.DONE}


def test_tasks_that_a_component_holds_do_not_enter_again() -> None:
    taken: list[str] = []
    given_up: list[str] = []
    tasks = [AgentTask(uid, {}, 'pilot', '/') for uid in UIDS]

    def put(bulk: list[AgentTask]) -> None:
        for task in bulk:
            if task.uid == BAD:
                raise Injected
            taken.append(task.uid)

    isolation = Isolation(lambda task: task.uid not in taken, lambda task: given_up.append(task.uid))
    isolation.run('testing', put, tasks)
    assert (sorted(taken), given_up) == (sorted(set(UIDS) - {BAD}), [BAD])
    assert [task.target_state for task in tasks] == [None, states.FAILED, None, None]


def test_a_decision_that_raises_keeps_the_task() -> None:
    tasks = [AgentTask(uid, {}, 'pilot', '/') for uid in UIDS]

    def leaves(task: AgentTask) -> bool:
        if task.uid == BAD:
            raise Injected
        return task.uid == 'task.0'

    assert [task.uid for task in unless(tasks, leaves, 'deciding')] == [BAD, 'task.1', 'task.2']
    assert tasks[1].target_state == states.FAILED
