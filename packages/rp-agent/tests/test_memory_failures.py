"""Tasks that fail for lack of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rp_agent.executor.memory_failures import MemoryFailures, events_of_job
from rp_agent.task import AgentTask

KILLED = {'kind': 'signal', 'signal': 9, 'sentence': 'killed by signal 9 (SIGKILL)'}


def failed(directory: Path, record: dict[str, Any], **description: Any) -> AgentTask:
    task = AgentTask('task.1', description, 'pilot', str(directory))
    task.fail("RuntimeError('task failed')", 'killed by signal 9 (SIGKILL)', **record)
    return task


def kind(failures: MemoryFailures, task: AgentTask) -> str:
    failures.explain(task)
    return str((task.error or {})['kind'])


def test_each_kill_explains_one_task(tmp_path: Path) -> None:
    events = tmp_path / 'memory.events'
    events.write_text('low 0\noom 7\noom_kill 2\noom_group_kill 0\n')
    failures = MemoryFailures(str(events))
    assert kind(failures, failed(tmp_path, KILLED)) == 'signal'   # those were earlier
    events.write_text('low 0\noom 8\noom_kill 3\noom_group_kill 0\n')
    assert kind(failures, failed(tmp_path, {**KILLED, 'signal': 15})) == 'signal'
    assert kind(failures, failed(tmp_path, {'kind': 'timeout'})) == 'timeout'
    task = failed(tmp_path, KILLED)
    assert kind(failures, task) == 'memory'
    assert task.error == {'kind': 'memory', 'signal': 9,
                          'sentence': 'killed by signal 9 (SIGKILL): the out-of-memory killer has killed it'}
    assert task.exception_detail == 'killed by signal 9 (SIGKILL)'
    assert kind(failures, failed(tmp_path, KILLED)) == 'signal'
    events.unlink()
    assert kind(failures, failed(tmp_path, KILLED)) == 'signal'


def test_kills_of_further_processes_explain_no_later_task(tmp_path: Path) -> None:
    events, now = tmp_path / 'memory.events', [100.0]
    events.write_text('oom_kill 0\n')
    failures = MemoryFailures(str(events), lambda: now[0])
    events.write_text('oom_kill 3\n')
    assert kind(failures, failed(tmp_path, KILLED)) == 'memory'
    now[0] += 1
    assert kind(failures, failed(tmp_path, KILLED)) == 'memory'   # it was killed at the same time
    now[0] += 2
    assert kind(failures, failed(tmp_path, KILLED)) == 'signal'
    events.write_text('oom_kill 4\n')
    assert kind(failures, failed(tmp_path, KILLED)) == 'memory'


def test_kills_in_tasks_that_end_otherwise_explain_no_later_task(tmp_path: Path) -> None:
    events, now = tmp_path / 'memory.events', [100.0]
    events.write_text('oom_kill 0\n')
    failures = MemoryFailures(str(events), lambda: now[0])
    events.write_text('oom_kill 1\n')
    assert kind(failures, failed(tmp_path, {'kind': 'exit'}, mem_per_rank=0)) == 'exit'
    now[0] += 3600
    assert kind(failures, failed(tmp_path, KILLED, mem_per_rank=0)) == 'signal'


@pytest.mark.parametrize(('words', 'limit', 'expected'), [
    ('MemoryError', 100, 'memory'), ("terminate called after throwing 'std::bad_alloc'", 100, 'memory'),
    ('sort: cannot allocate memory', 100, 'memory'), ('MemoryError', 0, 'exit'), ('no such file', 100, 'exit')])
def test_programs_that_reach_their_own_limit(tmp_path: Path, words: str, limit: int, expected: str) -> None:
    (tmp_path / 'task.1.err').write_text(f'Traceback\n{words}\n')
    task = failed(tmp_path, {'kind': 'exit', 'sentence': 'exit code: 1'}, mem_per_rank=limit)
    assert kind(MemoryFailures(''), task) == expected


def test_the_group_is_that_of_the_job(tmp_path: Path) -> None:
    job = tmp_path / 'system.slice' / 'slurmstepd.scope' / 'job_17'
    own = job / 'step_batch' / 'user' / 'task_0'
    own.mkdir(parents=True)
    (own / 'memory.events').touch()
    (job / 'memory.events').touch()
    path = own.relative_to(tmp_path)
    assert events_of_job(f'1:name=systemd:/x\n0::/{path}\n', str(tmp_path)) == f'{job}/memory.events'
    other = tmp_path / 'user.slice' / 'session-3.scope'
    other.mkdir(parents=True)
    assert events_of_job(f'0::/{other.relative_to(tmp_path)}\n', str(tmp_path)) == ''
    (other / 'memory.events').touch()
    assert events_of_job(f'0::/{other.relative_to(tmp_path)}\n', str(tmp_path)) == f'{other}/memory.events'


def test_the_group_of_a_host_with_groups_of_version_1(tmp_path: Path) -> None:
    own = tmp_path / 'memory' / 'slurm' / 'uid_7' / 'job_17' / 'step_batch'
    own.mkdir(parents=True)
    groups = '9:name=systemd:/a:b\n4:cpu,memory:/slurm/uid_7/job_17/step_batch\n0::/\n'
    assert events_of_job(groups, str(tmp_path)) == ''
    (own / 'memory.oom_control').touch()
    assert events_of_job(groups, str(tmp_path)) == f'{own}/memory.oom_control'
