"""Tasks that are submitted at the endpoint of a pilot, with an agent that ends them as the tests say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rp_agent.calls import Call, Calls
from rp_agent.components.stage import Owner
from rp_agent.local_tasks import LocalTasks
from rp_agent.task import AgentTask
from rp_api import states

TRUE = {'executable': '/bin/true'}


class Agent(Owner):
    """The calls on local tasks, and the tasks that run."""

    def __init__(self) -> None:
        self.running: dict[str, AgentTask] = {}
        self.seen: set[str] = set()
        self.cancelled: list[str] = []
        self.ended: list[tuple[str, str]] = []
        self.answers: dict[str, tuple[Any, str | None]] = {}
        self.calls = Calls()
        self._number = 0
        LocalTasks('pilot.0000', self).register(self.calls)

    def find(self, uid: str) -> AgentTask | None:
        return self.running.get(uid)

    def has_seen(self, uid: str) -> bool:
        return uid in self.seen

    def cancel_tasks(self, uids: Sequence[str]) -> None:
        self.cancelled += uids

    def finish(self, state: str, reason: str, *, by_user: bool = False) -> None:
        assert by_user
        self.ended.append((state, reason))

    def run_own(self, descriptions: list[dict[str, Any]], ended: Callable[[AgentTask], object]) -> None:
        for description in descriptions:
            uid = description.pop('uid')
            self.seen.add(uid)
            self.running[uid] = AgentTask(uid, description, 'pilot.0000', '')
            self.over = ended

    def end(self, uid: str) -> None:
        task = self.running.pop(uid)
        task.exit_code, task.target_state = 0, states.DONE
        self.over(task)

    def ask(self, name: str, *args: Any, **kwargs: Any) -> str:
        """Start a call, and return its uid."""
        def answered(call: Call, value: Any, reason: str | None, detail: str) -> None:
            self.answers[call.uid] = value, reason

        self._number += 1
        uid = f'call.{self._number}'
        self.calls.call(uid, name, args, kwargs, answered)
        return uid

    def value(self, name: str, *args: Any, **kwargs: Any) -> Any:
        value, reason = self.answers[self.ask(name, *args, **kwargs)]
        assert reason is None
        return value

    def failure(self, name: str, *args: Any, **kwargs: Any) -> str:
        return str(self.answers[self.ask(name, *args, **kwargs)][1])


def test_tasks_from_submission_to_their_results() -> None:
    agent = Agent()
    assert agent.value('submit_tasks', [TRUE, TRUE | {'uid': 'mine'}]) == ['pilot.0000.task.000000', 'mine']
    assert agent.value('submit_tasks', descriptions=TRUE) == ['pilot.0000.task.000001']
    assert {task.description['pilot'] for task in agent.running.values()} == {'pilot.0000'}
    waits = [agent.ask('wait_tasks', 'mine'), agent.ask('wait_tasks', ['mine', 'pilot.0000.task.000000']),
             agent.ask('wait_tasks')]
    agent.end('mine')
    mine = {'uid': 'mine', 'state': 'DONE', 'exit_code': 0}
    assert [agent.answers.get(wait) for wait in waits] == [([mine], None), None, None]
    agent.end('pilot.0000.task.000000')
    assert agent.answers[waits[1]][0] == [mine, mine | {'uid': 'pilot.0000.task.000000'}]
    assert [task['state'] for task in agent.value('get_tasks')] == ['DONE', 'DONE', 'AGENT_STAGING_INPUT_PENDING']
    assert agent.value('wait_tasks', uids='mine') == [mine]


def test_cancelled_wait_is_forgotten() -> None:
    agent = Agent()
    agent.value('submit_tasks', TRUE | {'uid': 'mine'})
    wait = agent.ask('wait_tasks')
    agent.calls.cancel([wait], 'the call was cancelled')
    agent.end('mine')
    assert agent.answers[wait] == (None, 'the call was cancelled')


@pytest.mark.parametrize(('description', 'text'), [
    (7, 'a task description is a dict, not 7'), ({}, 'executable'), (TRUE | {'ranks': -1}, 'ranks'),
    ({'mode': 'task.eval', 'code': '1'}, 'raptor_id'), (TRUE | {'mode': 'task.service'}, 'task.service'),
    (TRUE | {'input_staging': ['a']}, 'transfers files from or to the client'), (TRUE | {'uid': 'one'}, 'in use')])
def test_one_refused_task_refuses_all(description: Any, text: str) -> None:
    agent = Agent()
    agent.seen.add('one')
    assert text in agent.failure('submit_tasks', [TRUE, description])
    assert agent.running == {}


@pytest.mark.parametrize(('name', 'args', 'text'), [
    ('submit_tasks', (), 'submit_tasks needs descriptions'), ('cancel_tasks', (), 'cancel_tasks needs uids'),
    ('get_tasks', ('other',), 'other was not submitted at the endpoint of pilot.0000'),
    ('wait_tasks', ([7],), 'uids are a text or a list of texts'),
    ('cancel_tasks', ('other',), 'pilot.0000 has no task other'),
    ('cancel_pilots', (['pilot.0001'],), 'pilot.0001 cannot be cancelled here, only pilot.0000')])
def test_wrong_calls(name: str, args: tuple[Any, ...], text: str) -> None:
    assert text in Agent().failure(name, *args)


def test_cancellation() -> None:
    agent = Agent()
    agent.seen |= {'one', 'two'}
    agent.value('cancel_tasks', 'one,two')
    agent.value('cancel_pilots', uids='pilot.0000')
    assert agent.cancelled == ['one', 'two']
    assert agent.ended == [('CANCELED', 'was cancelled by a call to its endpoint')]
