"""Calls of the application to an agent: every call is answered once."""

from __future__ import annotations

from typing import Any

from rp_agent.calls import Call, Calls, answer_task
from rp_agent.task import AgentTask
from rp_api import states

Answer = tuple[str, Any, str | None, str]


class Caller:
    """Procedures, and the answers of their calls in order."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.answers: list[Answer] = []

    def call(self, name: str, *args: Any, uid: str = 'call', **kwargs: Any) -> None:
        self.calls.call(uid, name, args, kwargs, self._answered)

    def _answered(self, call: Call, value: Any, reason: str | None, detail: str) -> None:
        self.answers.append((call.uid, value, reason, detail))


def test_a_call_is_answered_once_at_once_or_later() -> None:
    caller = Caller()
    open_calls: list[Call] = []
    caller.calls.register('add', lambda call: call.done(sum(call.args) + call.kwargs['more']))
    caller.calls.register('later', open_calls.append)
    caller.call('add', 1, 2, more=3)
    caller.call('later', uid='first')
    caller.call('later', uid='second')
    for call in reversed(open_calls):
        call.done(call.uid.upper())
        call.fail('never told')
    assert caller.answers == [('call', 6, None, ''), ('second', 'SECOND', None, ''), ('first', 'FIRST', None, '')]


def test_a_call_fails_by_itself_by_an_exception_and_without_a_procedure() -> None:
    caller = Caller()
    caller.calls.register('fails', lambda call: call.fail('no compiler', 'gcc: not found'))
    caller.calls.register('raises', lambda call: call.args[0])
    for name in ('fails', 'raises', 'unknown'):
        caller.call(name)
    assert caller.answers == [
        ('call', None, 'no compiler', 'gcc: not found'),
        ('call', None, 'IndexError: tuple index out of range', ''),
        ('call', None, "the agent has no procedure 'unknown': it has fails, raises", '')]


def test_open_calls_are_cancelled() -> None:
    caller = Caller()
    stopped = []

    def start(call: Call) -> None:
        call.when_cancelled(lambda: stopped.append(call.uid))

    caller.calls.register('start', start)
    for uid in 'abc':
        caller.call('start', uid=uid)
    caller.calls.cancel(['b', 'unknown'], 'cancelled')
    caller.calls.cancel_all('the pilot has ended')
    assert stopped == ['b', 'a', 'c']
    assert [(uid, reason) for uid, _, reason, _ in caller.answers] == [
        ('b', 'cancelled'), ('a', 'the pilot has ended'), ('c', 'the pilot has ended')]


def test_the_answer_is_the_result_of_a_task() -> None:
    good, bad = (AgentTask(uid, {}, 'pilot.0000', '') for uid in ('good', 'bad'))
    answer_task(good, [1], None, '')
    answer_task(bad, None, 'no compiler', 'gcc: not found')
    assert (good.target_state, good.return_value) == (states.DONE, [1])
    assert (bad.target_state, bad.exception, bad.exception_detail) == (
        states.FAILED, 'no compiler', 'gcc: not found')
