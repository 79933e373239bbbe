"""The gate for tasks with dependencies: what it asks the agent and the coordinator, and what it passes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rp_agent.dependencies import gate
from rp_agent.dependencies.gate import DependencyGate, elsewhere
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.coordination.contract import NewTask, Update
from rp_profiling.write.tracer import Tracer


class Site:
    """An agent, as the gate sees it."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.done: set[str] = set()
        self.asked: list[str] = []
        self.ready: list[NewTask] = []
        self.hopeless: list[tuple[NewTask, str]] = []
        self.later: list[Callable[[], object]] = []
        self.gate = DependencyGate(self, self, Tracer(None, ''))   # type: ignore[arg-type]

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.later.append(callback)

    def has(self, uid: str) -> bool:
        return uid in self.there

    def is_done(self, uid: str) -> bool:
        return uid in self.done

    def follow(self, uids: Sequence[str]) -> None:
        self.asked += uids

    def other_sandbox(self, pilot: str) -> str:
        return '' if pilot in ('', 'here') else f'/session/{pilot}'

    def released(self, new: list[NewTask]) -> None:
        self.ready += new

    def doomed(self, tasks: list[tuple[NewTask, str]]) -> None:
        self.hopeless += tasks

    def put(self, *tasks: dict[str, Any]) -> None:
        self.gate.put([(task.pop('uid'), task) for task in map(dict, tasks)])

    def ended(self, uid: str, state: str) -> None:
        task = AgentTask(uid, {}, 'here', '')
        task.target_state = state
        self.gate.ended([task])


def test_descriptions_come_out_as_they_went_in_without_after() -> None:
    site = Site()
    site.there.add('a')
    description = {'executable': 'x', 'arguments': ['1', 'ü'], 'environment': {'A': 'b'}}
    site.put({'uid': 'b', 'after': ['a'], **description})
    assert (len(site.gate), 'b' in site.gate, list(site.gate.descriptions())) == (1, True, [description])
    site.ended('a', states.DONE)
    assert 'b' in site.gate   # until the next turn
    site.later[0]()
    assert site.ready == [('b', description)]
    assert (len(site.gate), site.asked) == (0, [])


def test_tasks_that_the_agent_does_not_know_are_followed_once() -> None:
    site = Site()
    site.done.add('d')
    site.put({'uid': 'x', 'after': ['d', 'far']}, {'uid': 'y', 'after': ['far', 'x']})
    assert site.asked == ['far']
    site.gate.followed([Update('far', states.DONE, {'pilot': 'there'})])
    site.gate.followed([Update('far', states.FAILED, {})])   # the second end of a task does not count
    site.later[0]()
    assert ([uid for uid, _ in site.ready], site.hopeless) == (['x'], [])


def test_a_task_that_moves_is_followed_if_others_wait_for_it() -> None:
    site = Site()
    site.there.update(('a', 'b'))
    site.put({'uid': 'x', 'after': ['a']})
    site.gate.moved(['a', 'b'])
    assert site.asked == ['a']


def test_a_task_can_be_taken_out_until_it_is_passed_on() -> None:
    site = Site()
    site.there.add('a')
    site.put({'uid': 'x', 'after': ['a']}, {'uid': 'y', 'after': ['a']}, {'uid': 'z', 'after': ['y']})
    assert [uid for uid, _ in site.gate.take(['x', 'other'])] == ['x']
    site.ended('a', states.DONE)
    assert [uid for uid, _ in site.gate.take(['y'])] == ['y']
    site.later[0]()
    assert (site.ready, len(site.gate)) == ([], 1)
    assert [uid for uid, _ in site.gate.take_all()] == ['z']


def test_a_task_waits_for_one_that_is_about_to_be_passed_on() -> None:
    site = Site()
    site.done.update(('a', 'x', 'v'))   # the last two once the agent has received them
    site.put({'uid': 'x', 'after': ['a']})
    site.put({'uid': 'v', 'after': {'a': 'failed'}})
    site.put({'uid': 'y', 'after': ['x']}, {'uid': 'w', 'after': ['v']})
    site.later[0]()
    assert ([uid for uid, _ in site.ready], [uid for (uid, _), _ in site.hopeless]) == (['x'], ['v'])
    assert (len(site.gate), site.asked) == (2, [])
    site.ended('x', states.DONE)
    site.ended('v', states.CANCELED)
    site.later[-1]()
    assert ([uid for uid, _ in site.ready], [uid for (uid, _), _ in site.hopeless]) == (['x', 'y'], ['v', 'w'])


def test_reasons_and_bad_conditions() -> None:
    site = Site()
    site.there.add('a')
    site.put({'uid': 'x', 'after': ['a']}, {'uid': 'y', 'after': {'x': 'failed'}}, {'uid': 'z', 'after': [3.5, None]},
             {'uid': 'w', 'after': {'a': 'soon'}})
    site.ended('a', states.FAILED)
    site.later[0]()
    assert [uid for uid, _ in site.ready] == ['y']
    reasons = {uid: reason for (uid, _), reason in site.hopeless}
    assert reasons['x'] == 'x was not run: it is after a, which is FAILED'
    assert reasons['z'].startswith('z was not run: its `after` is not a list of tasks or uids')
    assert reasons['w'].startswith('w was not run: its `after` is not a list of tasks or uids')


def test_files_of_other_tasks_are_looked_for_where_these_have_run() -> None:
    site = Site()
    site.there.add('near')
    sources = ['task://near/a/b', 'task://far/c', 'task:///own', 'task://sub/d', '/e']
    site.put({'uid': 'x', 'after': ['near', 'far'], 'input_staging': [{'source': source, 'flags': 1}
                                                                     for source in sources]})
    site.ended('near', states.DONE)
    site.gate.followed([Update('far', states.DONE, {'pilot': 'pilot.0001'})])
    site.later[0]()
    assert site.ready[0][1]['input_staging'] == [{'source': source, 'flags': 1} for source in (
        'pilot:///near/a/b', 'file:///session/pilot.0001/far/c', 'task:///own', 'task://sub/d', '/e')]


def test_files_of_many_other_tasks_are_looked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    site, looked = Site(), []

    def noted(*arguments: Any) -> list[dict[str, Any]]:
        looked.append(arguments)
        return elsewhere(*arguments)

    monkeypatch.setattr(gate, 'elsewhere', noted)
    many = [f'far.{number}' for number in range(100)]
    staged = [{'source': f'task://{uid}/a'} for uid in many]
    site.put({'uid': 'x', 'after': many, 'input_staging': [*staged, {'source': 'pilot:///far.1'}]})
    site.gate.followed([Update(uid, states.DONE, {'pilot': f'pilot.{uid}'}) for uid in many])
    site.later[0]()
    assert site.ready[0][1]['input_staging'] == [
        *({'source': f'file:///session/pilot.{uid}/{uid}/a'} for uid in many), {'source': 'pilot:///far.1'}]
    assert len(looked) == 1


def test_files_of_a_task_that_did_not_run_cannot_be_had() -> None:
    site = Site()
    staged = [{'source': 'task://cached/a', 'flags': 1}]
    site.put({'uid': 'x', 'after': ['cached'], 'input_staging': staged}, {'uid': 'y', 'after': ['x']},
             {'uid': 'z', 'after': ['cached'], 'input_staging': [{'source': 'pilot:///a', 'flags': 1}]},
             {'uid': 'w', 'after': ['ran'], 'input_staging': [{'source': 'task://ran/a', 'flags': 1}]})
    site.gate.followed([Update('cached', states.DONE, {'pilot': ''}), Update('ran', states.DONE, {'pilot': 'here'})])
    site.later[0]()
    assert {uid for uid, _ in site.ready} == {'z', 'w'}
    reason = 'was not run: it needs files of cached, which has no sandbox, as its result is from the cache'
    assert {uid: why for (uid, _), why in site.hopeless} == {
        'x': f'x {reason}', 'y': f'y was not run: it is after x, which {reason}'}
    assert len(site.gate) == 0
