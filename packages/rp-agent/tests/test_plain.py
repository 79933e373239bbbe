"""Plain tasks: compiled code gives them what a plan would give them, and leaves alone what cannot be done so."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from children import nothing_stays
from executor_support import a_task
from plain_support import Site

from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.executor.launching.plan import plan
from rp_agent.executor.processes.launch import cpu_mask
from rp_agent.executor.processes.launchloop import Process
from rp_agent.task import AgentTask
from rp_profiling.levels import OFF
from rp_profiling.write.detail import Detail


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with nothing_stays():
        made = Site(tmp_path)
        yield made
        made.close()


def output(task: AgentTask, ending: str = 'out') -> bytes:
    return Path(task.sandbox, f'{task.uid}.{ending}').read_bytes()


def planned(environment: TaskEnvironment, task: AgentTask) -> set[bytes]:
    return set(plan(task, environment).processes[0].env)


@pytest.mark.parametrize('detail', [Detail(OFF), Detail()])
@pytest.mark.parametrize('description', [
    {},
    {'name': 'läbel', 'cores_per_rank': 3},
    {'name': '', 'timeout': 10.0, 'metadata': {'any': ['thing']}, 'tags': {'colocate': 1}, 'use_mpi': False},
    {'ranks': 1, 'environment': {}, 'pre_exec': [], 'gpus_per_rank': 0.0},
])
def test_the_environment_is_the_planned_one(tmp_path: Path, description: dict[str, Any], detail: Detail) -> None:
    site = Site(tmp_path / 'ä', detail=detail, prof='/prof', OWN='user\'s "own" $value')
    site.path.mkdir()
    task = site.task(executable='/bin/cat', arguments=['/proc/self/environ'], **description)
    assert site.plain.start(task, None) is not None
    assert site.end().code == 0
    assert set(output(task).split(b'\0')[:-1]) == planned(site.environment, task)
    site.close()


def test_arguments_directory_and_descriptors(site: Site) -> None:
    script = 'printf "<%s>" "$0" "$@"; pwd; ls -l /proc/self/fd | wc -l; readlink /proc/self/fd/0; echo error >&2'
    path = site.path / 'show'
    path.write_text(f'#!/bin/sh\n{script}\n')
    path.chmod(0o755)
    task = site.task(executable=str(path), arguments=['a b', '', 'ö', '"', '\\', '*'])
    assert site.plain.start(task, None) is not None
    assert site.end().code == 0
    expected = f'<{path}><a b><><ö><"><\\><*>{task.sandbox}\n5\n/dev/null\n'   # ls says "total", and has one of its own
    assert output(task).decode() == expected
    assert output(task, 'err') == b'error\n'


def test_literal_arguments(site: Site) -> None:
    texts = ['$HOME', '`date`', '$(date)', '\\$HOME', '$5', '{print $2}']
    task = site.task(executable='/usr/bin/printf', arguments=['%s|', *texts], literal_arguments=True)
    assert site.plain.start(task, None) is not None
    assert site.end().code == 0
    assert output(task).decode().split('|')[:-1] == texts
    with_false = site.task('task.1', arguments=['$HOME'], literal_arguments=False)
    assert site.plain.start(with_false, None) is None


def test_a_name_is_looked_up_once_and_is_the_first_argument(site: Site) -> None:
    task = a_task(site.path / 'task.1', 'task.1', executable='sh', arguments=['-c', 'exit 7'])
    assert site.plain.start(task, None) is None, 'nobody has looked for it yet'
    assert not os.path.exists(task.sandbox)
    task = site.task('task.1', executable='sh', arguments=['-c', 'exit 7'])
    assert site.plain.start(task, None) is not None
    assert site.end().code == 7


def test_binding(site: Site) -> None:
    task = site.task(executable='/bin/grep', arguments=['Cpus_allowed_list', '/proc/self/status'])
    site.plain.start(task, cpu_mask([0]))
    assert site.end().code == 0
    assert output(task).split() == [b'Cpus_allowed_list:', b'0']


@pytest.mark.parametrize('description', [
    {'arguments': ['$HOME']}, {'arguments': ['`date`']}, {'arguments': ['a\0b']}, {'arguments': ['\udcff']},
    {'name': 'a\0b'}, {'ranks': 2}, {'environment': {'A': 'b'}}, {'pre_exec': ['true']}, {'post_launch': ['true']},
    {'stdout': 'other'}, {'gpus_per_rank': 1.0}, {'mem_per_rank': 10}, {'threading_type': 'OpenMP'},
    {'named_env': 'some'}, {'mode': 'raptor.worker'}, {'slots': [{}]}, {'something': 'new'},
])
def test_what_is_not_plain_is_left_alone(site: Site, description: dict[str, Any]) -> None:
    task = site.task(**description)
    assert site.plain.start(task, None) is None
    assert site.plain.hold(task) is None
    assert os.listdir(site.path) == []


def test_a_sandbox_that_cannot_be_made(site: Site) -> None:
    task = site.task('none/task.000000')
    assert site.plain.start(task, None) is None
    (site.path / 'task.1').touch()
    assert site.plain.start(site.task('task.1'), None) is None
    assert os.listdir(site.path) == ['task.1']


def test_files_that_cannot_be_opened(site: Site) -> None:
    task = site.task()
    Path(task.sandbox, f'{task.uid}.err').mkdir(parents=True)
    assert site.plain.start(task, None) is None


def test_a_sandbox_that_is_there_is_used_but_not_prepared(site: Site) -> None:
    task = site.task()
    os.mkdir(task.sandbox)
    assert site.plain.hold(task) is None
    assert site.plain.start(task, None) is not None
    assert site.end().code == 0


def test_no_process_can_be_watched(site: Site) -> None:
    task = site.task()
    site.launched.close()
    assert site.plain.start(task, None) is None
    assert os.listdir(site.path) == []


def held(site: Site, task: AgentTask) -> Process:
    process = site.plain.hold(task)
    assert process is not None
    return process


def test_a_held_process_executes_its_program_when_it_is_let_go(site: Site) -> None:
    task = site.task(executable='/bin/grep', arguments=['Cpus_allowed_list', '/proc/self/status'])
    process = held(site, task)
    assert os.readlink(f'/proc/{process.pid}/exe') == os.readlink('/proc/self/exe')
    assert not select.select([site.launched.fd], [], [], 0)[0]
    run = site.plain.let_go(process, task, cpu_mask([0]))
    assert run is not None
    assert (run.task, run.leaders, run.pids) == (task, {0: process}, [process.pid])
    assert site.end() is process
    assert (process.code, process.run) == (0, run)
    assert output(task).split() == [b'Cpus_allowed_list:', b'0']


def test_a_held_process_is_discarded(site: Site) -> None:
    task = site.task()
    process = held(site, task)
    site.plain.discard(process, task)
    assert os.listdir(site.path) == []
    assert len(site.launched) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@pytest.mark.parametrize('noticed', [False, True])
def test_a_held_process_is_lost(site: Site, noticed: bool) -> None:
    task = site.task()
    process = held(site, task)
    os.kill(process.pid, signal.SIGKILL)
    assert select.select([site.launched.fd], [], [], 20)[0]
    if noticed:
        assert site.launched.ended() == [], 'it belongs to nothing'
        assert site.plain.let_go(process, task, None) is None
        site.plain.discard(process, task)
    else:
        run = site.plain.let_go(process, task, None)
        assert run is not None
        assert site.end().code == -signal.SIGKILL


def test_files_that_are_removed_while_a_process_is_held(site: Site) -> None:
    task = site.task()
    process = held(site, task)
    os.unlink(f'{task.sandbox}/{task.uid}.out')
    assert site.plain.let_go(process, task, None) is not None, 'its files are open'
    assert site.end().code == 0


def test_a_program_that_is_gone_when_it_is_let_go(site: Site) -> None:
    path = site.path / 'program'
    path.write_text('#!/bin/sh\n')
    path.chmod(0o755)
    task = site.task(executable=str(path))
    process = held(site, task)
    path.unlink()
    run = site.plain.let_go(process, task, None)
    assert run is not None
    ended = site.end()
    assert isinstance(ended.failure, FileNotFoundError)
    assert (run.plan.processes[0].path, run.plan.processes[0].name) == (str(path), str(path))


def test_held_processes_end_with_what_holds_them(site: Site) -> None:
    process = held(site, site.task())
    site.launched.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_many_held_and_started(site: Site) -> None:
    """Each gets its own texts, although the memory of those that have ended is used again."""
    for turn in range(20):
        tasks = [site.task(f'task.{turn}.{number}', executable='/bin/echo', arguments=[f'{turn} {number}' * 50])
                 for number in range(8)]
        processes = [held(site, task) for task in tasks[:4]]
        for task in tasks[4:]:
            assert site.plain.start(task, None) is not None
        for process, task in zip(processes, tasks[:4], strict=True):
            assert site.plain.let_go(process, task, None) is not None
        left = len(tasks)
        while left:
            assert select.select([site.launched.fd], [], [], 20)[0]
            left -= len(site.launched.ended())
        assert [output(task).decode() for task in tasks] == [f'{turn} {number}' * 50 + '\n' for number in range(8)]
