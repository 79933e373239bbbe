"""Environments at the gate: by calls, after failures, after a restart, and for containers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from environment_support import Pilot

from rp_agent.calls import Call, Calls
from rp_agent.components.stage import Flow, Owner
from rp_agent.environments.preparation import Preparation
from rp_agent.prerequisites.gate import Gate
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer


class Around(Pilot, Flow):
    """A preparation with a gate, the tasks that came out of it, and answers to calls by uid."""

    def __init__(self, base: Path) -> None:
        self.loop = Loop()
        self.sandbox = base / 'pilot.0000'
        self.sandbox.mkdir(exist_ok=True)
        self.out: list[AgentTask] = []
        self.failed: dict[str, str | None] = {}
        self.notices: list[str] = []
        self.answers: dict[str, Any] = {}
        self.gate = Gate('gate', Tracer(None, 'gate'), self, Owner(), lambda delay, function, *args: None)
        names = ('session', 'resource', 'client_sandbox', 'resource_sandbox', 'session_sandbox', 'registry_address')
        config = {**dict.fromkeys(names, str(base)), 'pilot': 'pilot.0000', 'pilot_sandbox': str(self.sandbox),
                  'cpus': (), 'gpu_ids': (), 'profile': False, 'platform': {}, 'environment': dict(os.environ)}
        self.preparation = Preparation(config, self.loop, self.gate, self.notices.append)
        self.calls = Calls()
        self.calls.register('prepare_env', self.preparation.answer)

    def schedule(self, tasks: list[AgentTask]) -> None:
        self.out += tasks

    def leave(self, tasks: list[AgentTask]) -> None:
        self.failed.update((task.uid, task.exception) for task in tasks)

    def call(self, uid: str, *args: Any, **kwargs: Any) -> None:
        self.calls.call(uid, 'prepare_env', args, kwargs, self._answered)

    def _answered(self, call: Call, value: Any, reason: str | None, detail: str) -> None:
        self.answers[call.uid] = reason or ''

    def task(self, uid: str, **description: Any) -> AgentTask:
        task = AgentTask(uid, {'executable': '/bin/true', **description}, 'pilot.0000', '/nowhere')
        self.gate.put([task])
        return task

    def close(self) -> None:
        self.preparation.stop('the test has ended')
        self.preparation.close()
        self.loop.close()


@pytest.fixture
def around(tmp_path: Path) -> Iterator[Around]:
    made = Around(tmp_path)
    yield made
    made.close()


SHELL: dict[str, Any] = {'type': 'shell', 'pre_exec': ['export A=1']}


def test_a_call_is_answered_when_tasks_may_start(around: Around) -> None:
    task = around.task('t', named_env='e')
    around.call('a', 'e', SHELL)
    around.call('b', env_name='e', env_spec=SHELL)
    around.call('c', 'e', {'type': 'shell'})
    assert 'another specification' in around.answers.pop('c')
    around.until(lambda: len(around.answers) == 2)
    assert around.answers == {'a': '', 'b': ''}
    assert around.out == [task]
    around.call('d', 'e', SHELL)
    assert around.answers['d'] == ''


@pytest.mark.parametrize(('args', 'words'), [(('e',), 'env_spec'), (('e', {'type': 'nix'}), 'nix'),
                                             (('rp', {}), 'always exists'), ((['e'], {}), 'a string')])
def test_a_wrong_call_fails_at_once(around: Around, args: Any, words: str) -> None:
    around.call('a', *args)
    assert words in around.answers['a']
    around.task('t', named_env='e')
    assert not around.failed   # it waits for a right one


def test_tasks_fail_with_an_environment_and_wait_for_the_next_attempt(around: Around, tmp_path: Path) -> None:
    around.preparation.prepare_all({'e': {'type': 'shell', 'pre_exec': [f'test -e {tmp_path}/late']}})
    around.task('early', named_env='e')
    around.until(lambda: around.failed)
    around.task('between', named_env='e')
    assert list(around.failed) == ['early', 'between']
    assert around.notices == [around.failed['early']]
    assert "environment 'e' cannot be built: exit code 1 of: test" in around.notices[0]
    (tmp_path / 'late').touch()
    around.call('a', 'e', {'type': 'shell', 'pre_exec': [f'test -e {tmp_path}/late']})
    late = around.task('late', named_env='e')
    around.until(lambda: around.answers)
    assert around.out == [late]


def test_the_next_run_of_a_job_has_the_environments_of_the_run_before(around: Around, tmp_path: Path) -> None:
    around.call('a', 'e', SHELL)
    around.until(lambda: around.answers)
    (around.sandbox / 'env' / 'rp_named_env.broken.json').write_text('{"name": ')
    again = Around(tmp_path)
    again.preparation.restore()
    task = again.task('t', named_env='e')
    again.until(lambda: again.out)
    assert again.out == [task]
    again.close()


def test_tasks_get_the_container_of_their_environment(around: Around) -> None:
    around.call('a', 'e', {'type': 'container', 'container': 'mine.sif'})
    around.until(lambda: around.answers)
    assert around.task('t', named_env='e').description['container'] == {'image': 'mine.sif'}
    own = {'image': 'own.sif', 'binds': ['/data']}
    assert around.task('u', named_env='e', container=own).description['container'] == own
