"""What is to be run for a task, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from executor_support import BASE_ENV, a_context, a_slot, a_task

from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.executor.launching.launchers import Launchers
from rp_agent.executor.launching.plan import DIRECT, EXEC, LAUNCH, LaunchPlan, plan
from rp_agent.lookup import LaunchRefused, find_program
from rp_agent.task import AgentTask
from rp_api.system.shell import find_shell
from rp_profiling.write.detail import Detail


def find(name: str, search_path: str, sandbox: str) -> str:
    """A file system in which everything is found where it is looked for first."""
    return name if name.startswith('/') else f'{search_path.split(":")[0]}/{name}'


def planned(task: AgentTask, **context: Any) -> LaunchPlan:
    return plan(task, TaskEnvironment(a_context(**context), find))


def env_of(launch_plan: LaunchPlan, rank: int = 0) -> dict[str, str]:
    entries = [entry.decode().partition('=') for entry in launch_plan.processes[rank].env]
    env = {name: value for name, _, value in entries}
    assert len(env) == len(entries), 'a variable is there twice'
    return env


def test_a_plain_task_runs_without_a_shell() -> None:
    launch_plan = planned(a_task(executable='prog', arguments=['a b', '', '$HOME', r'\$x']))
    assert launch_plan.kind == DIRECT
    assert launch_plan.scripts == {}
    assert [process.path for process in launch_plan.processes] == ['/usr/bin/prog']
    assert launch_plan.processes[0].argv == [b'prog', b'a b', b'', b'/nowhere', b'$x']
    assert launch_plan.output == ('/sandbox/task.000000.out', '/sandbox/task.000000.err')


def test_output_files() -> None:
    assert planned(a_task(stdout='log', stderr='/abs/err')).output == ('/sandbox/log', '/abs/err')


def test_environment_of_a_task() -> None:
    told = env_of(planned(a_task(name='my name', cores_per_rank=4), detail=Detail(), prof='/prof'))
    base = {name: value for name, value in BASE_ENV.items() if name in ('PATH', 'HOME', 'LANG')}
    context = a_context()
    assert told == base | {
        'RP_TASK_ID': 'task.000000', 'RP_TASK_NAME': 'my name', 'RP_PILOT_ID': 'pilot.0000',
        'RP_SESSION_ID': context.session_id, 'RP_RESOURCE': 'local.exact', 'RP_RESOURCE_SANDBOX': '/base',
        'RP_SESSION_SANDBOX': '/base/session', 'RP_PILOT_SANDBOX': '/base/session/pilot.0000',
        'RP_TASK_SANDBOX': '/sandbox', 'PWD': '/sandbox', 'RP_REGISTRY_ADDRESS': 'tcp://127.0.0.1:1',
        'RP_CONTROL_PUB_ADDRESS': 'tcp://127.0.0.1:2', 'RP_CONTROL_SUB_ADDRESS': 'tcp://127.0.0.1:3',
        'RP_CORES_PER_RANK': '4', 'RP_GPUS_PER_RANK': '0', 'RP_GTOD': '/base/gtod', 'RP_PROF': '/prof',
        'RP_CTRL': '/ctrl', 'RP_PROF_TGT': '/sandbox/task.000000.prof', 'RP_RANKS': '1', 'RP_RANK': '0',
        'CUDA_VISIBLE_DEVICES': '', 'ROCR_VISIBLE_DEVICES': '', 'ZE_AFFINITY_MASK': '65535'}


def test_environment_without_name_profile_and_type_of_gpus() -> None:
    task = a_task(gpus_per_rank=0.5)
    task.slots = [a_slot(1)]
    told = env_of(planned(task, ROCR_VISIBLE_DEVICES='of the job'))
    assert told['RP_TASK_NAME'] == 'task.000000'
    assert told['RP_GPUS_PER_RANK'] == '0.500000'
    assert 'RP_PROF_TGT' not in told
    assert 'OMP_NUM_THREADS' not in told
    assert 'CUDA_VISIBLE_DEVICES' not in told
    assert told['ROCR_VISIBLE_DEVICES'] == 'of the job'


@pytest.mark.parametrize('description', [{}, {'pre_exec': ['true']}, {'pre_launch': ['true']}, {'ranks': 2}])
def test_ranks_without_gpus_see_none(description: dict[str, Any]) -> None:
    told = env_of(planned(a_task(**description, use_mpi=False), CUDA_VISIBLE_DEVICES='0,1'))
    assert (told['CUDA_VISIBLE_DEVICES'], told['ROCR_VISIBLE_DEVICES']) == ('', '')


def test_a_rank_without_gpus_beside_one_that_has_some_sees_none() -> None:
    task = a_task(ranks=2, use_mpi=False, gpu_type='ROCm', slots=[a_slot(1), a_slot()])
    task.slots = task.description['slots']
    launch_plan = planned(task, CUDA_VISIBLE_DEVICES='0,1')
    seen = [{name: env_of(launch_plan, rank).get(name) for name in ('CUDA_VISIBLE_DEVICES', 'ROCR_VISIBLE_DEVICES')}
            for rank in (0, 1)]
    assert seen == [{'CUDA_VISIBLE_DEVICES': '0,1', 'ROCR_VISIBLE_DEVICES': '1'},
                    {'CUDA_VISIBLE_DEVICES': '', 'ROCR_VISIBLE_DEVICES': ''}]


def test_a_task_may_choose_gpus_itself() -> None:
    task = a_task(executable='echo', arguments=['$CUDA_VISIBLE_DEVICES/$ROCR_VISIBLE_DEVICES'],
                  environment={'CUDA_VISIBLE_DEVICES': '3'})
    launch_plan = planned(task, ROCR_VISIBLE_DEVICES='of the job')
    assert env_of(launch_plan)['CUDA_VISIBLE_DEVICES'] == '3'
    assert launch_plan.processes[0].argv == [b'echo', b'3/']


@pytest.mark.parametrize(('gpu_type', 'name'), [
    ('CUDA', 'CUDA_VISIBLE_DEVICES'), ('ROCm', 'ROCR_VISIBLE_DEVICES'), ('Intel', 'ZE_AFFINITY_MASK')])
def test_each_rank_sees_the_gpus_of_its_slot(gpu_type: str, name: str) -> None:
    task = a_task(ranks=2, use_mpi=False, gpus_per_rank=2.0, gpu_type=gpu_type)
    task.slots = [a_slot(0, 1), a_slot(4, 7)]
    launch_plan = planned(task, **{name: 'all'})
    assert [env_of(launch_plan, rank)[name] for rank in (0, 1)] == ['0,1', '4,7']
    assert [env_of(launch_plan, rank)['RP_RANK'] for rank in (0, 1)] == ['0', '1']


def test_gpus_are_called_as_the_batch_system_calls_them() -> None:
    """A job that has got the last two GPUs of a node, others have the first ones."""
    task = a_task(ranks=2, use_mpi=False, gpus_per_rank=1.0, gpu_type='CUDA')
    task.slots = [a_slot(0), a_slot(1)]
    environment = TaskEnvironment(a_context()._replace(gpu_ids=('2', 'GPU-8f2e')), find)
    launch_plan = plan(task, environment)
    assert [env_of(launch_plan, rank)['CUDA_VISIBLE_DEVICES'] for rank in (0, 1)] == ['2', 'GPU-8f2e']


@pytest.mark.parametrize(('names', 'node', 'seen'), [
    (('2', '3'), 0, '2,3'), (('2', '3'), 1, '2,3'), (('2', '3'), 2, '0,1'),
    (('GPU-8f2e', 'GPU-a1'), 0, 'GPU-8f2e,GPU-a1'), (('GPU-8f2e', 'GPU-a1'), 1, '0,1'), ((), 2, '0,1')])
def test_gpus_on_other_hosts(names: tuple[str, ...], node: int, seen: str) -> None:
    """Node 0 is here, node 1 has as many cores and GPUs, node 2 has not."""
    launchers = Launchers({}, {'unlike': [2]}, {}, '/base', lambda *_: None, [0])
    environment = TaskEnvironment(a_context()._replace(gpu_ids=names, launchers=launchers), find)
    assert environment.visible_gpus('CUDA', [0, 1], node) == {'CUDA_VISIBLE_DEVICES': seen}


def test_threads() -> None:
    assert env_of(planned(a_task(threading_type='OpenMP', cores_per_rank=6)))['OMP_NUM_THREADS'] == '6'


def test_the_own_environment_takes_precedence_and_sees_what_stands_before_it() -> None:
    task = a_task(executable='/opt/run', arguments=['$B', '$RP_RANK'], ranks=2, use_mpi=False, environment={
        'PATH': '/mine:$PATH', 'A': 'x$HOME', 'B': '${A}y', 'LANG': '', 'RP_TASK_NAME': 'other'})
    launch_plan = planned(task)
    told = env_of(launch_plan)
    assert told['PATH'] == '/mine:/usr/bin:/bin'
    assert (told['A'], told['B'], told['LANG'], told['RP_TASK_NAME']) == ('x/nowhere', 'x/nowherey', '', 'other')
    assert [process.argv for process in launch_plan.processes] == [[b'/opt/run', b'x/nowherey', b'0'],
                                                                   [b'/opt/run', b'x/nowherey', b'1']]


def test_numbers_of_hip_count_from_the_first_visible_gpu() -> None:
    hip = TaskEnvironment(a_context(HIP_VISIBLE_DEVICES='5,7')._replace(gpu_ids=('5', '7')))
    assert hip.visible_gpus('ROCm', [1]) == {'ROCR_VISIBLE_DEVICES': '7', 'HIP_VISIBLE_DEVICES': '0'}
    assert hip.visible_gpus('CUDA', [1]) == {'CUDA_VISIBLE_DEVICES': '7'}
    assert TaskEnvironment(a_context()).visible_gpus('ROCm', [0, 1]) == {'ROCR_VISIBLE_DEVICES': '0,1'}


def test_the_program_is_looked_for_on_the_path_of_the_task() -> None:
    assert planned(a_task(executable='prog', environment={'PATH': '/mine'})).processes[0].path == '/mine/prog'


@pytest.mark.parametrize('description', [
    {'arguments': ['$(hostname)']}, {'arguments': ['`hostname`']}, {'executable': '${TOOL:-/bin/true}'},
    {'executable': 'a b'}, {'executable': '~/a'},
    {'pre_exec': ['true']}, {'post_exec': ['true']}, {'named_env': 'mine'},
])
def test_what_needs_a_shell_gets_an_exec_script(description: dict[str, Any]) -> None:
    launch_plan = planned(a_task(ranks=2, use_mpi=False, **description))
    shell = find_shell('', BASE_ENV['PATH']).encode()
    assert launch_plan.kind == EXEC
    assert list(launch_plan.scripts) == ['task.000000.exec.sh']
    assert [process.argv for process in launch_plan.processes] == [[shell, b'./task.000000.exec.sh']] * 2
    assert [env_of(launch_plan, rank)['RP_RANK'] for rank in (0, 1)] == ['0', '1']


@pytest.mark.parametrize('attribute', ['pre_launch', 'post_launch'])
def test_launch_commands_get_a_launch_script(attribute: str) -> None:
    commands: dict[str, Any] = {attribute: ['true']}
    launch_plan = planned(a_task(**commands, startup_timeout=3.0))
    assert launch_plan.kind == LAUNCH
    assert sorted(launch_plan.scripts) == ['task.000000.exec.sh', 'task.000000.launch.sh']
    assert len(launch_plan.processes) == 1
    assert launch_plan.output == ('/sandbox/task.000000.launch.out', '/sandbox/task.000000.launch.out')
    assert launch_plan.signals_start


def test_a_barrier_needs_several_ranks() -> None:
    assert not planned(a_task(pre_exec=['true'], pre_exec_sync=True)).sync
    assert planned(a_task(pre_exec=['true'], pre_exec_sync=True, ranks=2, use_mpi=False)).sync


@pytest.mark.parametrize(('description', 'text'), [
    ({'ranks': 4}, 'ranks=4 needs an MPI launch method, and platform local.exact has none: set use_mpi=False'),
    ({'ranks': 4, 'use_mpi': True}, 'ranks=4 needs an MPI launch method'),
    ({'executable': '', 'mode': 'task.function'}, 'mode task.function are run by a RAPTOR master, set raptor_id'),
    ({'arguments': ['a\0b']}, 'NUL character'),
    ({'executable': 'a\0b'}, 'NUL character'),
    ({'stdout': 'a\0b'}, r"stdout is 'a\\x00b': file names cannot contain a NUL"),
    ({'arguments': ['\ud800']}, r"'\\ud800' cannot be passed to a program: surrogates not allowed"),
    ({'environment': {'A': '\ud800'}}, 'cannot be passed to a program: surrogates not allowed'),
    ({'pre_exec': ['\ud800']}, 'cannot be passed to a program: surrogates not allowed'),
    ({'environment': {'A=B': 'x'}}, "variable 'A=B'"),
    ({'environment': {'A': '\0'}}, 'environment variable A contains a NUL character'),
    ({'environment': {'a.b': 'x'}, 'pre_exec': ['true']}, "'a.b', which a shell cannot set"),
    ({'pre_exec': ['a\0b']}, 'shell script cannot contain a NUL character'),
])
def test_what_cannot_be_run_is_refused(description: dict[str, Any], text: str) -> None:
    with pytest.raises(LaunchRefused, match=text):
        planned(a_task(**description))


def program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('#!/bin/sh\n')
    path.chmod(mode)
    return path


def test_find_program(tmp_path: Path) -> None:
    one, two = program(tmp_path / 'one/prog'), program(tmp_path / 'two/prog')
    program(tmp_path / 'zero/prog', 0o644)
    (tmp_path / 'minus/prog').mkdir(parents=True)
    search_path = ':'.join(str(tmp_path / name) for name in ('minus', 'zero', 'one', 'two'))
    assert find_program('prog', search_path, '/sandbox') == str(one)
    assert find_program(str(two), search_path, '/sandbox') == str(two)
    assert find_program('./two/prog', search_path, str(tmp_path)) == f'{tmp_path}/./two/prog'
    assert find_program('prog', 'two', str(tmp_path)) == str(two)


def test_find_program_says_why_there_is_none(tmp_path: Path) -> None:
    program(tmp_path / 'data', 0o644)
    (tmp_path / 'dir').mkdir()
    (tmp_path / 'link').symlink_to('gone')
    for name, search_path, text in (
            ('foo', '/usr/bin:/bin', r'executable not found: foo \(searched PATH /usr/bin:/bin\)'),
            ('foo -l', '/bin', r'found: foo -l \(it has several words: all but the first are arguments\) \(searched'),
            ('./foo', '', r'executable not found: .*/\./foo \(\./foo was looked for in .* input_staging\)$'),
            ('data', str(tmp_path), r'not executable: .*/data \(permission'),
            ('./data', '', r'not executable: .*/data \(permission'),
            ('./dir', '', 'not executable: .*/dir is a directory'),
            ('./link', '', 'link is a symbolic link to gone, which does not exist')):
        with pytest.raises(LaunchRefused, match=text):
            find_program(name, search_path, str(tmp_path))
