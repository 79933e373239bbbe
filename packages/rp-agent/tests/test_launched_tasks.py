"""Tasks that a launcher starts, with real processes and a launcher that is a shell script."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from executor_support import Harness, sh
from launch_support import none_left
from launcher_support import HYDRA, VERSION, calls, launchers, lines, program

from rp_agent.executor import run as running
from rp_agent.task import LAUNCH_INFO, AgentTask
from rp_api import states

Make = Callable[..., Harness]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as stack:
        made: list[Harness] = []

        def harness(text: str = HYDRA, platform: dict[str, Any] | None = None, **arguments: Any) -> Harness:
            found = stack.enter_context(launchers(tmp_path, text, **(platform or {})))
            made.append(Harness(tmp_path, launchers=found, **arguments))
            return made[-1]

        yield harness
        for each in made:
            each.close()
        for each in made:
            none_left(each)


@pytest.fixture
def harness(make: Make) -> Harness:
    return make()


def in_turn(harness: Harness, *steps: list[AgentTask] | Callable[[], object]) -> None:
    """Run lists of tasks, and what else there is to do, one after the other."""
    left = list(steps)
    harness.wanted = sum(len(step) for step in steps if isinstance(step, list))

    def next_steps(_: object = None) -> None:
        if not all(task.target_state for step in steps[:len(steps) - len(left)] if isinstance(step, list)
                   for task in step):
            return
        while left:
            step = left.pop(0)
            if isinstance(step, list):
                harness.loop.call_soon(harness.executor.put, step)
                return
            step()

    harness.on_output = next_steps
    next_steps()
    harness.wait()


def test_ranks_know_who_they_are(harness: Harness) -> None:
    task = harness.run_one(**sh(r'echo \$RP_RANK/\$RP_RANKS \$PMI_SIZE \$PWD'), ranks=3)
    assert (task.target_state, task.exit_code) == (states.DONE, 0), task.exception_detail
    assert sorted(lines(task, 'task.000000.out')) == [f'{rank}/3 3 {task.sandbox}' for rank in range(3)]


@pytest.mark.parametrize('more', [{}, {'pre_exec': ['true']}, {'pre_launch': ['true']}])
def test_literal_arguments(harness: Harness, more: dict[str, Any]) -> None:
    texts = ['$RP_RANK', r'\$RP_RANK', '$(date)', '`date`', '{print $2}']
    task = harness.run_one(executable='printf', arguments=['%s\\n', *texts], literal_arguments=True, ranks=2, **more)
    assert task.target_state == states.DONE, task.exception_detail
    assert sorted(lines(task, 'task.000000.out')) == sorted(texts * 2)


INPUTS = ('SLURM_LABELIO', 'SLURM_STDOUTMODE', 'SLURM_EXCLUSIVE', 'SLURM_DISTRIBUTION', 'SLURM_OVERCOMMIT',
          'SLURM_NTASKS_PER_GPU', 'SLURM_MEM_PER_CPU', 'SLURM_REMOTE_CWD', 'SLURM_TASK_PROLOG', 'SRUN_EXPORT_ENV',
          'OMPI_MCA_rmaps_base_mapping_policy', 'HYDRA_PREPEND_RANK', 'MPIEXEC_TIMEOUT', 'PALS_LABEL')


def test_variables_that_are_options_of_launchers_do_not_reach_them(make: Make) -> None:
    """Those of the task's own environment reach the program."""
    of_job = {'SLURM_JOB_ID': '7', 'SLURM_JOB_NODELIST': 'n', 'SLURM_NNODES': '1', 'SLURM_CONF': '/x'}
    harness = make('test "$1" = --version || /usr/bin/env >"${0%/*}/seen"\n' + HYDRA, **of_job,
                   **dict.fromkeys(INPUTS, '1'))
    task = harness.run_one(executable='/usr/bin/env', environment={'SLURM_LABELIO': '2'}, use_mpi=True)
    assert task.target_state == states.DONE, task.exception_detail
    seen = {line.partition('=')[0] for line in (harness.path / 'bin' / 'seen').read_text().splitlines()}
    assert not seen & set(INPUTS)
    assert seen >= of_job.keys()
    assert 'SLURM_LABELIO=2' in lines(task, 'task.000000.out')


def test_what_is_known_of_the_launch(harness: Harness) -> None:
    task = harness.run_one(ranks=2)
    ranks = f'{harness.path}/rp-rank {task.sandbox}/task.000000.exec.plan'
    line = f'{harness.path}/bin/mpiexec -np 2 -hosts localhost:2 {ranks}'
    assert task.extra[LAUNCH_INFO] == {'launch_method': 'MPIEXEC', 'launch_command': line}
    assert task.result()['launch_command'] == line
    assert any(each.startswith(line) for each in lines(task, 'task.000000.launch.sh'))


def test_the_launch_script_can_be_run_by_hand(harness: Harness) -> None:
    task = harness.run_one(**sh(r'echo ran \$RP_RANK >>log'), ranks=2)
    assert os.system(f'PATH=/usr/bin:/bin sh {task.sandbox}/task.000000.launch.sh') == 0
    assert sorted(lines(task, 'log')) == ['ran 0', 'ran 0', 'ran 1', 'ran 1']


def test_methods_are_looked_for_once_and_only_when_they_are_needed(make: Make, tmp_path: Path) -> None:
    counting = 'test "$1" != --version || echo asked >>"${0%/*}/asked"\n' + HYDRA
    harness = make(counting)
    asked = tmp_path / 'bin' / 'asked'
    without = [harness.task('plain'), harness.task('script', pre_exec=['true']),
               harness.task('local', ranks=2, use_mpi=False)]
    seen = []
    in_turn(harness, without, lambda: seen.append(asked.exists()),
            [harness.task(f'task.{number}', ranks=2) for number in range(20)])
    assert {task.target_state for task in harness.out} == {states.DONE}
    assert seen == [False]
    assert asked.read_text() == 'asked\n'
    assert calls(harness) == 20


def test_ranks_are_started_by_scripts_where_no_program_can_be_executed(make: Make, tmp_path: Path) -> None:
    (tmp_path / 'rp-rank').mkdir()
    harness = make()
    task = harness.run_one(**sh('echo ran'), ranks=2)
    assert (task.target_state, lines(task, 'task.000000.out')) == (states.DONE, ['ran', 'ran'])
    assert task.extra[LAUNCH_INFO]['launch_command'].endswith(f'/bin/sh {task.sandbox}/task.000000.exec.sh')


def test_a_single_mpi_rank_is_launched(harness: Harness) -> None:
    harness.run(harness.task('one', use_mpi=True, **sh(r'echo \$PMI_SIZE')), harness.task('plain', use_mpi=None))
    assert lines(harness.out[-1] if harness.out[-1].uid == 'one' else harness.out[0], 'one.out') == ['1']
    assert calls(harness) == 1


def test_the_launcher_is_not_told_that_it_is_a_rank_itself(make: Make) -> None:
    own = {'PMI_RANK': '3', 'PMI_FD': '9', 'PMIX_NAMESPACE': 'x', 'SITE': 'mine'}
    harness = make(f'{VERSION}env >"${{0%/*}}/seen"\n{HYDRA}', **own)
    task = harness.run_one(ranks=2)
    assert task.target_state == states.DONE
    seen = (harness.path / 'bin' / 'seen').read_text().splitlines()
    assert not [line for line in seen if line.startswith('PMI')]
    assert 'SITE=mine' in seen
    assert 'RP_TASK_ID=task.000000' in seen


def test_commands_before_and_after(harness: Harness) -> None:
    task = harness.run_one(pre_launch=['echo pre_launch >>log'],
                           pre_exec=['echo pre_exec >>log', {'1': 'export A=one'}],
                           **sh(r'echo run \$A >>log'), post_exec=['echo post_exec >>log'],
                           post_launch=['echo post_launch >>log; echo said'], ranks=2)
    assert task.target_state == states.DONE, task.exception_detail
    first, *ranks, last = lines(task, 'log')
    assert (first, last) == ('pre_launch', 'post_launch')
    assert sorted(ranks) == [*['post_exec'] * 2, *['pre_exec'] * 2, 'run', 'run one']
    assert lines(task, 'task.000000.launch.out') == ['said']


def test_ranks_wait_for_each_other(harness: Harness) -> None:
    pre_exec = ['echo ready >>log', {'2': 'while ! test -s other; do sleep 0.01; done; echo late >>log'},
                {'0': 'echo go >other'}]
    task = harness.run_one(pre_exec=pre_exec, **sh('echo run >>log'), ranks=3, pre_exec_sync=True)
    assert task.target_state == states.DONE, task.exception_detail
    said = lines(task, 'log')
    assert (sorted(said[:4]), said[4:]) == (['late', *['ready'] * 3], ['run'] * 3)


def test_ranks_do_not_wait_for_one_that_has_failed(harness: Harness) -> None:
    task = harness.run_one(pre_exec=[{'1': 'false'}], **sh('echo run >>log'), ranks=3, pre_exec_sync=True)
    assert (task.target_state, task.exit_code) == (states.FAILED, 1)
    assert lines(task, 'log') == ['run', 'run']
    assert lines(task, 'task.000000.err') == ['pre_exec failed with exit code 1: false']


@pytest.mark.parametrize('rank', [0, 1])
@pytest.mark.parametrize('last', ['kill -KILL $$', '(kill -KILL $$; sleep 1000)'], ids=['shell', 'and its child lives'])
def test_ranks_do_not_wait_for_one_that_was_killed(harness: Harness, rank: int, last: str) -> None:
    task = harness.run_one(pre_exec=[{str(rank): last}, 'sleep 1 & wait'], **sh('echo run >>log'), ranks=3,
                           pre_exec_sync=True)
    assert (task.target_state, task.exit_code) == (states.FAILED, -9)
    assert lines(task, 'log') == ['run', 'run']


def test_a_task_that_runs_again_in_its_sandbox(harness: Harness) -> None:
    first = harness.task(**sh('exit 4'), ranks=2, pre_exec_sync=True)
    again = harness.task(**sh('echo ran'), ranks=2, pre_exec_sync=True)
    in_turn(harness, [first], [again])
    assert (first.target_state, again.target_state) == (states.FAILED, states.DONE)


@pytest.mark.parametrize('launch', [[], ['true']])
def test_memory_is_limited(harness: Harness, launch: list[str]) -> None:
    task = harness.run_one(**sh('ulimit -d'), ranks=2, mem_per_rank=64, pre_launch=launch)
    assert lines(task, 'task.000000.out') == [str(64 * 1024)] * 2


def test_ranks_are_bound_to_the_cores_of_their_slots(make: Make) -> None:
    mine = tuple(sorted(os.sched_getaffinity(0)))
    harness = make(changes={'cpus': mine})
    task = harness.task(ranks=2, pre_exec=[r'echo $RP_RANK $(taskset -pc $$ | sed "s/.*: //") >>log'])
    assert task.slots is not None
    for slot, core in zip(task.slots, (0, len(mine) - 1), strict=True):
        slot['cores'] = [{'index': core, 'occupation': 1.0}]
    harness.run(task)
    assert sorted(lines(task, 'log')) == [f'0 {mine[0]}', f'1 {mine[-1]}']


@pytest.mark.parametrize(('gpu_type', 'name'), [
    ('CUDA', 'CUDA_VISIBLE_DEVICES'), ('ROCm', 'ROCR_VISIBLE_DEVICES'), ('Intel', 'ZE_AFFINITY_MASK')])
def test_ranks_see_the_gpus_of_their_slots(make: Make, gpu_type: str, name: str) -> None:
    harness = make(CUDA_VISIBLE_DEVICES='0,1,2,3')
    task = harness.task(**sh(rf'echo \$RP_RANK \${name} >>log'), ranks=2, gpus_per_rank=2.0, gpu_type=gpu_type)
    assert task.slots is not None
    for slot, gpus in zip(task.slots, ((0, 3), (1, 2)), strict=True):
        slot['gpus'] = [{'index': gpu, 'occupation': 1.0} for gpu in gpus]
    harness.run(task)
    assert sorted(lines(task, 'log')) == ['0 0,3', '1 1,2']


@pytest.mark.parametrize('commands', [{}, {'pre_exec': ['true']}])
def test_ranks_without_gpus_see_none(make: Make, commands: dict[str, Any]) -> None:
    harness = make(CUDA_VISIBLE_DEVICES='0,1,2,3')
    task = harness.task(**sh(r'env | grep _VISIBLE_DEVICES >>log\$RP_RANK'), ranks=2, gpu_type='CUDA', **commands)
    assert task.slots is not None
    task.slots[1]['gpus'] = [{'index': 2, 'occupation': 1.0}]
    harness.run(task)
    assert sorted(lines(task, 'log0')) == ['CUDA_VISIBLE_DEVICES=', 'ROCR_VISIBLE_DEVICES=']
    assert lines(task, 'log1') == ['CUDA_VISIBLE_DEVICES=2']


def test_threads(harness: Harness) -> None:
    task = harness.run_one(**sh(r'echo \$OMP_NUM_THREADS'), ranks=2, cores_per_rank=3, threading_type='OpenMP')
    assert lines(task, 'task.000000.out') == ['3', '3']


def test_the_method_brings_its_own_environment(make: Make) -> None:
    platform = {'launch_methods': {'order': ['MPIEXEC'], 'MPIEXEC': {'pre_exec': ['export MPI_HOME="$SITE/mpi"']}}}
    task = make(platform=platform).run_one(**sh(r'echo \$MPI_HOME'), ranks=2)
    assert lines(task, 'task.000000.out') == ['here/mpi'] * 2, task.exception_detail


@pytest.mark.parametrize('launch', [[], ['true']])
def test_a_rank_that_fails(harness: Harness, launch: list[str]) -> None:
    task = harness.run_one(**sh(r'test \$RP_RANK != 1 || exit 7'), ranks=3, pre_launch=launch)
    assert (task.target_state, task.exit_code) == (states.FAILED, 7)
    assert task.exception_detail is not None
    assert task.exception_detail.startswith(f'exit code: 7 of rank 1; launched by `{harness.path}/bin/mpiexec -np 3')
    assert task.error == {'kind': 'exit', 'sentence': 'exit code: 7 of rank 1'}


def test_several_ranks_that_fail(harness: Harness) -> None:
    task = harness.run_one(**sh('exit 3'), ranks=3)
    assert task.exit_code == 3
    assert '(so did 2 more of 3 ranks)' in (task.exception_detail or '')


@pytest.mark.parametrize(('text', 'code', 'detail'), [
    # what the launcher makes of a rank that fails
    (HYDRA.replace('exit "$code"', 'exit 0'), 7, 'exit code: 7 of rank 1; launched by `'),
    ('echo "no such option: $1" >&2; exit 2', 2, 'exit code: 2 of the launcher MPIEXEC (started 3 times); launched'),
    ('printf "\\377\\000garbage"; exit 9', 9, 'exit code: 9 of the launcher MPIEXEC (started 3 times); launched by'),
    ('exit 0', None, 'launcher MPIEXEC ended with exit code 0, but has started no rank; launched by `'),
    ('kill -KILL $$', -9, 'killed by signal 9 (SIGKILL) of the launcher MPIEXEC (started 3 times); launched by `'),
], ids=['ends with 0', 'refuses its options', 'prints garbage', 'starts nothing', 'is killed'])
def test_a_launcher_that_fails(make: Make, text: str, code: int | None, detail: str) -> None:
    harness = make(VERSION + text)
    task = harness.run_one(**sh(r'test \$RP_RANK != 1 || exit 7'), ranks=2)
    assert (task.target_state, task.exit_code) == (states.FAILED, code)
    assert (task.exception_detail or '').startswith(detail), task.exception_detail
    assert task.error is not None
    assert task.error['kind'] == ('launch' if code is None else 'signal' if code < 0 else 'exit')
    assert task.error['sentence'] == detail.partition(';')[0]
    if code == 2:
        assert 'task.000000.err, which ends with:\nno such option: -np' in (task.exception_detail or '')


def test_a_launcher_that_fails_at_first_is_started_again(make: Make, tmp_path: Path) -> None:
    harness = make(f'{VERSION}mkdir "${{0%/*}}/once" && exit 1\n{HYDRA}', profile=tmp_path / 'prof')
    task = harness.run_one(ranks=2)
    harness.tracer.flush()
    assert (task.target_state, task.exit_code) == (states.DONE, 0)
    rows = [line.split(',') for line in (tmp_path / 'prof').read_text().splitlines()[1:]]
    events = [row[1] for row in rows if row[4] == task.uid and row[1] != 'advance']
    assert len(events) == len(set(events)), 'it is one task all the same'


def test_cancelled_between_two_launches(make: Make) -> None:
    harness = make(f'{VERSION}: >"${{0%/*}}/tried"; exit 1')
    task = harness.task(ranks=2)

    def cancel_when_aside() -> None:
        if (harness.path / 'bin' / 'tried').exists() and not harness.executor._reaper.running:
            harness.executor.cancel([task.uid])
        else:
            harness.loop.call_later(0.005, cancel_when_aside)

    harness.loop.call_soon(cancel_when_aside)
    harness.run(task)
    assert task.target_state == states.CANCELED


def test_a_launcher_that_is_killed_leaves_no_ranks(make: Make) -> None:
    harness = make(VERSION + 'shift 4; PMI_RANK=0 setsid "$@" & PMI_RANK=1 "$@" & '
                             'while ! test -s "${0%/*}/../up"; do sleep 0.01; done; kill -KILL $$')
    task = harness.run_one(**sh(r'test \$RP_RANK = 1 || echo up >../up; sleep 1000'), ranks=2)
    assert (task.target_state, task.exit_code) == (states.FAILED, -9)


@pytest.mark.parametrize(('order', 'text', 'detail'), [
    ([], HYDRA, 'no launch method of the platform can start task.000000'),
    (['FORK'], HYDRA, 'FORK: it starts one process, not 2 ranks'),
    (['FORK', 'MPIEXEC'], 'echo nonsense', 'MPIEXEC: .*/bin/mpiexec is not a known launcher .*printed: nonsense'),
    (['NOSUCH'], HYDRA, "NOSUCH: launch method 'NOSUCH' of the platform is unknown"),
    (['IBRUN'], HYDRA, 'IBRUN: ibrun is not in PATH'),
])
def test_without_a_method_that_fits(make: Make, order: list[str], text: str, detail: str) -> None:
    harness = make(text, {'launch_methods': {'order': order}})
    task, other = harness.task(ranks=2), harness.task('other')
    harness.run(task, other)
    assert task.target_state == states.FAILED
    assert re.search(detail, task.exception_detail or ''), task.exception_detail
    assert other.target_state == states.DONE


def test_a_launcher_that_has_gone(harness: Harness) -> None:
    task = harness.task('task.000001', ranks=2)
    in_turn(harness, [harness.task(ranks=2)], (harness.path / 'bin' / 'mpiexec').unlink, [task])
    assert harness.out[0].target_state == states.DONE
    assert task.exception_detail == f'cannot execute: No such file or directory ({harness.path}/bin/mpiexec)'


def test_a_launcher_that_hangs(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, 'LAUNCH_LIMIT', 0.3)
    task = make(f'{VERSION}exec sleep 1000').run_one(ranks=2)
    assert task.target_state == states.FAILED
    assert (task.exception_detail or '').startswith('MPIEXEC has started no rank within 0.3 s: /')


def test_a_launcher_that_is_slow_but_starts(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, 'LAUNCH_LIMIT', 0.5)
    task = make().run_one(**sh('sleep 1'), ranks=2)
    assert task.target_state == states.DONE, task.exception_detail


def test_startup_timeout(make: Make) -> None:
    harness = make(f'{VERSION}exec sleep 1000')
    task = harness.run_one(ranks=2, startup_timeout=0.2)
    assert task.target_state == states.CANCELED
    assert task.exception_detail == 'startup_timeout: the task did not start to execute within 0.2 s'


def test_timeout_counts_from_the_start_of_the_ranks(harness: Harness) -> None:
    task = harness.run_one(**sh('sleep 1000'), ranks=2, startup_timeout=100.0, timeout=0.1)
    assert task.target_state == states.CANCELED
    assert task.exception_detail == 'timeout: the task ran longer than 0.1 s'


def test_timeout(harness: Harness) -> None:
    task = harness.run_one(**sh('sleep 1000'), ranks=2, timeout=0.3)
    assert (task.target_state, task.exception_detail) == (states.CANCELED, 'timeout: the task ran longer than 0.3 s')


@pytest.mark.parametrize('text', [
    HYDRA, HYDRA.replace("trap 'kill", ": 'kill"), HYDRA.replace('"$@" &', 'setsid "$@" &')],
    ids=['forwards', 'just dies', 'ranks of their own sessions'])
@pytest.mark.parametrize('launch', [[], ['true']])
def test_a_cancelled_task_leaves_nothing(make: Make, text: str, launch: list[str]) -> None:
    harness = make(text, grace=1.0)
    task = harness.task(**sh('echo up >>../up; sleep 1000'), ranks=3, pre_launch=launch)
    up = harness.path / 'up'
    harness.when(lambda: up.exists() and len(up.read_text().splitlines()) == 3,
                 lambda: harness.executor.cancel([task.uid]))
    harness.run(task)
    assert (task.target_state, task.exception) == (states.CANCELED, None)


def test_a_program_that_is_just_starting_gets_the_signal(harness: Harness) -> None:
    """Its script is signalled at once, perhaps before it knows which process to pass that on to."""
    command = 'kill -TERM $PPID; exec sleep 1000'
    task = harness.run_one(executable='sh', arguments=['-c', command.replace('$', r'\$')], pre_exec=['true'], ranks=4)
    assert (task.target_state, task.exit_code) == (states.FAILED, -15), task.exception_detail
    text = (harness.path / 'task.000000/task.000000.exec.sh').read_text()
    assert text.index('trap \'rp_told') < text.index('sleep 1000')


def test_ranks_get_the_signal_that_the_launcher_forwards(make: Make) -> None:
    harness = make()
    command = 'trap "echo saved >>../saved; exit 0" TERM; echo up >>../up; while :; do sleep 0.01; done'
    task = harness.task(executable='sh', arguments=['-c', command], ranks=2)
    up = harness.path / 'up'
    harness.when(lambda: up.exists() and len(up.read_text().splitlines()) == 2,
                 lambda: harness.executor.cancel([task.uid]))
    harness.run(task)
    assert (harness.path / 'saved').read_text() == 'saved\nsaved\n'


def test_cancelled_while_methods_are_looked_for(make: Make) -> None:
    harness = make(f'test "$1" != --version || while ! test -e "${{0%/*}}/go"; do sleep 0.01; done\n{HYDRA}')
    waiting, other = harness.task('waiting', ranks=2), harness.task('other', ranks=2)
    harness.wanted = 2

    def cancel() -> None:
        harness.executor.cancel(['waiting'])
        program(harness.path / 'bin' / 'go', '')

    harness.loop.call_later(0.05, cancel)
    harness.run(waiting, other)
    assert (waiting.target_state, other.target_state) == (states.CANCELED, states.DONE)
    assert calls(harness) == 1


def test_stopped_while_methods_are_looked_for(make: Make) -> None:
    harness = make(f'test "$1" != --version || while ! test -e "${{0%/*}}/go"; do sleep 0.01; done\n{HYDRA}')
    task = harness.task(ranks=2)
    stopped: list[bool] = []
    harness.loop.call_later(0.05, harness.executor.stop, lambda: stopped.append(True), 'the pilot ends')
    harness.run(task)
    program(harness.path / 'bin' / 'go', '')
    assert task.target_state == states.CANCELED
    assert calls(harness) == 0
    assert stopped == [True]
