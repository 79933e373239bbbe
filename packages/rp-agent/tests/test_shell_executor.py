"""The executor with a persistent shell, with real processes."""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from children import children
from executor_support import a_slot, sh
from leftovers import end_of, open_descriptors
from spawner_support import SpawnerHarness, text

from rp_agent.executor.processes.launch import cpu_mask
from rp_agent.executor.processes.launchloop import SPARE
from rp_agent.executor.shell import component as shell
from rp_agent.executor.shell import process
from rp_agent.executor.shell import program as shell_program
from rp_agent.executor.shell.component import ShellExecutor
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.errors import PlatformError
from rp_api.system import processes
from rp_api.system.gpus import NO_GPUS
from rp_api.system.processes import pidfd_open, read_process
from rp_profiling.write.detail import Detail


class Harness(SpawnerHarness):
    """A shell executor."""

    executor: ShellExecutor

    def __init__(self, tmp_path: Path, *, grace: float = 5.0, **arguments: Any) -> None:
        super().__init__(tmp_path, partial(ShellExecutor, grace=grace), **arguments)

    @property
    def shell(self) -> int:
        """The process of the shell that runs."""
        assert self.executor._shell is not None
        return self.executor._shell.pid


SHELLS = [path for path in ('/bin/dash', '/bin/bash') if os.access(path, os.X_OK)]

EVERY_SHELL = pytest.mark.parametrize('program', SHELLS, indirect=True)


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
            monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that is /bin/sh, when a test asks for one."""
    path = getattr(request, 'param', None)
    if path is not None:
        link = tmp_path_factory.mktemp('bin') / 'sh'
        link.symlink_to(path)
        monkeypatch.setattr(process, 'SHELL', str(link))


@pytest.fixture
def make(program: None, tmp_path: Path) -> Iterator[Callable[..., Harness]]:
    made: list[Harness] = []

    def harness(**arguments: Any) -> Harness:
        made.append(Harness(tmp_path, **arguments))
        return made[-1]

    others = children()
    before = open_descriptors()
    yield harness
    for each in made:
        each.close()
    assert open_descriptors() <= before, 'the executor has left descriptors open'
    assert children() <= others
    for name in filter(str.isdigit, os.listdir('/proc')):
        if of_task(int(name), tmp_path):
            wait_for_end(int(name))


@pytest.fixture
def harness(make: Callable[..., Harness]) -> Harness:
    return make()


def of_task(pid: int, path: Path) -> bool:
    """Whether the process runs in the directory of the test, which its tasks do."""
    try:
        return os.readlink(f'/proc/{pid}/cwd').startswith(f'{path}/')
    except OSError:
        return False


def wait_for_end(pid: int) -> None:
    """A process that was sent SIGKILL ends when it is scheduled next."""
    pidfd = pidfd_open(pid)
    if pidfd is not None:
        assert select.select([pidfd], [], [], 30)[0], f'process {pid} still runs'
        os.close(pidfd)


def when_file(harness: Harness, path: Path, action: Callable[[], object]) -> None:
    """Call `action` in the loop once the file is there and has a line."""
    harness.when(lambda: path.exists() and path.read_text().endswith('\n'), action)


def test_a_task_is_done(harness: Harness) -> None:
    task = harness.run_one(**sh('echo out; echo err >&2'))
    assert (task.target_state, task.exit_code, task.exception, task.exception_detail) == (states.DONE, 0, None, None)
    assert text(task, 'task.000000.out') == 'out\n'
    assert text(task, 'task.000000.err') == 'err\n'
    assert harness.states == [('AGENT_EXECUTING', ['task.000000']), ('AGENT_STAGING_OUTPUT_PENDING', ['task.000000'])]
    assert sorted(os.listdir(task.sandbox)) == ['task.000000.err', 'task.000000.out']


@pytest.mark.parametrize('more', [{}, {'pre_exec': ['true']}])
def test_literal_arguments(harness: Harness, more: dict[str, Any]) -> None:
    task = harness.run_one(executable='echo', arguments=['$PWD', '`pwd`', r'\$'], literal_arguments=True, **more)
    assert text(task, 'task.000000.out') == '$PWD `pwd` \\$\n'


def test_one_shell_runs_all_tasks(harness: Harness) -> None:
    """The parent of a task's process is the shell itself."""
    tasks = [harness.task(f'task.{index}', **sh(r'echo \$PPID')) for index in range(5)]
    harness.run(*tasks)
    assert {text(task, f'{task.uid}.out') for task in tasks} == {f'{harness.shell}\n'}


@EVERY_SHELL
@pytest.mark.parametrize(('command', 'code', 'detail'), [
    ('exit 3', 3, 'exit code: 3'),
    ('exit 127', 127, 'exit code: 127 (the shell did not find a command)'),
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
        ('signal', -code) if code < 0 else ('launch' if code == 127 else 'exit', None))
    assert task.error['sentence'].startswith(detail)


@EVERY_SHELL
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


@EVERY_SHELL
def test_working_directory_standard_input_and_descriptors(harness: Harness) -> None:
    task = harness.run_one(**sh('pwd; readlink /proc/self/fd/0; cat; ls /proc/self/fd'))
    assert text(task, 'task.000000.out').split() == [task.sandbox, '/dev/null', '0', '1', '2', '3']


@EVERY_SHELL
@pytest.mark.parametrize('script', [{}, {'pre_exec': ['true']}])
def test_binding_and_memory_limit(harness: Harness, monkeypatch: pytest.MonkeyPatch, script: dict[str, Any]) -> None:
    cpu = max(os.sched_getaffinity(0))
    monkeypatch.setattr(harness.executor._environment, 'binding', lambda cores: cpu_mask([cpu]))
    task = harness.run_one(**sh('grep Cpus_allowed_list /proc/self/status; grep "Max data" /proc/self/limits'),
                           mem_per_rank=100, **script)
    words = text(task, 'task.000000.out').split()
    assert words[1] == str(cpu)
    assert words[-3:-1] == [str(100 * 2**20)] * 2


@EVERY_SHELL
def test_signals_are_the_default_ones(harness: Harness) -> None:
    task = harness.run_one(executable='grep', arguments=['-E', 'Sig(Ign|Blk)', '/proc/self/status'])
    assert {int(line.split()[1], 16) for line in text(task, 'task.000000.out').splitlines()} == {0}


def test_a_task_leads_a_session(harness: Harness) -> None:
    task = harness.run_one(**sh(r'cut -d" " -f5,6 /proc/\$\$/stat; echo \$\$ \$\$'))
    first, second = text(task, 'task.000000.out').splitlines()
    assert first == second


@EVERY_SHELL
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


def test_output_replaces_what_an_earlier_run_has_left(harness: Harness) -> None:
    Path(harness.path / 'task.000000').mkdir()
    (harness.path / 'task.000000/task.000000.out').write_text('old, and longer than the new one')
    assert text(harness.run_one(executable='echo', arguments=['new']), 'task.000000.out') == 'new\n'


def test_ranks_are_plain_processes(harness: Harness) -> None:
    task = harness.run_one(**sh(r'echo \$RP_RANK/\$RP_RANKS; exit \$RP_RANK'), ranks=3, use_mpi=False)
    assert sorted(text(task, 'task.000000.out').split()) == ['0/3', '1/3', '2/3']
    assert (task.target_state, task.exit_code) == (states.FAILED, 1)
    assert task.exception_detail == 'exit code: 1 of rank 1 (so did 1 more of 3 ranks)'


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


def test_what_is_left_of_a_process_that_the_shell_has_reaped_before_it_was_watched(
        harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_late(pid: int) -> None:
        assert end_of(pid)

    monkeypatch.setattr(processes, 'pidfd_open', too_late)
    task = harness.run_one(**sh(r'sleep 1000 & echo \$!'))
    assert task.target_state == states.DONE
    wait_for_end(int(text(task, 'task.000000.out')))


def test_commands_before_and_after(harness: Harness) -> None:
    task = harness.run_one(pre_launch=['echo pre_launch >>log'], pre_exec=['echo pre_exec >>log', 'export A=1'],
                           **sh('echo "run $A" >>log'), post_exec=['echo post_exec >>log'],
                           post_launch=['echo post_launch >>log; echo said'])
    assert task.target_state == states.DONE, (task.exception_detail, text(task, 'task.000000.launch.out'))
    assert text(task, 'log').splitlines() == ['pre_launch', 'pre_exec', 'run 1', 'post_exec', 'post_launch']
    assert text(task, 'task.000000.launch.out') == 'said\n'


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


def test_codes_of_scripts_are_those_of_a_shell(harness: Harness) -> None:
    task = harness.run_one(pre_exec=['ulimit -c 0'], **sh(r'kill -SEGV \$\$'))
    assert task.exception_detail == 'killed by signal 11 (SIGSEGV)'
    assert task.error == {'kind': 'signal', 'signal': 11, 'sentence': task.exception_detail}


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


@pytest.mark.parametrize(('description', 'detail'), [
    ({'executable': 'foo'}, 'executable not found: foo (searched PATH /usr/bin:/bin)'),
    ({'executable': '/etc/passwd'}, 'not executable: /etc/passwd'),
    ({'ranks': 2}, 'ranks=2 needs an MPI launch method'),
    ({'stdout': 'no/such/dir/out'}, 'cannot open {sandbox}/no/such/dir/out: No such file'),
    ({'stderr': '.'}, 'cannot open {sandbox}/.: Is a directory'),
    ({'arguments': ['x' * 3_000_000]}, 'exit code: 126 (the shell could not execute a command)'),
    ({'executable': './loose'}, 'exit code: 127 (the shell did not find a command)'),
])
def test_what_cannot_be_started_fails(harness: Harness, description: dict[str, Any], detail: str) -> None:
    good = harness.task('good')
    bad = harness.task('bad', **description)
    Path(bad.sandbox).mkdir()
    loose = Path(bad.sandbox, 'loose')
    loose.write_text('#!/no/such/interpreter\n')
    loose.chmod(0o755)
    harness.run(bad, good)
    assert (good.target_state, bad.target_state) == (states.DONE, states.FAILED)
    assert bad.exception_detail is not None
    assert bad.exception_detail.startswith(detail.format(sandbox=bad.sandbox))


def test_arguments_that_are_too_long_are_named_in_the_output(harness: Harness) -> None:
    task = harness.run_one(arguments=['x' * 200_000])
    assert 'Argument list too long' in text(task, 'task.000000.err')


def test_sandbox_that_cannot_be_made(harness: Harness) -> None:
    (harness.path / 'file').touch()
    in_the_way, below = harness.task('a'), harness.task('b')
    in_the_way.sandbox = str(harness.path / 'file')
    below.sandbox = str(harness.path / 'file' / 'sub' / 'sub')
    harness.run(in_the_way, below)
    assert in_the_way.exception_detail == f'cannot create the task sandbox {harness.path}/file: File exists'
    assert below.exception_detail == f'cannot create the task sandbox {below.sandbox}: Not a directory'


@EVERY_SHELL
def test_sandbox_that_vanishes(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its making and its use by the shell, which can only say so."""
    task = harness.task(stdout='/dev/null', stderr='/dev/null')
    send = harness.executor._send

    def too_late(commands: bytes) -> None:
        if Path(task.sandbox).exists():
            Path(task.sandbox).rmdir()
        send(commands)

    monkeypatch.setattr(harness.executor, '_send', too_late)
    harness.run(task)
    assert task.target_state == states.FAILED
    assert task.exception_detail is not None
    assert task.exception_detail.startswith('the shell could not prepare the task')
    assert "can't cd to" in task.exception_detail or 'No such file' in task.exception_detail


@EVERY_SHELL
def test_pipes_that_the_shell_cannot_open(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('rp_agent.executor.shell.run._path', lambda descriptor: b'/no/such/pipe')
    tasks = [harness.task('0', pre_exec=['true'], ranks=2, use_mpi=False, pre_exec_sync=True),
             harness.task('1', pre_launch=['true'], startup_timeout=1000.0), harness.task('2')]
    harness.run(*tasks)
    assert [task.target_state for task in tasks] == [states.FAILED, states.FAILED, states.DONE]
    assert [task.exit_code for task in tasks] == [126, 126, 0]


def test_processes_that_cannot_be_watched_are_ended(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(pid: int) -> int:
        raise OSError(errno.EMFILE, 'Too many open files')

    monkeypatch.setattr(processes, 'pidfd_open', full)
    monkeypatch.setattr(processes, 'process_table', lambda: full(0))
    task = harness.run_one(executable='sleep', arguments=['1000'])
    assert (task.target_state, task.exit_code) == (states.FAILED, -9)
    assert task.exception_detail == 'cannot watch the processes of the task: Too many open files'


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


def test_tasks_wait_for_descriptors(harness: Harness, few_descriptors: Callable[[int], None]) -> None:
    """Many more tasks than can be followed at a time; one has more ranks than that, and waits for the others to end."""
    harness.run_one()
    few_descriptors(30 + SPARE)
    tasks = [harness.task(f'task.{index:06d}', **sh('read x <../go'), ranks=16 if index == 20 else 1, use_mpi=False)
             for index in range(40)]
    os.mkfifo(harness.path / 'go')
    go = os.open(harness.path / 'go', os.O_RDWR | os.O_CLOEXEC)
    harness.when(lambda: harness.executor._retry, lambda: os.write(go, b'\n' * 200))
    harness.run(*tasks)
    os.close(go)
    assert {task.target_state for task in tasks} == {states.DONE}, {task.exception_detail for task in tasks}


def test_a_lack_of_descriptors_does_not_last_for_ever(harness: Harness, few_descriptors: Callable[[int], None],
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, 'SHORTAGE_LIMIT', 0.01)
    monkeypatch.setattr(shell, 'RETRY_AFTER', 0.01)
    large, small = harness.task('large', ranks=100, use_mpi=False), harness.task('small')
    few_descriptors(50 + SPARE)
    harness.run(large, small)
    assert (large.target_state, small.target_state) == (states.FAILED, states.DONE)
    assert str(large.exception_detail).startswith('cannot follow the processes of the task: Too many open files (for')


def test_tasks_that_end_together_come_out_together(harness: Harness) -> None:
    harness.run(*(harness.task(f'task.{index}', executable='no-such-program') for index in range(5)))
    assert [len(bulk) for bulk in harness.bulks] == [5]


def test_a_large_bulk_is_started_little_by_little(harness: Harness) -> None:
    ahead: list[int] = []

    def look() -> None:
        harness.executor.check()
        ahead.append(harness.executor._ahead)
        if len(harness.out) < 200:
            harness.loop.call_soon(look)

    harness.loop.call_soon(look)
    tasks = [harness.task(f'task.{index:06d}', **sh(f'exit {index % 3}')) for index in range(200)]
    harness.run(*tasks)
    assert [task.exit_code for task in tasks] == [index % 3 for index in range(200)]
    assert max(ahead) <= shell._AHEAD


@EVERY_SHELL
def test_cancel_of_two_hundred(harness: Harness) -> None:
    """Whatever state they are in: some run, some are being started, some wait."""
    tasks = [harness.task(f'task.{index:06d}', executable='sleep', arguments=['1000']) for index in range(200)]
    harness.when(lambda: sum(bool(run.leaders) for run in harness.executor._reaper.running.values()) > 20,
                 lambda: harness.executor.cancel([task.uid for task in tasks]))
    harness.run(*tasks)
    assert {task.target_state for task in tasks} == {states.CANCELED}
    assert {task.exit_code for task in tasks} <= {-signal.SIGTERM, None}
    assert harness.run_one().target_state == states.DONE


def test_cancel_before_the_shell_has_answered(harness: Harness) -> None:
    task = harness.task(executable='sleep', arguments=['1000'])
    harness.wanted = 1
    harness.executor.put([task])
    harness.loop.call_soon(lambda: harness.executor.cancel([task.uid, 'no.such.task', task.uid]))
    harness.wait()
    assert (task.target_state, task.exit_code, task.exception) == (states.CANCELED, -signal.SIGTERM, None)
    assert len(harness.out) == 1


def test_cancelled_before_it_was_started(harness: Harness) -> None:
    early, queued, good = harness.task('early'), harness.task('queued'), harness.task('good')
    early.cancelled = True
    harness.wanted = 3
    harness.executor.put([early, queued, good])
    harness.executor.cancel(['queued'])
    harness.wait()
    assert [task.target_state for task in (early, queued, good)] == [states.CANCELED, states.CANCELED, states.DONE]
    assert not Path(early.sandbox).exists()
    assert not Path(queued.sandbox).exists()


DAEMON = '''
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open('pids', 'a') as stream:
            stream.write(f'{os.getpid()}\\n')
        with open('ready', 'w') as stream:
            stream.write('yes\\n')
        time.sleep(1000)
    os._exit(0)
time.sleep(1000)
'''


def a_family(harness: Harness) -> AgentTask:
    """A task with a child, a grandchild and a daemon; `pids` in its sandbox names them, `ready` tells when."""
    program = harness.path / 'daemon.py'
    program.write_text(DAEMON)
    return harness.task(executable='/bin/sh', arguments=[
        '-c', rf'sleep 1000 & echo \$! >>pids; (sleep 1000 & echo \$! >>pids); {sys.executable} {program}; true'])


@EVERY_SHELL
def test_cancel_reaches_children_and_daemons(harness: Harness) -> None:
    task = a_family(harness)
    when_file(harness, Path(task.sandbox, 'ready'), lambda: harness.executor.cancel([task.uid]))
    harness.run(task)
    pids = [int(line) for line in text(task, 'pids').split()]
    assert len(pids) == 3
    for pid in pids:
        wait_for_end(pid)


def test_a_task_that_ignores_sigterm_is_killed(make: Callable[..., Harness]) -> None:
    harness = make(grace=0.05)
    task = harness.task(**sh("trap '' TERM; echo x >ready; while :; do sleep 1000; done"))
    when_file(harness, Path(task.sandbox, 'ready'), lambda: harness.executor.cancel([task.uid]))
    harness.run(task)
    assert (task.target_state, task.exit_code) == (states.CANCELED, -signal.SIGKILL)


def test_what_a_shell_started_may_use_its_grace_period(harness: Harness) -> None:
    """SIGTERM ends the shell at once, but not its child, which has something to save."""
    child = "trap 'echo saved >saved; exit' TERM; echo x >ready; while :; do sleep 1000 & wait; done"
    task = harness.task(pre_exec=['true'], **sh(child.replace('$', r'\$')))
    when_file(harness, Path(task.sandbox, 'ready'), lambda: harness.executor.cancel([task.uid]))
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
    when_file(harness, Path(task.sandbox, 'ready'), cancel)
    harness.run(task)
    assert (task.target_state, task.exit_code) == (states.CANCELED, -signal.SIGTERM)


def test_processes_that_do_not_die_do_not_hold_up_the_task(make: Callable[..., Harness],
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the task's processes waited for a dead file server: no signal has any effect."""
    harness = make(grace=0.02)
    task = harness.task(**sh('echo >ready; exec sleep 1000'))
    pids: list[int] = []

    def cancel() -> None:
        pids.extend(harness.executor._reaper.running[task.uid].sessions)
        harness.executor.cancel([task.uid])

    when_file(harness, Path(task.sandbox, 'ready'), cancel)
    with monkeypatch.context() as patch:
        patch.setattr(processes, 'kill_tree', lambda roots, sig: [])
        patch.setattr(processes, 'sweep', lambda match, sig: [])
        harness.run(task)
    assert task.target_state == states.CANCELED
    assert task.exception_detail == (f'the task was ended, but processes of it cannot be killed and may still run '
                                     f'(sessions {pids})')
    assert harness.run_one(uid='task.1').target_state == states.DONE
    os.killpg(pids[0], signal.SIGKILL)
    wait_for_end(pids[0])


def test_timeout(harness: Harness) -> None:
    task = harness.run_one(executable='sleep', arguments=['1000'], timeout=0.02)
    assert task.target_state == states.CANCELED
    assert task.exception == "TimeoutError('timeout: the task ran longer than 0.02 s')"
    assert task.exception_detail == 'timeout: the task ran longer than 0.02 s'


def test_startup_timeout(harness: Harness) -> None:
    task = harness.run_one(pre_launch=['sleep 1000'], startup_timeout=0.02, timeout=1000.0)
    assert task.target_state == states.CANCELED
    assert task.exception_detail == 'startup_timeout: the task did not start to execute within 0.02 s'


def test_the_timeout_counts_from_the_start_of_execution(harness: Harness) -> None:
    task = harness.run_one(pre_launch=['true'], executable='sleep', arguments=['1000'], startup_timeout=1000.0,
                           timeout=0.02)
    assert task.exception_detail == 'timeout: the task ran longer than 0.02 s'


def test_stop_ends_all(harness: Harness) -> None:
    count = shell._AHEAD + 10
    tasks = [harness.task(f'task.{index:02d}', executable='sleep', arguments=['1000']) for index in range(count)]
    late = harness.task('late')
    ended: list[int] = []

    def empty() -> None:
        ended.append(len(harness.out))
        harness.loop.stop()

    def stop() -> None:
        harness.executor.stop(empty, 'the pilot was cancelled')
        harness.executor.put([late])

    harness.wanted = 1000
    harness.executor.put(tasks)
    harness.when(lambda: any(run.leaders for run in harness.executor._reaper.running.values()), stop)
    harness.wait()
    assert ended == [count + 1]
    assert {task.target_state for task in harness.out} == {states.CANCELED}
    assert {task.exception_detail for task in harness.out} == {'the pilot was cancelled'}


def test_stop_with_nothing_to_do(harness: Harness) -> None:
    harness.executor.stop(harness.loop.stop, 'the pilot was cancelled')
    harness.wait()
    assert harness.out == []


# the shell itself


@EVERY_SHELL
def test_the_shell_is_killed(harness: Harness) -> None:
    """Its tasks fail and end, those that wait run with a new one."""
    task = a_family(harness)
    shells: list[int] = []

    def kill() -> None:
        shells.append(harness.shell)
        os.kill(harness.shell, signal.SIGKILL)

    when_file(harness, Path(task.sandbox, 'ready'), kill)
    harness.run(task)
    assert (task.target_state, task.exit_code) == (states.FAILED, -signal.SIGKILL)
    assert task.exception_detail == f'the shell that ran the task (process {shells[0]}) has ended with signal 9'
    for pid in text(task, 'pids').split():
        wait_for_end(int(pid))
    assert harness.run_one(uid='task.1').target_state == states.DONE
    assert harness.shell != shells[0]


def test_the_shell_is_killed_while_it_starts_tasks(harness: Harness) -> None:
    """Each task either has run, or fails with the reason; none is lost."""
    tasks = [harness.task(f'task.{index:06d}', executable='sleep', arguments=['1000' if index < 70 else '0'])
             for index in range(100)]
    harness.when(lambda: sum(bool(run.leaders) for run in harness.executor._reaper.running.values()) > 20,
                 lambda: os.kill(harness.shell, signal.SIGKILL))
    harness.on_output = lambda ended: harness.executor.cancel([task.uid for task in tasks[:70]])
    harness.run(*tasks)
    for task in tasks:
        assert task.target_state in (states.FAILED, states.CANCELED) or task.exit_code == 0
    assert any(task.target_state == states.FAILED for task in tasks)
    assert all('has ended with signal 9' in str(task.exception_detail)
               for task in tasks if task.target_state == states.FAILED)


def test_the_shell_is_killed_before_a_process_knows_its_task(make: Callable[..., Harness], tmp_path: Path) -> None:
    """One that is between its session of its own and the wish to end with the shell."""
    slow = tmp_path / 'bin' / 'setpriv'
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 1000\n')
    slow.chmod(0o755)
    harness = make(PATH=f'{slow.parent}:/usr/bin:/bin')
    task = harness.task()
    when_file(harness, tmp_path / 'pid', lambda: os.kill(harness.shell, signal.SIGKILL))
    harness.run(task)
    assert task.target_state == states.FAILED
    wait_for_end(int((tmp_path / 'pid').read_text()))


def test_a_cancelled_task_stays_one_when_the_shell_dies(harness: Harness) -> None:
    task = harness.task(**sh("trap '' TERM; echo x >ready; while :; do sleep 1000; done"))

    def both() -> None:
        harness.executor.cancel([task.uid])
        os.kill(harness.shell, signal.SIGKILL)

    when_file(harness, Path(task.sandbox, 'ready'), both)
    harness.run(task)
    assert task.target_state == states.CANCELED


def test_a_silent_shell_is_killed(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, '_SHELL_TIMEOUT', 0.02)
    task = harness.task(**sh('echo >ready; read x <go'))
    Path(task.sandbox).mkdir()
    os.mkfifo(f'{task.sandbox}/go')

    def stop() -> None:
        os.kill(harness.shell, signal.SIGSTOP)
        Path(task.sandbox, 'go').write_text('\n')

    when_file(harness, Path(task.sandbox, 'ready'), stop)
    harness.run(task)
    assert task.target_state == states.FAILED
    assert 'has ended with signal 9' in str(task.exception_detail)


def test_no_shell_can_be_started(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> tuple[int, int]:
        raise BlockingIOError(11, 'cannot create a process: Resource temporarily unavailable')

    with monkeypatch.context() as patch:
        patch.setattr(process, 'spawn', fails)
        task = harness.run_one()
    assert task.exception_detail == ('cannot start the shell that runs the task: cannot create a process: '
                                     'Resource temporarily unavailable')
    assert harness.run_one(uid='task.1').target_state == states.DONE


def test_a_program_that_the_shell_needs_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, 'defpath', '/nowhere')
    with pytest.raises(PlatformError, match=r'agent_spawner SHELL needs the program env.* not in /no/where: install'):
        process.find_tools('/no/where')


def test_an_environment_program_that_cannot_reset_signals(make: Callable[..., Harness], tmp_path: Path) -> None:
    """That of an older system: tasks run all the same."""
    old = tmp_path / 'bin' / 'env'
    old.parent.mkdir()
    old.write_text('#!/bin/sh\ncase $1 in (--default*) exit 125;; esac\nexec /usr/bin/env "$@"\n')
    old.chmod(0o755)
    harness = make(PATH=f'{old.parent}:/usr/bin:/bin')
    task = harness.run_one(executable='echo', arguments=['here'])
    assert text(task, 'task.000000.out') == 'here\n'


def test_the_agent_is_killed(tmp_path: Path) -> None:
    """The kernel ends the shell with the agent, and the tasks with the shell."""
    program = f'''if True:
        import os
        from pathlib import Path
        from test_shell_executor import Harness, sh, when_file
        path = Path({str(tmp_path)!r})
        harness = Harness(path)
        task = harness.task(**sh(r'echo \\$PPID \\$\\$ >ready; exec sleep 1000'))
        harness.wanted = 1
        harness.executor.put([task])
        when_file(harness, path / 'task.000000/ready', lambda: os.kill(os.getpid(), 9))
        harness.wait()
    '''
    ran = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, timeout=50, check=False,
                         env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)})
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    for pid in (tmp_path / 'task.000000/ready').read_text().split():
        wait_for_end(int(pid))


def test_orphans_of_tasks_are_reaped(tmp_path: Path) -> None:
    """One task leaves a daemon, which ends with it; the next one runs until that has ended."""
    (tmp_path / 'leave').write_text('setsid sh -c \'echo $$ >../pid; exec sleep 1000\' &\n'
                                    'until test -s ../pid; do :; done\n')
    (tmp_path / 'wait').write_text('while grep State /proc/$(cat ../pid)/status | grep -qv Z; do :; done\n')
    program = f'''if True:
        import os
        from pathlib import Path
        from test_shell_executor import Harness
        from rp_agent.lineage import become_subreaper
        become_subreaper()
        harness = Harness(Path({str(tmp_path)!r}))
        first = harness.task('0', executable='/bin/sh', arguments=['../leave'])
        second = harness.task('1', executable='/bin/sh', arguments=['../wait'])
        harness.run(first)
        harness.run(second)
        harness.close()
        try:
            print(os.waitid(os.P_ALL, 0, os.WEXITED))
        except ChildProcessError:
            print('no child', second.target_state)
    '''
    ran = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, timeout=50, check=False,
                         env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)})
    assert ran.stdout == 'no child DONE\n', ran.stderr


def test_a_shell_that_cannot_be_watched(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, callback: Callable[[], object]) -> None:
        raise OSError(errno.ENOSPC, 'No space left on device')

    with monkeypatch.context() as patch:
        patch.setattr(harness.loop, 'add_fd', full)
        task = harness.run_one()
    assert task.exception_detail == 'cannot start the shell that runs the task: No space left on device'


def test_a_process_of_a_task_that_was_given_up_is_killed(harness: Harness) -> None:
    """The shell starts it after all."""
    task, other = harness.task(**sh('echo >ready; sleep 1000')), harness.task('other')

    def give_up() -> None:
        run = harness.executor._reaper.running[task.uid]
        (pid,) = run.sessions
        harness.executor._abandon(run)
        harness.executor._answered([shell_program.Answer('S', run.numbers[0], pid)])
        wait_for_end(pid)
        harness.executor.put([other])

    when_file(harness, Path(task.sandbox, 'ready'), give_up)
    harness.wanted = 2
    harness.executor.put([task])
    harness.wait()
    assert (task.target_state, other.target_state) == (states.FAILED, states.DONE)


def test_nothing_remains_after_close(make: Callable[..., Harness]) -> None:
    harness = make()
    harness.run_one(**sh(r'kill \$\$'))
    pid = harness.shell
    harness.executor.close()
    assert read_process(pid) is None


@pytest.mark.parametrize('program', SHELLS[:1], indirect=True)
def test_signals_of_tasks_are_not_worth_a_message(harness: Harness) -> None:
    """To bash they are, if it hears of them before it is asked."""
    harness.run_one(**sh(r'kill -KILL \$\$'))
    assert Path(harness.context.pilot_sandbox, 'agent_executing.0000.sh.err').read_text() == ''


# events


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
