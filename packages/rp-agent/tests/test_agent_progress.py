"""Whether the tasks of a pilot can go on without the application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rp_agent.pipeline.progress import DELAY, Progress, waiting_alone
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.constants import RAPTOR_MASTER, RAPTOR_WORKER, TASK_FUNCTION, TASK_SERVICE
from rp_api.loop.event_loop import Loop

WAITS, STARTS, RUNS = states.AGENT_SCHEDULING, states.AGENT_EXECUTING_PENDING, states.AGENT_EXECUTING
SERVES, WORKS = {'mode': TASK_SERVICE}, {'mode': RAPTOR_WORKER, 'raptor_id': 'm'}
CALL = {'mode': TASK_FUNCTION, 'raptor_id': 'm'}


def task(uid: str, state: str, description: dict[str, Any]) -> AgentTask:
    made = AgentTask(uid, description, 'pilot.0000', '/nowhere')
    made.state = state
    return made


@pytest.mark.parametrize(('tasks', 'found'), [
    ([], []),
    ([(WAITS, {}), (WAITS, {})], ['0', '1']),
    ([(WAITS, {}), (RUNS, {})], []),
    ([(WAITS, {}), (states.AGENT_STAGING_INPUT, {})], []),
    ([(WAITS, {}), (RUNS, SERVES)], ['0']),            # which keeps what the task needs
    ([(WAITS, {}), (WAITS, SERVES)], ['0']),
    ([(WAITS, {}), (STARTS, SERVES)], []),
    ([(RUNS, SERVES)], []),
    ([(WAITS, {}), (RUNS, {'mode': RAPTOR_MASTER}), (RUNS, WORKS)], ['0']),
    ([(WAITS, CALL), (RUNS, {'mode': RAPTOR_MASTER}), (RUNS, WORKS)], []),
    ([(WAITS, CALL), (RUNS, {'mode': RAPTOR_MASTER}), (WAITS, WORKS)], ['0']),
    ([(WAITS, CALL), (RUNS, CALL), (RUNS, WORKS)], [])])
def test_tasks_that_wait_alone(tasks: list[tuple[str, dict[str, Any]]], found: list[str]) -> None:
    assert waiting_alone(task(str(number), *each) for number, each in enumerate(tasks)) == found


class Pipeline:
    """Nothing waits for a place; `coming` is whether something else is on its way."""

    def __init__(self, coming: list[bool]) -> None:
        self._coming = coming

    @property
    def expects(self) -> bool:
        return self._coming[0]

    def shortages(self, tasks: Mapping[str, AgentTask]) -> list[dict[str, Any]]:
        return []


def test_changes_are_told_once() -> None:
    loop, tasks, coming, told = Loop(), {'a': task('a', WAITS, {})}, [True], list[str]()
    progress = Progress(loop, tasks, Pipeline(coming), 1, lambda: told.append(progress.stuck))

    def look() -> None:
        for _ in range(3):
            progress.note()
        loop.call_later(DELAY, loop.stop)
        loop.run()

    look()
    assert told == []
    coming[0] = False
    look()
    look()
    assert [text.startswith('a cannot go on without the application') for text in told] == [True]
    tasks['b'] = task('b', RUNS, {})
    look()
    assert told[1:] == ['']
    loop.close()
