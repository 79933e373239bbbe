"""The gate before the scheduler: which tasks wait, what they are told, and how they leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rp_agent.components.stage import Flow, Owner
from rp_agent.prerequisites.gate import ENVIRONMENT, PILOT, SERVICE, Gate, Need
from rp_agent.task import VARIABLES, AgentTask, has_needs
from rp_api import states
from rp_profiling.write.tracer import Tracer

NUMPY = Need(ENVIRONMENT, 'numpy')
REDIS = Need(SERVICE, 'redis')


class Around(Flow, Owner):
    """A gate, the tasks that came out of it, and the texts that its tasks were reported with."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.failed: dict[str, tuple[str | None, str | None]] = {}
        self.texts: dict[str, list[str]] = {}
        self.later: list[Callable[[], object]] = []
        self.notices: list[str] = []
        self.gate = Gate('gate', Tracer(None, 'gate'), self, self, self.call_later)

    def call_later(self, delay: float, function: Callable[..., object], *args: Any) -> None:
        self.later.append(lambda: function(*args))

    def schedule(self, tasks: list[AgentTask]) -> None:
        self.out += [task.uid for task in tasks]

    def leave(self, tasks: list[AgentTask]) -> None:
        self.failed.update((task.uid, (task.target_state, task.exception)) for task in tasks)

    def waits(self, tasks: Sequence[AgentTask], kind: str, text: str, state: str = states.AGENT_SCHEDULING) -> None:
        for task in tasks:
            self.texts.setdefault(task.uid, []).append(text)

    def notice(self, sentence: str) -> None:
        self.notices.append(sentence)

    def add(self, uid: str, **description: Any) -> AgentTask:
        task = AgentTask(uid, {'executable': '/bin/true', **description}, 'pilot.0000', '/nowhere')
        self.gate.put([task])
        return task


def test_only_environments_and_services_are_needs() -> None:
    def needs(**description: Any) -> bool:
        return has_needs(AgentTask('t', description, 'p', '/nowhere'))

    assert not needs()
    assert not needs(named_env='', services=[])
    assert needs(named_env='numpy')
    assert needs(named_env='rp')   # its variables are provided, too
    assert needs(services=['redis'])


@pytest.mark.parametrize(('description', 'text', 'notice'), [
    ({'services': ['redis']}, 'service redis (nothing starts it)', 'waits for service redis, and nothing starts it'),
    ({'named_env': 'numpy'}, 'environment numpy (nothing builds it)',
     'waits for environment numpy, and nothing builds it')])
def test_users_are_told_that_nothing_provides_what_a_task_waits_for(description: dict[str, Any], text: str,
                                                                     notice: str) -> None:
    around = Around()
    around.add('t', **description)
    around.add('u', **description)
    assert len(around.later) == 1   # for both tasks
    around.later.pop()()
    assert around.texts['t'] == around.texts['u'] == [text.partition(' (')[0], text]
    assert around.notices == [f't and 1 more {notice.replace("waits", "wait")}']
    around.add('v', **description)
    assert around.texts['v'] == [text]
    need = Need(SERVICE, 'redis') if 'services' in description else NUMPY
    around.gate.expect(need, 'is coming')
    assert around.texts['t'][-1] == f'{need} (is coming)'
    around.gate.provide(need)
    assert set(around.out) == {'t', 'u', 'v'}


def test_what_is_provided_in_time_is_not_told() -> None:
    around = Around()
    around.add('t', services=['redis'])
    around.gate.provide(Need(SERVICE, 'redis'))
    around.later.pop()()
    assert around.notices == []
    around.gate.withdraw(Need(SERVICE, 'redis'))   # gone again, and nothing is said of what is on its way
    around.add('u', services=['redis'])
    around.gate.expect(Need(SERVICE, 'redis'), 'is starting')
    around.later.pop()()
    assert around.notices == []


def test_a_task_waits_for_everything_that_it_needs_and_says_for_what() -> None:
    around = Around()
    around.gate.expect(NUMPY, 'is being built')
    task = around.add('t', named_env='numpy', services=['redis'])
    assert (around.out, task.state, around.gate.held_back) == ([], states.AGENT_SCHEDULING, 1)
    around.gate.provide(NUMPY)
    assert around.out == []
    around.gate.provide(REDIS, lambda task: {'RP_INFO_REDIS': f'for {task.uid}'})
    assert around.out == ['t']
    assert around.texts == {'t': ['environment numpy (is being built)', 'service redis', '']}
    assert task.extra[VARIABLES] == {'RP_INFO_REDIS': 'for t'}
    assert around.gate.held_back == 0


def test_what_is_there_already_is_not_waited_for() -> None:
    around = Around()
    around.gate.provide(NUMPY)
    around.add('t', named_env='numpy')
    assert (around.out, around.texts) == (['t'], {})


def test_a_need_that_is_withdrawn_is_waited_for_again() -> None:
    around = Around()
    around.gate.provide(REDIS)
    around.gate.withdraw(REDIS, 'is started again')
    around.add('t', services=['redis'])
    assert (around.out, around.texts) == ([], {'t': ['service redis (is started again)']})
    around.gate.provide(REDIS)
    assert around.out == ['t']


def test_tasks_fail_with_a_need_and_later_ones_too_until_it_is_provided() -> None:
    around = Around()
    early = around.add('early', named_env='numpy')
    around.add('other', named_env='scipy')
    around.gate.fail(NUMPY, 'no compiler', 'gcc: not found')
    around.add('late', named_env='numpy')
    assert around.failed == dict.fromkeys(['early', 'late'], (states.FAILED, 'no compiler'))
    assert early.exception_detail == 'gcc: not found'
    around.gate.provide(NUMPY)
    around.add('again', named_env='numpy')
    assert (around.out, around.gate.held_back) == (['again'], 1)


def test_a_common_need_holds_those_tasks_that_it_concerns() -> None:
    around = Around()
    services = Need(PILOT, 'services')
    around.gate.require(services, lambda task: task.uid != 'service')
    plain = AgentTask('t', {'executable': '/bin/true'}, 'pilot.0000', '/nowhere')
    assert around.gate.admitted([plain]) == []
    around.add('service')
    assert (around.out, around.texts) == (['service'], {'t': ['pilot services']})
    around.gate.provide(services)
    assert around.gate.admitted([plain]) == [plain]
    assert around.out == ['service', 't']


def test_a_common_need_that_fails_fails_the_tasks_that_wait() -> None:
    around = Around()
    services = Need(PILOT, 'services')
    around.gate.require(services, lambda task: True)
    around.add('t')
    around.gate.fail(services, 'redis has failed', '')
    assert around.failed == {'t': (states.FAILED, 'redis has failed')}


@pytest.mark.parametrize('description', [
    {'named_env': 5}, {'named_env': ['a']}, {'services': 'redis'}, {'services': [5]}, {'services': {'a': 1}}])
def test_needs_that_are_no_names_fail_their_task_alone(description: dict[str, Any]) -> None:
    around = Around()
    around.add('good', named_env='numpy')
    assert has_needs(around.add('bad', **description))
    state, reason = around.failed['bad']
    assert state == states.FAILED
    assert 'must be' in str(reason)
    around.gate.provide(NUMPY)
    assert around.out == ['good']


def test_waiting_tasks_are_cancelled() -> None:
    around = Around()
    for uid in 'abc':
        around.add(uid, named_env='numpy')
    around.gate.cancel(['a', 'unknown'])
    assert around.failed == {'a': (states.CANCELED, 'cancelled while it waited for its prerequisites')}
    around.gate.stop('the pilot has ended')
    assert around.failed['c'] == (states.CANCELED, 'the pilot has ended')
    around.gate.provide(NUMPY)
    assert (around.out, around.gate.held_back) == ([], 0)


def test_tasks_that_have_left_are_checked_again() -> None:
    around = Around()
    around.gate.provide(REDIS, lambda task: {'RP_INFO_REDIS': 'first'})
    task = around.add('t', services=['redis'])
    around.gate.withdraw(REDIS)
    assert not around.gate.recheck(task)
    around.gate.provide(REDIS, lambda task: {'RP_INFO_REDIS': 'second'})
    assert around.gate.recheck(task)
    assert task.extra[VARIABLES] == {'RP_INFO_REDIS': 'second'}


def test_a_need_that_has_failed_is_waited_for_again_when_it_is_withdrawn() -> None:
    around = Around()
    around.gate.fail(REDIS, 'gone', 'for good')
    around.gate.withdraw(REDIS, 'is starting')
    around.add('t', services=['redis'])
    assert (around.out, around.failed, around.texts) == ([], {}, {'t': ['service redis (is starting)']})
