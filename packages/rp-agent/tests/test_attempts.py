"""Tasks between two attempts, and their files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rp_agent.components.killed import FAILURE_HOLD_S
from rp_agent.components.stage import Flow, Owner
from rp_agent.pipeline import attempts
from rp_agent.pipeline.attempts import Attempts
from rp_agent.task import EXITED, HISTORY, UNSTARTED, AgentTask
from rp_api import states
from rp_profiling.write.tracer import Tracer


class Timer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Site(Flow, Owner):
    """The part for attempts; its timers and its work in threads run when the test says so."""

    def __init__(self) -> None:
        self.ended: list[AgentTask] = []
        self.refused: list[AgentTask] = []
        self.again: list[AgentTask] = []
        self.told: list[dict[str, Any]] = []
        self.timers: list[Timer] = []
        self.work: list[tuple[Callable[[], Any], Callable[[Any], object], Callable[[Any], object]]] = []
        self.attempts = Attempts(self, self._offload, Tracer(None, ''), {'mem_per_rank': 1000}, self, self)  # type: ignore[arg-type]

    def put(self, tasks: list[AgentTask]) -> None:
        """Tasks have run."""
        self.ended += self.attempts.concluded(tasks)

    def stage_output(self, tasks: list[AgentTask]) -> None:
        self.ended += tasks

    def leave(self, tasks: list[AgentTask]) -> None:
        self.refused += tasks

    def attempt(self, task: AgentTask) -> None:
        self.again.append(task)

    def report_attempt(self, task: AgentTask, info: dict[str, Any]) -> None:
        self.told.append(info)

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> Timer:
        self.timers.append(Timer(lambda: callback(*args)))
        return self.timers[-1]

    def _offload(self, *work: Any) -> None:
        self.work.append(work)

    def pass_time(self) -> None:
        timers, self.timers = self.timers, []
        for timer in timers:
            if timer.callback is not None:
                timer.callback()

    def do_work(self) -> None:
        jobs, self.work = self.work, []
        for work, done, failed in jobs:
            try:
                result = work()
            except Exception as error:
                failed(error)
            else:
                done(result)


@pytest.fixture
def site() -> Site:
    return Site()


def failed(directory: Path, **description: Any) -> AgentTask:
    """A task that has failed with exit code 3."""
    sandbox = directory / 'task.1'
    sandbox.mkdir(exist_ok=True)
    task = AgentTask('task.1', {'retries': 1, **description}, 'pilot', str(sandbox))
    task.exit_code = 3
    task.fail("RuntimeError('task failed')", 'exit code: 3', 'exit', sentence='exit code: 3')
    return task


def test_next_attempt(site: Site, tmp_path: Path) -> None:
    task = failed(tmp_path, retry_with={'mem_per_rank': '*2', 'timeout': 5.0}, mem_per_rank=600)
    shared = task.description
    site.put([task])
    assert site.told[0]['waits_for']['text'].startswith('attempt 2 of 2, after ')
    assert (site.attempts.held_back, site.ended, site.again) == (1, [], [])
    site.pass_time()
    site.do_work()
    assert (site.attempts.held_back, site.ended, site.again) == (0, [], [task])
    assert (task.target_state, task.exit_code, task.error, task.placement) == (None,) * 4
    assert (task.description['mem_per_rank'], task.description['timeout']) == (1000, 5.0)
    assert (shared['mem_per_rank'], 'timeout' in shared) == (600, False)
    task.fail('RuntimeError', 'again', 'exit')
    site.put([task])
    assert site.ended == [task]
    assert len(task.result()['history']) == 1


@pytest.mark.parametrize('when', ['in the pause', 'while files are moved', 'while it is examined'])
def test_cancelled_between_two_attempts(site: Site, tmp_path: Path, when: str) -> None:
    task = failed(tmp_path, **({'retry_on': ['stderr:x']} if 'examined' in when else {}))
    site.put([task])
    if 'moved' in when:
        site.pass_time()
    site.attempts.cancel(['task.1', 'unknown'])
    assert site.ended == [task]
    assert (task.target_state, task.exception) == (states.CANCELED, 'cancelled before its next attempt')
    site.do_work()
    site.pass_time()
    assert (site.ended, site.again, site.attempts.held_back) == ([task], [], 0)


def test_no_attempt_begins_after_the_end_of_the_pilot(site: Site, tmp_path: Path) -> None:
    waiting, late = failed(tmp_path), failed(tmp_path)
    site.put([waiting])
    site.attempts.stop('pilot has ended')
    site.put([late])
    assert (waiting.target_state, late.target_state) == (states.CANCELED, states.FAILED)
    assert (site.refused, site.ended) == ([waiting], [late])


@pytest.mark.parametrize('ago', [0.0, 2 * FAILURE_HOLD_S])
def test_a_failure_just_before_the_end_of_the_pilot(site: Site, tmp_path: Path, ago: float,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a part of that end, and is no failed attempt then."""
    task = failed(tmp_path)
    site.put([task])
    now = time.monotonic() + ago
    monkeypatch.setattr('rp_agent.pipeline.attempts.time.monotonic', lambda: now)
    site.attempts.stop('pilot has ended')
    (left,) = site.refused
    assert (len(left.extra[HISTORY]), EXITED in left.extra, UNSTARTED in left.extra) == (
        (1, False, True) if ago else (0, True, False))


def test_lost_attempts_do_not_count(site: Site, tmp_path: Path) -> None:
    """They change nothing in the description, either."""
    task = failed(tmp_path, retry_with={'priority': '+1'})
    task.extra[HISTORY] = [{'attempt': 1, 'kind': 'pilot', 'pilot': 'pilot.0', 'lost': 'end'}]
    task.clear()
    site.attempts.lost(task, {'kind': 'node', 'sentence': 'node n1 is lost'})
    site.pass_time()
    site.do_work()
    assert (site.again, task.description['priority']) == ([task], 0)
    assert [(entry['attempt'], entry['lost']) for entry in task.extra[HISTORY]] == [(1, 'end'), (2, 'death')]
    task.fail('RuntimeError', 'again', 'exit')
    site.put([task])
    assert site.told[-1]['waits_for']['text'].startswith('attempt 2 of 2, after ')


def test_states_of_further_attempts_are_not_reported(site: Site, tmp_path: Path) -> None:
    task, other = failed(tmp_path), AgentTask('task.2', {}, 'pilot', '/sandbox')
    both = [task, other]
    assert site.attempts.visible(both, states.AGENT_SCHEDULING) == both
    assert site.attempts.visible(both, states.AGENT_EXECUTING) == both
    assert site.attempts.visible(both, states.AGENT_STAGING_OUTPUT_PENDING) == [other]
    site.put([task])
    for state in (states.AGENT_SCHEDULING, states.AGENT_EXECUTING_PENDING, states.AGENT_EXECUTING):
        assert site.attempts.visible(both, state) == [other]
    assert site.told[-1] == {'waits_for': '', 'history': task.extra[HISTORY]}
    assert site.attempts.visible(both, states.AGENT_STAGING_OUTPUT) == both


def test_attempts_on_earlier_pilots_count_and_are_reported(site: Site, tmp_path: Path) -> None:
    task = failed(tmp_path)
    task.extra[HISTORY] = [{'attempt': 1, 'kind': 'exit', 'reason': 'exit code: 3', 'pilot': 'pilot.0'}]
    assert site.attempts.visible([task], states.AGENT_EXECUTING) == [task]
    assert site.told == [{'waits_for': '', 'history': task.extra[HISTORY]}]
    site.put([task])
    assert site.ended == [task]


@pytest.mark.parametrize('odd', [{'retry_on': 5}, {'retry_on': [[]]}, {'retries': 'x'}, {'retry_delay': float('nan')},
                                 {'retry_with': [3]}, {'retries': 2**63}, {'expect': [None]}, {'expect': 5}])
def test_values_that_no_client_sends_fail_their_task(site: Site, tmp_path: Path, odd: dict[str, Any]) -> None:
    bad, good = AgentTask('bad', {'retries': 1, **odd}, 'pilot', ''), AgentTask('good', {}, 'pilot', '')
    assert site.attempts.entered([bad, good]) == [good]
    assert site.refused == [bad]
    assert bad.target_state == states.FAILED


def test_a_change_that_is_not_possible_fails_the_task(site: Site, tmp_path: Path) -> None:
    task = failed(tmp_path, retry_with={'timeout': '*2'}, timeout='long')
    site.put([task])
    site.pass_time()
    site.do_work()
    assert (site.again, site.ended, task.target_state) == ([], [task], states.FAILED)


def test_files_of_an_attempt_are_moved(tmp_path: Path) -> None:
    task = failed(tmp_path)
    sandbox = Path(task.sandbox)
    task.extra['before'] = {'input'}
    for name in ('input', 'output', 'task.1.out', 'task.1.prof'):
        (sandbox / name).write_text(name)
    (sandbox / 'directory').mkdir()
    where = attempts.attempt_directory(task, 1)
    attempts.put_aside(task, where)
    assert sorted(path.name for path in sandbox.iterdir()) == ['input', 'task.1.prof']
    assert sorted(path.name for path in Path(where).iterdir()) == ['directory', 'output', 'task.1.out']


def test_nothing_is_made_where_nothing_was_written(tmp_path: Path) -> None:
    task = failed(tmp_path)
    attempts.put_aside(task, attempts.attempt_directory(task, 1))
    assert list(tmp_path.iterdir()) == [tmp_path / 'task.1']
