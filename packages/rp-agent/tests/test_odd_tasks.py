"""Tasks that nobody has foreseen: whatever serving one of them raises fails that task, and nothing else."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_support import real
from pipeline_support import LAYOUTS, Agent

from rp_agent.reporting.updates import packed
from rp_agent.task import DEFAULTS, AgentTask
from rp_api import states
from rp_api.constants import COPY
from rp_api.errors import MAX_ERROR_CHARS, sentence
from rp_api.staging import expand

ODD: list[Any] = [
    None, 5, -1, 2**63 - 1, -2**63, 0.5, math.nan, math.inf, True, 'x', '', 'a\0b', '\udcff', b'\xff', 'x' * 5000, [],
    ['a', 5], [None], [[[]]], {}, {'a': [1]}, {1: 2}]
"""Values that a description may have on the wire, whatever a client would have made of them."""

ELSEWHERE = ('uid', 'raptor_id', 'mode', 'named_env', 'services', 'after')
"""Attributes by which a task is none for an executor, or may wait for others for as long as the pilot lives."""

ERRORS = [RecursionError('too deep'), UnicodeEncodeError('utf-8', '\ud800', 0, 1, 'odd'), OSError(5, 'Input/output')]
OTHERS = [MemoryError(), OverflowError('too large'), ValueError('embedded null byte'), KeyError('odd')]


@pytest.mark.parametrize(('spawner', 'layout'), [
    ('POPEN', 'inline'), ('SHELL', 'inline'), ('SIMULATED', 'inline'), ('POPEN', 'everything in one sub-agent')])
def test_any_value_of_any_attribute(tmp_path: Path, spawner: str, layout: str) -> None:
    """Each task ends, with a reason if it has failed, and the pilot goes on."""
    platform = {'agent_spawner': spawner, 'agent_config': 'default', 'system_architecture': {}}
    odd = {f'odd.{name}.{number}': {'timeout': 20.0} | {name: value}
           for name in DEFAULTS if name not in ELSEWHERE for number, value in enumerate(ODD)}
    with real(tmp_path, agent={'platform': platform, 'agent': LAYOUTS[layout]}) as (application, agent):
        for uid, description in odd.items():
            application.submit([uid], **description)
        application.until_left(odd)
        application.submit(['ordinary'])
        application.until_state(['ordinary'], states.DONE)
        assert agent.process.poll() is None
        assert {update.state for update in application.pilots} == {states.PMGR_ACTIVE}
    for uid in odd:
        _, state, info = application.tasks[uid]
        if states.FAILED in (state, (info or {}).get('target_state')):
            assert info is not None
            assert info['exception'], uid


Culprit = dict[str, Any]
STAGED_IN: Culprit = {'input_staging': expand({'source': 'pilot:///there', 'action': COPY})}
STAGED_OUT: Culprit = {'output_staging': expand({'source': 'made', 'target': 'pilot:///out', 'action': COPY})}
FAILING: Culprit = {'executable': '/bin/false'}
SCRIPT: Culprit = {'pre_exec': ['true'], 'timeout': 20.0}

STEPS: dict[str, tuple[str, Culprit]] = {
    'what was there before': ('rp_agent.stager.component:_names', {'sandbox': 'own'}),
    'input staging': ('rp_agent.stager.component:stage', STAGED_IN),
    'what a policy makes of it': ('rp_agent.scheduler.policies.continuous:Continuous.request', {}),
    'its priority': ('rp_agent.scheduler.policies.continuous:Continuous.priority', {}),
    'sandbox': ('rp_agent.executor.popen.component:make_sandbox', SCRIPT),
    'plan': ('rp_agent.executor.popen.component:plan', SCRIPT),
    'scripts': ('rp_agent.executor.popen.component:write_scripts', SCRIPT),
    'start': ('rp_agent.executor.starter:Starter._start', SCRIPT),
    'after the start': ('rp_agent.executor.popen.deferred:Deferred.started', SCRIPT),
    'time limit': ('rp_agent.executor.run:Deadlines._limit', SCRIPT),
    'end of a process': ('rp_agent.executor.popen.reaper:Reaper._settle', {}),
    'exit code': ('rp_agent.executor.popen.component:outcome.exit_code_of_task', FAILING),
    'explanation': ('rp_agent.executor.popen.component:outcome.explain', FAILING),
    'look at the sandbox': ('rp_agent.stager.component:look', {}),
    'end of its output': ('rp_agent.stager.component:tail', {'executable': '/bin/echo', 'arguments': ['x']}),
    'output staging': ('rp_agent.stager.component:stage', STAGED_OUT),
    'cleanup': ('rp_agent.stager.component:remove_sandbox', {'cleanup': True}),
}


def culprit_among(arguments: tuple[Any, ...]) -> bool:
    """Whether a call is about the task that nothing goes well for."""
    return any('culprit' in str(getattr(getattr(each, 'task', each), 'uid', each)) for each in arguments)


def sabotage(monkeypatch: pytest.MonkeyPatch, where: str, error: Exception) -> list[str]:
    """Have a function raise when it is called for the culprit; gives the list of such calls."""
    module, _, path = where.partition(':')
    *owners, name = path.split('.')
    owner: Any = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    real_one: Callable[..., Any] = getattr(owner, name)
    raised: list[str] = []

    def function(*arguments: Any, **named: Any) -> Any:
        if culprit_among(arguments) or culprit_codes(arguments):
            raised.append(name)
            raise error
        return real_one(*arguments, **named)

    monkeypatch.setattr(owner, name, function)
    return raised


def culprit_codes(arguments: tuple[Any, ...]) -> bool:
    """The same for functions that only get the exit codes of a task: the culprit is the only one that ends with 1."""
    return bool(arguments) and isinstance(arguments[0], dict) and 1 in arguments[0].values()


@pytest.mark.parametrize(('step', 'error'), [
    *itertools.product(STEPS, ERRORS), *itertools.product(['plan', 'end of a process', 'cleanup'], OTHERS)],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__)
def test_each_step_of_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception) -> None:
    """One task in the midst of others that are like it: they run, before and after."""
    where, description = STEPS[step]
    (tmp_path / 'there').touch()
    agent = Agent(tmp_path)
    raised = sabotage(monkeypatch, where, error)
    try:
        others = [agent.task(f'task.{number}') for number in range(6)]
        culprit = agent.task('culprit', **description)
        agent.run(*others[:3], culprit, *others[3:])
    finally:
        agent.close()
    assert raised
    assert sorted(task.uid for task in agent.out) == sorted(['culprit', *(task.uid for task in others)])
    assert culprit.target_state == states.FAILED
    assert culprit.exception
    assert {task.target_state for task in others} == {states.DONE}


@pytest.mark.parametrize('value', [2**64, {1, 2}, '\ud800', [[[]]]])
@pytest.mark.parametrize('state', [states.DONE, states.FAILED])
def test_result_that_cannot_be_sent(value: Any, state: str) -> None:
    if value == [[[]]]:
        for _ in range(2000):
            value = [value]
    task = AgentTask('task', {'executable': 'x'}, 'pilot', '/sandbox')
    task.state, task.target_state = states.TMGR_STAGING_OUTPUT_PENDING, state
    task.return_value = value
    update = packed(task)
    assert update.info is not None
    assert states.FAILED in (update.state, update.info['target_state'])
    assert update.info['exception_detail'] == 'the result of the task cannot be sent'


def test_sentences_can_be_sent() -> None:
    assert sentence(UnicodeEncodeError('utf-8', 'a\ud800', 1, 2, 'odd')).encode()
    assert sentence(ValueError('a\ud800')) == 'ValueError: a\\ud800'
    assert sentence(OSError(2, 'No such file', 'x')) == "[Errno 2] No such file: 'x'"
    assert sentence(MemoryError()) == 'MemoryError: '
    assert len(sentence(ValueError('x' * 10 * MAX_ERROR_CHARS))) < MAX_ERROR_CHARS + 100


def test_agent_with_a_defect_ends_in_order(tmp_path: Path) -> None:
    """What is wrong in what tasks share is no task's fault: the pilot ends, its tasks do, and all say why."""
    setup = ('from rp_agent.scheduler.component import Scheduler; before = Scheduler.release; '
             'exec("def release(self, tasks):\\n before(self, tasks)\\n if not Scheduler.broken:\\n'
             '  Scheduler.broken = True\\n  raise LookupError(\'miscounted\')"); '
             'Scheduler.broken = False; Scheduler.release = release')
    with real(tmp_path, setup=setup) as (application, agent):
        application.submit(['first', 'second'], executable='/bin/sleep', arguments=['100'])
        application.until_state(['first', 'second'], states.AGENT_EXECUTING)
        application.submit(['third'], executable='/bin/true')
        application.command(cmd='cancel_tasks', uids=['first'])
        application.until_left(['second', 'third'])
        application.until(lambda: application.pilots[-1].state == states.FAILED, 'the end of the pilot')
        assert agent.wait() == 1
        assert 'LookupError: miscounted' in agent.log()
    info = application.pilots[-1].info
    assert info is not None
    assert 'defect of its agent: LookupError: miscounted' in info['exception']
