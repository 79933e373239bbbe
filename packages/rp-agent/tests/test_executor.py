"""What all executors that start processes of this node keep to, with real processes; see test_executor_contract.py."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from executor_support import SHELLS, Harness, a_family, a_slot, harnesses, sh, text, use_as_sh, wait_for_end

from rp_agent.executor.popen import component
from rp_agent.executor.popen.component import STARTS_PER_TURN, Executor
from rp_agent.executor.processes import launchloop
from rp_agent.executor.processes.launch import cpu_mask
from rp_agent.executor.processes.launchloop import OWN, SPARE
from rp_agent.executor.shell import ShellExecutor
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.system import processes
from rp_api.system.gpus import NO_GPUS
from rp_profiling.write.detail import Detail


@pytest.fixture(params=['POPEN', *SHELLS])
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
         monkeypatch: pytest.MonkeyPatch) -> type[Executor]:
    """The executor: the default one, or the one with a shell, which is one of several programs."""
    if request.param == 'POPEN':
        return Executor
    use_as_sh(request.param, tmp_path_factory.mktemp('bin'), monkeypatch)
    return ShellExecutor


@pytest.fixture
def make(kind: type[Executor], tmp_path: Path) -> Iterator[Callable[..., Harness]]:
    with harnesses(tmp_path, kind) as made:
        yield made


@pytest.fixture
def harness(make: Callable[..., Harness]) -> Harness:
    return make()


def test_outputs(harness: Harness) -> None:
    task = harness.run_one(**sh('echo out; echo err >&2'))
    assert text(task, 'task.000000.out') == 'out\n'
    assert text(task, 'task.000000.err') == 'err\n'
    assert sorted(os.listdir(task.sandbox)) == ['task.000000.err', 'task.000000.out']


@pytest.mark.parametrize(('command', 'code', 'detail'), [
    ('exit 3', 3, 'exit code: 3'),
    ('exit 255', 255, 'exit code: 255'),
    ('kill -KILL $$', -9, 'killed by signal 9 (SIGKILL)'),
    ('kill -INT $$', -2, 'killed by signal 2 (SIGINT)'),
    ('kill -PIPE $$', -13, 'killed by signal 13 (SIGPIPE)'),
    ('kill -34 $$', -34, 'killed by signal 34 (SIGRTMIN'),
    ('kill -SEGV $$', -11, 'killed by signal 11 (SIGSEGV)'),
])
def test_failures(harness: Harness, command: str, code: int, detail: str) -> None:
    task = harness.run_one(**sh(r'ulimit -c 0; ' + command.replace('$', r'\$')))
    assert (task.target_state, task.exit_code) == (states.FAILED, code)
    assert task.exception == "RuntimeError('task failed')"
    assert task.exception_detail is not None
    assert task.exception_detail.startswith(detail)
    assert task.error is not None
    assert (task.error['kind'], task.error.get('signal')) == (
        ('signal', -code) if code < 0 else ('exit', None))
    assert task.error['sentence'].startswith(detail)


def test_the_environment_that_a_task_sees(make: Callable[..., Harness]) -> None:
    """Exactly what the default executor gives, names included that no shell takes, or takes for its own."""
    odd = {'BASH_FUNC_module%%': "() { echo 'x' \"$1\"\n}", 'OPTIND': 'x', 'IFS': ':', 'UID': 'me'}
    harness = make(**odd)
    task = harness.run_one(executable='env', arguments=['-0'],
                           environment={'MINE': 'two\nlines ü $HOME', 'A.B': "it's", 'PS1': 'x', '_': '1'})
    seen = dict(entry.split('=', 1) for entry in text(task, 'task.000000.out').split('\0') if entry)
    assert seen['MINE'] == 'two\nlines ü /nowhere'
    assert (seen['A.B'], seen['_']) == ("it's", '1')
    assert {name: seen[name] for name in odd} == odd
    assert (seen['RP_TASK_ID'], seen['PWD']) == ('task.000000', task.sandbox)
    names = set(seen) - {name for name in seen if name.startswith('RP_')}
    assert names == {'HOME', 'LANG', 'PATH', 'PWD', 'MINE', 'A.B', 'PS1', '_', *odd, *NO_GPUS}


def test_only_tasks_with_gpus_see_those_of_the_job(make: Callable[..., Harness]) -> None:
    harness = make(CUDA_VISIBLE_DEVICES='0,1')
    show = {'executable': 'env', 'arguments': ['-0']}
    with_gpus, without = harness.task('with', **show, gpus_per_rank=1.0), harness.task('without', **show)
    with_gpus.slots = [a_slot(0)]
    harness.run(with_gpus, without)
    seen = {task.uid: {entry for entry in text(task, f'{task.uid}.out').split('\0') if '_VISIBLE_' in entry}
            for task in (with_gpus, without)}
    assert seen == {'with': {'CUDA_VISIBLE_DEVICES=0,1'}, 'without': {'CUDA_VISIBLE_DEVICES=', 'ROCR_VISIBLE_DEVICES='}}


def test_scripts_and_programs_see_the_same_environment(harness: Harness) -> None:
    plain = harness.task(executable='/usr/bin/env', environment={'A': '$HOME'})
    scripted = harness.task(executable='/usr/bin/env', environment={'A': '$HOME'}, pre_exec=['true'], stdout='scripted')
    scripted.sandbox = plain.sandbox
    scripted.uid = 'task.000001'
    harness.run(plain, scripted)
    differs = ('RP_TASK_ID=', 'RP_TASK_NAME=', 'RP_EXEC_PID=', 'OLDPWD=', 'SHLVL=', '_=')

    def seen(name: str) -> list[str]:
        return sorted(line for line in text(plain, name).splitlines() if not line.startswith(differs))

    assert seen('scripted') == seen('task.000000.out')


def test_working_directory_standard_input_and_descriptors(harness: Harness) -> None:
    task = harness.run_one(**sh('pwd; readlink /proc/self/fd/0; cat; ls /proc/self/fd'))
    assert text(task, 'task.000000.out').split() == [task.sandbox, '/dev/null', '0', '1', '2', '3']


@pytest.mark.parametrize('script', [{}, {'pre_exec': ['true']}])
def test_binding_and_memory_limit(harness: Harness, monkeypatch: pytest.MonkeyPatch, script: dict[str, Any]) -> None:
    cpu = max(os.sched_getaffinity(0))
    monkeypatch.setattr(harness.executor._environment, 'bindings', defaultdict(lambda: cpu_mask([cpu])))
    task = harness.run_one(**sh('grep Cpus_allowed_list /proc/self/status; grep "Max data" /proc/self/limits'),
                           mem_per_rank=100, **script)
    words = text(task, 'task.000000.out').split()
    assert words[1] == str(cpu)
    assert words[-3:-1] == [str(100 * 2**20)] * 2


def test_signals_are_the_default_ones(harness: Harness) -> None:
    task = harness.run_one(executable='grep', arguments=['-E', 'Sig(Ign|Blk)', '/proc/self/status'])
    assert {int(line.split()[1], 16) for line in text(task, 'task.000000.out').splitlines()} == {0}


def test_a_task_leads_a_session(harness: Harness) -> None:
    task = harness.run_one(**sh(r'cut -d" " -f5,6 /proc/\$\$/stat; echo \$\$ \$\$'))
    first, second = text(task, 'task.000000.out').splitlines()
    assert first == second


def test_arguments_arrive_unchanged(harness: Harness) -> None:
    words = ['', 'two words', 'new\nline', '"quo\'tes"', 'ünïcödé \U0001f680', '*', r'a\b', r'\$HOME', '~', '-n', 'a=b',
             "'; echo x >../broken; '", '\x81\x88\xff', '\udc81\udcff', ' ' * 70000, ')', '#', '!', '\\', '\r']
    task = harness.run_one(executable='printf', arguments=['%s\\0', *words])
    seen = Path(task.sandbox, 'task.000000.out').read_bytes().split(b'\0')[:-1]
    assert seen == [os.fsencode(word.replace(r'\$', '$')) for word in words]
    assert not (harness.path / 'broken').exists()


@pytest.mark.parametrize('name', ['with space', "it's", 'a=b', '-x', '$HOME', 'ünï', 'new\nline'])
def test_names_that_need_quotes(harness: Harness, name: str) -> None:
    """As sandbox, program and output."""
    task = harness.task(executable=f'./{name}'.replace('$', r'\$'), stdout=name + '.o', stderr=name + '.o')
    task.sandbox = str(harness.path / name)
    Path(task.sandbox).mkdir()
    program = Path(task.sandbox, name)
    program.write_text('#!/bin/sh\npwd\necho err >&2\n')
    program.chmod(0o755)
    harness.run(task)
    assert text(task, name + '.o') == f'{task.sandbox}\nerr\n', task.exception_detail


def test_both_outputs_in_one_file(harness: Harness) -> None:
    task = harness.run_one(**sh('echo 1; echo 2 >&2; echo 3'), stdout='log', stderr='log')
    assert text(task, 'log') == '1\n2\n3\n'


def test_output_replaces_what_an_earlier_run_has_left(harness: Harness) -> None:
    Path(harness.path / 'task.000000').mkdir()
    (harness.path / 'task.000000/task.000000.out').write_text('old, and longer than the new one')
    assert text(harness.run_one(executable='echo', arguments=['new']), 'task.000000.out') == 'new\n'


def test_script_without_interpreter_line(harness: Harness) -> None:
    sandbox = harness.path / 'task.000000'
    sandbox.mkdir()
    (sandbox / 'run').write_text('echo ran\n')
    (sandbox / 'run').chmod(0o755)
    assert text(harness.run_one(executable='./run'), 'task.000000.out') == 'ran\n'


def test_what_a_task_leaves_in_its_group_ends_with_it(harness: Harness) -> None:
    task = harness.run_one(**sh(r'sleep 1000 & echo \$!'))
    assert task.target_state == states.DONE
    wait_for_end(int(text(task, 'task.000000.out')))


def test_commands_before_and_after(harness: Harness) -> None:
    task = harness.run_one(pre_launch=['echo pre_launch >>log'], pre_exec=['echo pre_exec >>log', 'export A=1'],
                           **sh('echo "run $A" >>log'), post_exec=['echo post_exec >>log'],
                           post_launch=['echo post_launch >>log; echo said'])
    assert task.target_state == states.DONE, (task.exception_detail, text(task, 'task.000000.launch.out'))
    # the text of the argument is expanded in the script, where pre_exec has set the variable
    assert text(task, 'log').splitlines() == ['pre_launch', 'pre_exec', 'run 1', 'post_exec', 'post_launch']
    assert text(task, 'task.000000.launch.out') == 'said\n'


def test_commands_of_single_ranks(harness: Harness) -> None:
    task = harness.run_one(pre_exec=[{'0': 'A=zero', '1': ['A=one']}], executable='echo', arguments=['$A'], ranks=3,
                           use_mpi=False)
    assert sorted(text(task, 'task.000000.out').splitlines()) == ['', 'one', 'zero']


def test_failing_commands_show_what_to_look_at(harness: Harness) -> None:
    early, late = harness.task('0', pre_launch=['false']), harness.task('1', pre_exec=['false'])
    harness.run(early, late)
    assert early.exception_detail == (f'exit code: 1, see {early.sandbox}/0.launch.out, which ends with:\n'
                                      'pre_launch failed with exit code 1: false\n')
    assert early.error == {'kind': 'exit', 'sentence': 'exit code: 1', 'path': f'{early.sandbox}/0.launch.out',
                           'lines': 'pre_launch failed with exit code 1: false\n'}
    assert late.error == {'kind': 'exit', 'sentence': 'exit code: 1'}
    assert (late.target_state, late.exit_code, late.exception_detail) == (states.FAILED, 1, 'exit code: 1')
    assert 'pre_exec failed with exit code 1: false' in text(late, '1.err')


@pytest.mark.parametrize(('script', 'detail'), [
    ('no-such-program', 'exit code: 127 (the shell did not find a command)'),
    ('/etc/passwd', 'exit code: 126 (the shell could not execute a command)'),
    ('./die', 'killed by signal 11 (SIGSEGV)'),
])
def test_codes_of_a_shell_are_explained(harness: Harness, script: str, detail: str) -> None:
    task = harness.run_one(pre_exec=["ulimit -c 0; printf 'kill -SEGV $$' >die; chmod +x die"], executable=script)
    assert (task.target_state, task.exception_detail) == (states.FAILED, detail)


@pytest.mark.parametrize('launch', [[], ['true']])
def test_barrier(harness: Harness, launch: list[str]) -> None:
    """No rank starts before all have passed pre_exec; that of rank 1 waits for a sign of the test."""
    task = harness.task(pre_launch=launch, pre_exec=[{'1': 'mkfifo go; echo 1 >ready; read x <go'}, 'echo ready >>log'],
                        **sh('echo run >>log'), ranks=3, use_mpi=False, pre_exec_sync=True)
    sandbox = Path(task.sandbox)
    sandbox.mkdir()
    (sandbox / 'log').touch()
    harness.when(lambda: text(task, 'log') == 'ready\nready\n' and (sandbox / 'ready').exists(),
                 lambda: (sandbox / 'go').write_text('\n'))
    harness.run(task)
    assert task.target_state == states.DONE, (task.exception_detail, text(task, 'task.000000.err'))
    assert text(task, 'log').splitlines() == ['ready'] * 3 + ['run'] * 3


def test_a_rank_that_fails_before_the_barrier_does_not_hold_up_the_others(harness: Harness) -> None:
    task = harness.run_one(pre_exec=[{'0': 'false'}], executable='echo', arguments=['ran'], ranks=2, use_mpi=False,
                           pre_exec_sync=True)
    assert task.exception_detail == 'exit code: 1 of rank 0'
    assert text(task, 'task.000000.out') == 'ran\n'


@pytest.mark.parametrize('launch', [[], ['true']])
def test_what_a_killed_rank_leaves_does_not_hold_up_the_others(harness: Harness, launch: list[str]) -> None:
    """A subshell of a command before the barrier lives on."""
    task = harness.task(pre_launch=launch, pre_exec=[{'1': '(echo $$ >new; mv new pid; while :; do sleep 1; done)'}],
                        executable='echo', arguments=['ran'], ranks=3, use_mpi=False, pre_exec_sync=True)
    pid = Path(task.sandbox) / 'pid'
    harness.when_file(pid, lambda: os.kill(int(pid.read_text()), signal.SIGKILL))
    harness.run(task)
    assert task.target_state == states.FAILED
    assert text(task, 'task.000000.out') == 'ran\nran\n'


@pytest.mark.parametrize(('description', 'exception', 'detail'), [
    ({'executable': 'foo'}, 'LaunchRefused', 'executable not found: foo (searched PATH /usr/bin:/bin)'),
    ({'executable': '/etc/passwd'}, 'LaunchRefused', 'not executable: /etc/passwd'),
    ({'ranks': 2}, 'LaunchRefused', 'ranks=2 needs an MPI launch method'),
    ({'stdout': 'no/such/dir/out'}, 'FileNotFoundError', 'cannot open {sandbox}/no/such/dir/out: No such file'),
    ({'stderr': '.'}, 'IsADirectoryError', 'cannot open {sandbox}/.: Is a directory'),
])
def test_what_cannot_be_started_fails(harness: Harness, description: dict[str, Any], exception: str,
                                      detail: str) -> None:
    good = harness.task('good')
    bad = harness.task('bad', **description)
    harness.run(bad, good)
    assert (good.target_state, bad.target_state, bad.exit_code) == (states.DONE, states.FAILED, None)
    assert bad.exception is not None
    assert bad.exception.startswith(exception)
    assert bad.exception_detail is not None
    assert bad.exception_detail.startswith(detail.format(sandbox=bad.sandbox))


def test_sandbox_that_cannot_be_made(harness: Harness) -> None:
    (harness.path / 'file').touch()
    in_the_way = harness.task('a')
    in_the_way.sandbox = str(harness.path / 'file')
    below = harness.task('b')
    below.sandbox = str(harness.path / 'file' / 'sub' / 'sub')
    harness.run(in_the_way, below)
    assert in_the_way.exception_detail == f'cannot create the task sandbox {harness.path}/file: File exists'
    assert below.exception_detail == f'cannot create the task sandbox {below.sandbox}: Not a directory'


def test_parents_of_the_sandbox_are_made(harness: Harness) -> None:
    task = harness.task()
    task.sandbox = str(harness.path / 'x' / 'y' / 'z')
    harness.run(task)
    assert task.target_state == states.DONE


class Launched:
    """What starts processes, with a look at each start by `admit(number of processes, argv)`, which may raise."""

    def __init__(self, harness: Harness, admit: Callable[[int, list[bytes]], object]) -> None:
        self._launched = harness.executor._reaper.launched
        self._admit = admit
        self.kill = self._launched.kill
        self.full = False
        self.started: list[int] = []

    def start(self, run: Any, rank: int, argv: list[bytes], *arguments: Any) -> launchloop.Process:
        self._admit(len(self.started), argv)
        process: launchloop.Process = self._launched.start(run, rank, argv, *arguments)
        self.started.append(process.pid)
        return process


def replace_launcher(harness: Harness, monkeypatch: pytest.MonkeyPatch, launched: Launched) -> None:
    """Have all tasks started by `launched`, also those that compiled code would start otherwise."""
    monkeypatch.setattr(harness.executor._starter, '_launched', launched)
    monkeypatch.setattr(harness.executor, '_start_plain', lambda task: False)


def test_no_process_can_be_created(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second rank can never be started: the first one ends, and in the end the task fails with the reason."""
    def one_only(count: int, _: list[bytes]) -> None:
        if count:
            raise BlockingIOError(11, 'cannot create a process: Resource temporarily unavailable')

    launched = Launched(harness, one_only)
    monkeypatch.setattr(component, 'SHORTAGE_LIMIT', 0)
    replace_launcher(harness, monkeypatch, launched)
    task = harness.run_one(executable='sleep', arguments=['1000'], ranks=2, use_mpi=False)
    assert task.target_state == states.FAILED
    assert task.exception_detail == ('cannot create a process: Resource temporarily unavailable '
                                     '(for 0 s, with no other task running)')
    wait_for_end(launched.started[0])


@pytest.mark.parametrize('running', [0, 1])
def test_a_shortage_passes(running: int, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that cannot be started now are started later, in their order: when another one ends, or after a while."""
    attempts: list[bytes] = []

    def sometimes(_: int, argv: list[bytes]) -> None:
        attempts.append(argv[-1])
        if running < len(attempts) < running + 3:
            raise OSError(24, 'cannot create a process: Too many open files')

    monkeypatch.setattr(component, 'RETRY_AFTER', 0.05)
    replace_launcher(harness, monkeypatch, Launched(harness, sometimes))
    tasks = [harness.task(f'task.{number}', executable='/bin/sleep', arguments=[f'0.{number}']) for number in range(4)]
    harness.run(*tasks)
    assert {task.target_state for task in tasks} == {states.DONE}
    delayed = [b'0.0', b'0.1'][running]
    assert attempts == [b'0.0'] * running + [delayed] * 3 + [b'0.1', b'0.2', b'0.3'][running:]


def test_cancel_of_a_task_that_waits_for_a_shortage_to_pass(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise OSError(11, 'cannot create a process: Resource temporarily unavailable')

    replace_launcher(harness, monkeypatch, Launched(harness, never))
    harness.loop.call_later(0.01, lambda: harness.executor.cancel(['task.000000']))
    assert harness.run_one().target_state == states.CANCELED


@pytest.fixture
def few_descriptors() -> Iterator[Callable[[int], None]]:
    """Lets this process have so many open files more than it has."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def limit(more: int) -> None:
        used = {int(name) for name in os.listdir('/proc/self/fd')}
        free = [number for number in range(more + len(used)) if number not in used]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[more - 1] + 1, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_tasks_wait_for_descriptors(make: Callable[..., Harness], few_descriptors: Callable[[int], None]) -> None:
    """Many more tasks than can be followed at a time; one has more ranks than that, and waits for the others to end."""
    few_descriptors(20 + OWN + SPARE)
    harness = make()
    tasks = [harness.task(f'task.{index:06d}', **sh('read x <../go'), ranks=16 if index == 20 else 1, use_mpi=False)
             for index in range(40)]
    os.mkfifo(harness.path / 'go')
    go = os.open(harness.path / 'go', os.O_RDWR | os.O_CLOEXEC)
    harness.when(lambda: harness.executor._retry, lambda: os.write(go, b'\n' * 200))
    harness.run(*tasks)
    os.close(go)
    assert {task.target_state for task in tasks} == {states.DONE}, {task.exception_detail for task in tasks}


def test_a_lack_of_descriptors_does_not_last_for_ever(make: Callable[..., Harness],
                                                      few_descriptors: Callable[[int], None],
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(component, 'SHORTAGE_LIMIT', 0.01)
    monkeypatch.setattr(component, 'RETRY_AFTER', 0.01)
    few_descriptors(20 + OWN + SPARE)
    harness = make()
    large, small = harness.task('large', ranks=100, use_mpi=False), harness.task('small')
    harness.run(large, small)
    assert (large.target_state, small.target_state) == (states.FAILED, states.DONE)
    assert str(large.exception_detail).startswith('the agent can watch at most ')


def test_tasks_that_end_together_come_out_together(harness: Harness) -> None:
    harness.run(*(harness.task(f'task.{index}', executable='no-such-program') for index in range(5)))
    assert [len(bulk) for bulk in harness.bulks] == [5]


def test_many_tasks_few_at_a_time(harness: Harness) -> None:
    tasks = [harness.task(f'task.{index:06d}', **sh(f'exit {index % 3}'))
             for index in range(200)]
    waiting = iter(tasks[8:])
    harness.on_output = lambda ended: harness.executor.put(
        [task for task in (next(waiting, None) for _ in ended) if task is not None])
    harness.wanted = 200
    harness.executor.put(tasks[:8])
    harness.wait()
    assert [task.exit_code for task in tasks] == [index % 3 for index in range(200)]


def test_a_large_bulk_is_started_in_several_turns(harness: Harness) -> None:
    count = 3 * STARTS_PER_TURN + 1
    turns: list[int] = []

    def count_turns() -> None:
        turns.append(len(harness.executor._reaper.running))
        if len(harness.out) < count:
            harness.loop.call_soon(count_turns)

    harness.loop.call_soon(count_turns)
    harness.run(*(harness.task(f'task.{index}') for index in range(count)))
    assert len(harness.out) == count
    assert turns[0] <= STARTS_PER_TURN


def test_cancel(harness: Harness) -> None:
    task = harness.task(executable='sleep', arguments=['1000'])
    harness.loop.call_soon(harness.executor.cancel, ['no.such.task', task.uid])
    harness.run(task)
    assert (task.target_state, task.exit_code, task.exception) == (states.CANCELED, -signal.SIGTERM, None)


def test_cancel_twice(harness: Harness) -> None:
    task = harness.task(executable='sleep', arguments=['1000'])
    harness.loop.call_soon(harness.executor.cancel, [task.uid])
    harness.loop.call_soon(harness.executor.cancel, [task.uid])
    harness.run(task)
    assert len(harness.out) == 1


def test_cancel_of_two_hundred(harness: Harness) -> None:
    """Whatever state they are in: some run, some are being started, some wait."""
    tasks = [harness.task(f'task.{index:06d}', executable='sleep', arguments=['1000']) for index in range(200)]
    harness.when(lambda: sum(bool(run.leaders) for run in harness.executor._reaper.running.values()) > 20,
                 lambda: harness.executor.cancel([task.uid for task in tasks]))
    harness.run(*tasks)
    assert {task.target_state for task in tasks} == {states.CANCELED}
    assert {task.exit_code for task in tasks} <= {-signal.SIGTERM, None}
    assert harness.run_one().target_state == states.DONE


def test_cancelled_before_it_was_started(harness: Harness) -> None:
    early, queued, good = harness.task('early'), harness.task('queued'), harness.task('good')
    many = [harness.task(f'task.{index}') for index in range(STARTS_PER_TURN)]
    early.cancelled = True
    harness.wanted = len(many) + 3
    harness.executor.put([early, *many, queued, good])
    harness.executor.cancel(['queued'])
    harness.wait()
    assert [task.target_state for task in (early, queued, good)] == [states.CANCELED, states.CANCELED, states.DONE]
    assert not Path(early.sandbox).exists()
    assert not Path(queued.sandbox).exists()


def test_cancel_reaches_children_and_daemons(harness: Harness) -> None:
    task = a_family(harness)
    harness.when_file(Path(task.sandbox, 'ready'), lambda: harness.executor.cancel([task.uid]))
    harness.run(task)
    pids = [int(line) for line in text(task, 'pids').split()]
    assert len(pids) == 3
    for pid in pids:
        wait_for_end(pid)


def test_a_task_that_ignores_sigterm_is_killed(make: Callable[..., Harness]) -> None:
    harness = make(grace=0.05)
    task = harness.task(**sh("trap '' TERM; echo x >ready; while :; do sleep 1000; done"))
    harness.when_file(Path(task.sandbox, 'ready'), lambda: harness.executor.cancel([task.uid]))
    harness.run(task)
    assert (task.target_state, task.exit_code) == (states.CANCELED, -signal.SIGKILL)


def test_what_a_shell_started_may_use_its_grace_period(harness: Harness) -> None:
    """SIGTERM ends the shell at once, but not its child, which has something to save."""
    child = "trap 'echo saved >saved; exit' TERM; echo x >ready; while :; do sleep 1000 & wait; done"
    task = harness.task(pre_exec=['true'], **sh(child.replace('$', r'\$')))
    harness.when_file(Path(task.sandbox, 'ready'), lambda: harness.executor.cancel([task.uid]))
    harness.run(task)
    assert task.target_state == states.CANCELED
    assert text(task, 'saved') == 'saved\n'


def test_cancel_without_descriptors_left(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptors(*_: Any) -> list[int]:
        raise OSError(errno.EMFILE, 'Too many open files')

    def cancel() -> None:
        for name in ('kill_tree', 'sweep', 'process_table'):
            monkeypatch.setattr(processes, name, no_descriptors)
        harness.executor.cancel([task.uid])

    task = harness.task(**sh('echo >ready; sleep 1000; true'))
    harness.when_file(Path(task.sandbox, 'ready'), cancel)
    harness.run(task)
    assert (task.target_state, task.exit_code) == (states.CANCELED, -signal.SIGTERM)


def test_processes_that_do_not_die_do_not_hold_up_the_task(make: Callable[..., Harness],
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the task's processes waited for a dead file server: no signal has any effect."""
    harness = make(grace=0.02)
    monkeypatch.setattr(processes, 'kill_tree', lambda roots, sig: [])
    monkeypatch.setattr(processes, 'sweep', lambda match, sig: [])
    task = harness.task(executable='sleep', arguments=['1000'])
    pids: list[int] = []
    harness.loop.call_soon(lambda: pids.extend(harness.executor._reaper.running[task.uid].pids))
    harness.loop.call_soon(harness.executor.cancel, [task.uid])
    harness.run(task)
    assert task.target_state == states.CANCELED
    assert task.exception_detail == (f'the task was ended, but processes of it cannot be killed and may still run '
                                     f'(sessions {pids})')
    with suppress(ProcessLookupError):   # with its shell, it may have ended
        os.killpg(pids[0], signal.SIGKILL)
    wait_for_end(pids[0])
    with suppress(ChildProcessError):   # a shell started it
        os.waitpid(pids[0], 0)


def test_startup_timeout(harness: Harness) -> None:
    task = harness.run_one(pre_launch=['sleep 1000'], startup_timeout=0.02, timeout=1000.0)
    assert task.target_state == states.CANCELED
    assert task.exception_detail == 'startup_timeout: the task did not start to execute within 0.02 s'


def test_the_timeout_counts_from_the_start_of_execution(harness: Harness) -> None:
    task = harness.run_one(pre_launch=['true'], executable='sleep', arguments=['1000'], startup_timeout=1000.0,
                           timeout=0.02)
    assert task.exception_detail == 'timeout: the task ran longer than 0.02 s'


def test_a_task_that_has_started_in_time(harness: Harness) -> None:
    task = harness.run_one(pre_launch=['true'], startup_timeout=1000.0, timeout=1000.0)
    assert task.target_state == states.DONE


def test_orphans_of_tasks_are_reaped(kind: type[Executor], tmp_path: Path) -> None:
    """One task leaves a daemon, which ends with it; the next one runs until that is gone, and no zombie either."""
    (tmp_path / 'leave').write_text('setsid sh -c \'echo $$ >../pid; exec sleep 1000\' &\n'
                                    'until test -s ../pid; do :; done\n')
    (tmp_path / 'wait').write_text('while test -e /proc/$(cat ../pid); do :; done\n')
    program = f'''if True:
        import os
        from pathlib import Path
        from executor_support import Harness
        from {kind.__module__} import {kind.__name__}
        from rp_agent.lineage import become_subreaper
        become_subreaper()
        path = Path({str(tmp_path)!r})
        harness = Harness(path, {kind.__name__})
        leave = harness.task('0', executable='/bin/sh', arguments=['../leave'])
        wait = harness.task('1', executable='/bin/sh', arguments=['../wait'])
        harness.on_output = lambda tasks: harness.executor.put([wait] if tasks == [leave] else [])
        harness.wanted = 2
        harness.executor.put([leave])
        harness.wait()
        harness.close()
        try:
            print(os.waitid(os.P_ALL, 0, os.WEXITED))
        except ChildProcessError:
            print('no child', wait.target_state)
    '''
    ran = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, timeout=30, check=False,
                         env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)})
    assert ran.stdout == 'no child DONE\n', ran.stderr


def test_leftovers_of_a_run_that_was_given_up_are_not_looked_for(harness: Harness) -> None:
    """On a busy machine both may be due at the same time."""
    task = harness.task()
    harness.executor.put([task])
    (run,) = harness.executor._reaper.running.values()
    harness.wanted = 1
    harness.wait()
    harness.executor._reaper._look_again(run)
    harness.executor.check()
    assert harness.out == [task]


def test_events_of_a_plain_task(make: Callable[..., Harness], tmp_path: Path) -> None:
    harness = make(profile=tmp_path / 'x.prof')
    harness.run_one()
    assert harness.events() == [
        'task_start', 'task_mkdir', 'task_mkdir_done', 'task_run_start', 'task_run_ok', 'launch_start', 'launch_pre',
        'launch_submit', 'exec_start', 'exec_pre', 'rank_start', 'rank_stop', 'exec_post', 'exec_stop',
        'launch_collect', 'launch_post', 'launch_stop', 'task_run_stop']


def events_in(task: AgentTask) -> list[str]:
    return [line.split(',')[1] for line in text(task, f'{task.uid}.prof').splitlines()]


def test_events_of_a_task_with_scripts(make: Callable[..., Harness], tmp_path: Path) -> None:
    harness = make(profile=tmp_path / 'x.prof', detail=Detail(), prof='/prof')
    with_exec, with_launch = harness.task('task.0', pre_exec=['true']), harness.task('task.1', pre_launch=['true'])
    harness.run(with_exec, with_launch)
    ours = ['task_start', 'task_mkdir', 'task_mkdir_done', 'task_run_start', 'task_run_ok', 'task_run_stop']
    launch = ['launch_start', 'launch_pre', 'launch_submit', 'launch_collect', 'launch_post', 'launch_stop']
    execute = ['exec_start', 'exec_pre', 'rank_start', 'rank_stop', 'exec_post', 'exec_stop']
    assert sorted(harness.events()) == sorted(ours + ours + launch)
    assert events_in(with_exec) == execute
    assert events_in(with_launch) == launch[:3] + execute + launch[3:]


def test_events_of_a_cancelled_task(make: Callable[..., Harness], tmp_path: Path) -> None:
    harness = make(profile=tmp_path / 'x.prof')
    harness.run_one(executable='sleep', arguments=['1000'], timeout=0.01)
    assert [event for event in harness.events() if event.startswith('task_')][-4:] == [
        'task_timeout', 'task_run_cancel_start', 'task_run_stop', 'task_run_cancel_stop']
