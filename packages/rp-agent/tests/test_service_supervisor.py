"""The supervisor of services: what it does with their states and their ends, and what it tells their users."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rp_agent.components.stage import Flow, Owner
from rp_agent.prerequisites.gate import Gate
from rp_agent.services.supervisor import PORT, Supervisor
from rp_agent.task import VARIABLES, AgentTask
from rp_api import states
from rp_api.constants import AGENT_SERVICE, TASK_SERVICE
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer

RESTART = {'attempts': 1, 'delay': 0.0, 'factor': 1.0, 'limit': 30.0}


class Around(Flow, Owner):
    """A supervisor with a gate, and all that it has done to tasks and to the pilot."""

    def __init__(self, sandbox: Path) -> None:
        self.loop = Loop()
        self.sandbox = sandbox
        self.done: list[str] = []
        self.reports: list[dict[str, Any]] = []
        self.started: list[AgentTask] = []
        self.failed: dict[str, str | None] = {}
        self.gate = Gate('gate', Tracer(None, 'gate'), self, self, self.call_later)
        self.supervisor = Supervisor(self.loop, self.gate, self, self, lambda: self.done.append('endpoint'),
                                     lambda: '127.0.0.1')

    def call_later(self, delay: float, function: Callable[..., object], *args: Any) -> None:
        self.loop.call_later(delay, function, *args)

    def schedule(self, tasks: list[AgentTask]) -> None:
        self.started += tasks

    def end_runs(self, tasks: Sequence[AgentTask]) -> None:
        self.note('end', *tasks)

    def start_again(self, task: AgentTask) -> None:
        self.note('again', task)

    def stage_output(self, tasks: list[AgentTask]) -> None:
        self.note('leave', *tasks)

    def report(self, task: AgentTask, info: dict[str, Any]) -> None:
        self.reports.append(info)

    def finish(self, state: str, reason: str, *, by_user: bool = False) -> None:
        self.done.append(f'{state}: {reason}')

    def note(self, what: str, task: AgentTask) -> None:
        self.done.append(f'{what} {task.uid}')
        self.loop.stop()

    def leave(self, tasks: list[AgentTask]) -> None:
        self.failed.update((task.uid, task.exception) for task in tasks)

    def add(self, uid: str, mode: str = TASK_SERVICE, **service: Any) -> AgentTask:
        """A service that is executing."""
        task = self.wait(uid, mode, **service)
        for state in (states.AGENT_EXECUTING_PENDING, states.AGENT_EXECUTING):
            assert self.supervisor.visible([task], state) == [task]
        return task

    def wait(self, uid: str, mode: str = TASK_SERVICE, **service: Any) -> AgentTask:
        """A service that waits for resources."""
        task = AgentTask(uid, {'mode': mode, 'executable': 'x', 'service': {'probe': {'signal': True}, **service}},
                         'pilot.0000', str(self.sandbox))
        self.supervisor.add([task])
        return task

    def user(self, *services: str) -> AgentTask:
        """A task that needs services."""
        task = AgentTask('user', {'executable': 'x', 'services': list(services)}, 'pilot.0000', str(self.sandbox))
        self.gate.put([task])
        return task

    def exit(self, task: AgentTask, code: int | None = 1) -> bool:
        """End the run of a service; return whether the supervisor keeps its task."""
        task.exit_code = code
        task.target_state = states.FAILED if code != 0 else states.DONE
        if code is None:
            task.exception_detail = 'node n1 is lost'
        return not self.supervisor.left(self.supervisor.executed([task]))


@pytest.fixture
def around(tmp_path: Path) -> Iterator[Around]:
    made = Around(tmp_path)
    made.loop.call_later(30, made.loop.stop)
    yield made
    made.supervisor.stop('the test is over')
    made.supervisor.close()
    made.loop.close()


def test_a_service_of_the_pilot_that_has_done_its_work_keeps_nobody_waiting(around: Around) -> None:
    around.supervisor.of_pilot(['one', 'two'])
    one, _ = around.add('one', AGENT_SERVICE, probe={'runs': True}), around.add('two', AGENT_SERVICE)
    user = around.user()
    around.supervisor.signal('two')
    assert not around.started
    assert not around.exit(one, 0)
    assert (one.target_state, around.started) == (states.DONE, [user])
    assert around.reports == []   # the application does not know them


def test_a_service_of_the_pilot_that_fails_ends_the_pilot(around: Around) -> None:
    around.supervisor.of_pilot(['one'])
    one = around.add('one', AGENT_SERVICE)
    assert not around.exit(one)
    reason = 'service one has failed: it ended before it was ready: exit code: 1'
    assert around.done[1:] == [f'FAILED: has lost its service one: {reason}']


def test_a_service_runs_again_after_the_loss_of_its_node(around: Around) -> None:
    task = around.add('one', restart=RESTART)
    around.supervisor.signal('one', 'here')
    assert around.exit(task, None)
    around.loop.run()
    assert around.done == ['endpoint', 'again one']
    assert around.supervisor.visible([task], states.AGENT_SCHEDULING) == []   # its state does not go back
    assert [report['info'] for report in around.reports] == ['here', None]
    assert around.reports[1]['waits_for']['text'] == 'restart 1 of 1 in 0 s: it ended: node n1 is lost'


def test_a_file_that_cannot_be_put_aside_prevents_the_restart(around: Around) -> None:
    (around.sandbox / 'ready').touch()
    (around.sandbox / 'ready.previous' / 'x').mkdir(parents=True)
    task = around.add('one', restart=RESTART, probe={'file': 'ready'})
    assert around.exit(task)
    around.loop.run()
    assert around.done == ['leave one']
    assert task.target_state == states.FAILED
    assert 'it cannot be started again: ' in str(task.exception)


def test_users_of_a_name_fail_with_its_last_instance(around: Around) -> None:
    first, second = around.add('one', name='db'), around.add('two', name='db')
    user = around.user('db')
    assert not around.exit(first)
    assert around.failed == {}
    assert not around.exit(second)
    assert around.failed == {'user': 'service db has failed: it ended before it was ready: exit code: 1'}
    around.wait('three', name='db')   # a new one is waited for
    around.failed.clear()
    user.target_state = None
    around.gate.put([user])
    assert around.failed == {}


def test_exit_code_0_is_no_failure_of_a_service_that_was_ready(around: Around) -> None:
    task = around.add('one')
    around.supervisor.signal('one')
    assert not around.exit(task, 0)
    assert task.target_state == states.DONE
    around.user('one')
    assert around.failed == {'user': 'service one has ended as DONE'}


def test_a_service_has_its_port_besides_what_it_gets_from_others(around: Around) -> None:
    around.supervisor.register('other', 'there')
    task = around.wait('one', port=4711)
    task.description['services'] = ['other']
    around.gate.put([task])
    around.supervisor.visible([task], states.AGENT_EXECUTING_PENDING)
    assert task.extra[VARIABLES] == {'RP_INFO_OTHER': 'there', PORT: '4711'}


def test_a_service_with_a_router_is_ready_when_the_router_is(around: Around) -> None:
    around.add('one', name='web', port=80, router={'retry_unsafe': False})
    around.supervisor.signal('one', 'direct')
    user = around.user('web')
    assert not around.started
    around.supervisor.registry.set_endpoint('web', 'http://router')
    assert (around.started, user.extra[VARIABLES]) == ([user], {'RP_INFO_WEB': 'http://router'})
    assert [report['info'] for report in around.reports] == ['http://router']


@pytest.mark.parametrize('odd', [{'service': 3}, {'service': {'port': 'x'}}, {'info_pattern': 'x'}, {'stdout': [1]},
                                 {'startup_timeout': 'soon'}, {'service': {'probe': {'pattern': 'stdout:('}}}])
def test_services_that_no_client_has_checked_fail_alone(around: Around, odd: dict[str, Any]) -> None:
    task = AgentTask('odd', {'mode': TASK_SERVICE, 'executable': 'x', **odd}, 'pilot.0000', str(around.sandbox))
    around.supervisor.add([task])
    assert task.target_state == states.FAILED
    assert task.exception_detail == 'odd is no valid service'
    assert around.supervisor.visible([task], states.AGENT_EXECUTING) == [task]


def test_only_services_that_run_report_that_they_are_ready(around: Around) -> None:
    around.wait('one')
    for uid in ('one', 'unknown'):
        with pytest.raises(ValueError, match=f'{uid} is no service of this pilot that runs'):
            around.supervisor.signal(uid)
