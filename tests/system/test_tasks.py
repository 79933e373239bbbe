"""What a task sees, what it leaves, and how it ends: real tasks on a real pilot."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, wait_until

import radical.pilot as rp
from rp_api.errors import DescriptionError
from rp_api.system.gpus import NO_GPUS

# the three ways in which a task is started: as it is, by a shell, and by a shell that starts shells
WAYS = {'direct': {}, 'exec': {'pre_exec': ['true']}, 'launch': {'pre_launch': ['true']}}
KINDS = pytest.mark.parametrize('way', WAYS.values(), ids=WAYS)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A gate that is open at the end of the test."""
    made = Gate(tmp_path / 'gate')
    yield made
    made.open()


class Gate:
    """Holds tasks up until it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def task(self, then: str = 'true', **values: Any) -> rp.TaskDescription:
        """A task that waits for the gate to open, and runs a command then."""
        return shell(f'until test -e {self.path}; do sleep 0.02; done; {then}', **values)

    def open(self) -> None:
        self.path.touch()


def shell(command: str, **values: Any) -> rp.TaskDescription:
    """A task that runs a shell command, which finds its variables itself."""
    return rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', command.replace('$', '\\$')]} | values)


def variables(task: rp.Task) -> dict[str, str]:
    """What a task that ran `env -0` has seen."""
    assert task.state == rp.DONE, (task.exception, task.exception_detail, task.stderr)
    entries = (Path(str(task.sandbox)) / f'{task.uid}.out').read_bytes().split(b'\0')
    return dict(os.fsdecode(entry).split('=', 1) for entry in entries if entry)


def reason(task: rp.Task) -> str:
    """Why a task did not succeed, as the application can read it."""
    assert task.state in (rp.FAILED, rp.CANCELED), (task.state, task.stdout, task.stderr)
    return f'{task.exception}; {task.exception_detail}'


def submit(run: Run, *descriptions: rp.TaskDescription) -> list[rp.Task]:
    return run.tmgr.submit_tasks(list(descriptions))


def finish(run: Run, *tasks: rp.Task) -> list[str]:
    """The final states of tasks."""
    run.tmgr.wait_tasks([task.uid for task in tasks], timeout=30)
    return [task.state for task in tasks]


def succeed(run: Run, *tasks: rp.Task) -> None:
    """Wait until the tasks are done."""
    finish(run, *tasks)
    assert {task.uid: (task.state, task.exception, task.exception_detail, task.stderr)
            for task in tasks if task.state != rp.DONE} == {}


# what it sees


@KINDS
def test_variables_of_the_pilot_and_the_task(shared: Run, way: dict[str, Any]) -> None:
    task = shared.one(executable='/usr/bin/env', arguments=['-0'], name='one, two', cores_per_rank=2,
                      gpus_per_rank=1, **way)
    seen = variables(task)
    pilot = shared.pilot
    expected = {
        'RP_TASK_ID': task.uid, 'RP_TASK_NAME': 'one, two', 'RP_PILOT_ID': pilot.uid,
        'RP_SESSION_ID': shared.session.uid, 'RP_RESOURCE': 'local.exact',
        'RP_RESOURCE_SANDBOX': pilot.resource_sandbox, 'RP_SESSION_SANDBOX': pilot.session_sandbox,
        'RP_PILOT_SANDBOX': pilot.pilot_sandbox, 'RP_TASK_SANDBOX': task.sandbox,
        'RP_CORES_PER_RANK': '2', 'RP_GPUS_PER_RANK': '1', 'RP_RANKS': '1', 'RP_RANK': '0',
        'RP_PROF_TGT': f'{task.sandbox}/{task.uid}.prof', 'PWD': task.sandbox}
    assert {name: seen.get(name) for name in expected} == expected
    assert seen['RP_REGISTRY_ADDRESS']
    assert seen['RP_CONTROL_PUB_ADDRESS']
    assert seen['RP_CONTROL_SUB_ADDRESS']
    assert os.access(seen['RP_GTOD'], os.X_OK)
    assert os.access(seen['RP_PROF'], os.X_OK)


@KINDS
def test_environment_is_that_of_the_user(shared: Run, way: dict[str, Any]) -> None:
    seen = variables(shared.one(executable='/usr/bin/env', arguments=['-0'], **way))
    of_shells = {'PWD', 'OLDPWD', '_', 'SHLVL'}
    of_gpus = set(NO_GPUS)   # as the task has none
    of_pytest = {name for name in os.environ if name.startswith(('PYTEST_', 'RADICAL_'))} | {'LINES', 'COLUMNS'}
    own = {name: value for name, value in os.environ.items() if name not in of_shells | of_pytest}
    assert {name: seen.get(name) for name in own} == own
    assert {name for name in seen if not name.startswith('RP_')} - set(own) <= of_shells | of_gpus | of_pytest


def test_name_of_a_task_without_one_is_its_uid(shared: Run) -> None:
    task = shared.one(executable='/usr/bin/env', arguments=['-0'])
    assert variables(task)['RP_TASK_NAME'] == task.uid
    assert task.name == ''


def test_share_of_a_gpu_is_told_as_a_fraction(shared: Run) -> None:
    seen = variables(shared.one(executable='/usr/bin/env', arguments=['-0'], gpus_per_rank=0.25))
    assert float(seen['RP_GPUS_PER_RANK']) == 0.25


def test_scripts_know_their_processes_and_the_exit_code(shared: Run) -> None:
    task = shared.one(executable='/bin/sh', arguments=['-c', 'exit 3'], pre_launch=['echo $RP_LAUNCH_PID'],
                      pre_exec=['echo $RP_EXEC_PID'], post_exec=['echo $RP_RANK_PID $RP_RET'])
    launch_pid = (Path(str(task.sandbox)) / f'{task.uid}.launch.out').read_text()
    assert re.fullmatch(r'\d+\n', launch_pid)
    assert re.fullmatch(r'\d+\n\d+ 3\n', task.stdout)
    assert len({*launch_pid.split(), *task.stdout.split()[:2]}) == 3


@KINDS
def test_task_can_record_events(shared: Run, way: dict[str, Any]) -> None:
    task = submit(shared, shell('"$RP_PROF" app_step "with, a message"; "$RP_GTOD"', **way))[0]
    succeed(shared, task)
    rows = [line.split(',') for line in (Path(str(task.sandbox)) / f'{task.uid}.prof').read_text().splitlines()]
    (row,) = [row for row in rows if row[1] == 'app_step']
    assert len(row) == 7
    assert row[4:6] == [task.uid, rp.AGENT_EXECUTING]
    assert 'with' in row[6]
    assert float(row[0]) <= float(task.stdout)


def test_open_mp_threads(shared: Run) -> None:
    seen = variables(shared.one(executable='/usr/bin/env', arguments=['-0'], cores_per_rank=3,
                                threading_type=rp.OpenMP))
    assert seen['OMP_NUM_THREADS'] == '3'


def test_standard_input_is_empty(shared: Run) -> None:
    task = shared.one(executable='/bin/cat')
    assert (task.state, task.stdout) == (rp.DONE, '')


@pytest.mark.parametrize('values', [
    {'arguments': ['a\0b']}, {'executable': 'a\0b'}, {'executable': ' '}, {'environment': {'A': '\0'}},
    {'environment': {'A=B': 'x'}}, {'name': '\0'}, {'name': 'x' * 200000}, {'pre_exec': ['\0']}, {'pre_exec': ['}']},
    {'uid': 'x' * 300}, {'sandbox': '/proc/x'}, {'sandbox': 'x' * 5000}, {'stdout': '/'}, {'stderr': 'x' * 5000},
    {'arguments': ['x' * 2 ** 18]}, {'slots': [{'cores': [99]}]}, {'slots': [{'cores': [0], 'node_index': 7}]},
    {'slots': [{'cores': ['x']}]}, {'slots': [{'cores': [0]}] * 2}, {'cores_per_rank': 2 ** 62},
    {'output_staging': ['/etc/passwd > /proc/x/y']}], ids='-'.join)
def test_odd_descriptions_do_not_hurt_others(shared: Run, gate: Gate, values: dict[str, Any]) -> None:
    """They are refused at the call, or the task fails with more than a word."""
    (other,) = submit(shared, gate.task())
    with suppress(DescriptionError):
        task = shared.one(**{'executable': '/bin/true'} | values)
        assert len(reason(task)) > 20
    gate.open()
    succeed(shared, other, submit(shared, shell('true'))[0])


# arguments and environment

ODD = ['plain', '', 'two  words', "single ' quote", 'double " quote', 'new\nline', 'tab\there', 'back\\slash', '*.out',
       '; exit 3', '&& false', '> file', '#no comment', '-n', 'ünïcödé ☃', '~', '{a,b}', '!history', '%s', '\\n',
       '\\\\', 'end\\']


def words(task: rp.Task) -> list[str]:
    """What a task that ran `printf '%s\\0' ...` was given."""
    assert task.state == rp.DONE, (task.exception, task.exception_detail, task.stderr)
    return (Path(str(task.sandbox)) / f'{task.uid}.out').read_text().split('\0')[:-1]


@KINDS
def test_odd_characters_in_arguments_arrive(shared: Run, way: dict[str, Any]) -> None:
    assert words(shared.one(executable='printf', arguments=['%s\\0', *ODD], **way)) == ODD


@KINDS
def test_variables_in_arguments_are_expanded(shared: Run, way: dict[str, Any]) -> None:
    task = shared.one(executable='printf', environment={'WHO': 'a  b'}, arguments=[
        '%s\\0', '$RP_TASK_ID', 'x${WHO}y', '"$WHO"', '$RP_NO_SUCH', '\\$WHO', 'cost: 5$', '$(echo a; echo b)',
        '`echo c`', '${RP_NO_SUCH:-default}'], **way)
    assert words(task) == [task.uid, 'xa  by', '"a  b"', '', '$WHO', 'cost: 5$', 'a\nb', 'c', 'default']


LITERAL = ['$RP_TASK_ID', '${RP_TASK_ID}', r'\$RP_TASK_ID', 'print("cost: $5")', '$(echo a)', '`echo b`', '{print $2}',
           '$', 'for i in $(seq 2); do echo $i; done', *ODD]


@pytest.mark.parametrize('way', [*WAYS.values(), {'environment': {'A': '$HOME'}}, {'environment': {'A': '$(pwd)'}}],
                         ids=[*WAYS, 'expands', 'commands'])
def test_literal_arguments_arrive_as_they_are(shared: Run, way: dict[str, Any]) -> None:
    task = shared.one(executable='printf', arguments=['%s\\0', *LITERAL], literal_arguments=True, **way)
    assert words(task) == LITERAL


def test_arguments_are_expanded_once(shared: Run) -> None:
    """A shell that the task runs is one of its own, which sees what the first expansion has left."""
    task = shared.one(executable='printf', pre_exec=['HOME=home'],
                      arguments=['%s\\0', '$(echo \\$HOME)', '`echo \\$HOME`'])
    assert words(task) == ['$HOME', 'home']
    loop = 'for i in $(seq 2); do echo $i; done'
    assert shared.one(executable='sh', arguments=['-c', loop], literal_arguments=True).stdout == '1\n2\n'
    assert shared.one(executable='sh', arguments=['-c', loop.replace('$', '\\$')]).stdout == '1\n2\n'


def test_the_application_is_told_of_variables_without_a_value(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    arguments = ['$RP_TASK_ID ${RP_NO_SUCH_YET} $UNHEARD_OF', '{print $2}', '$OWN $HOME $(echo $i)', '\\$ESCAPED']
    for _ in range(2):   # told once
        assert run.one(executable='echo', arguments=arguments, environment={'OWN': 'x'}).state == rp.DONE
    assert run.one(executable='echo', arguments=['$NEVER'], literal_arguments=True).stdout == '$NEVER\n'
    assert run.one(executable='echo', arguments=['$LATER'], pre_exec=['LATER=1']).stdout == '1\n'
    for _ in range(2):
        assert run.one(executable='/bin/echo a', arguments=['$B'], environment={'B': '`x` $5'}).stdout == 'a `x` $5\n'
    wait_until(lambda: len(run.pilot.log) >= 4, what='the notices')
    of_executable, of_value = run.pilot.log[-2:]
    assert "its executable '/bin/echo a' is not one word" in of_executable
    assert 'the value of B in its environment has backticks' in of_value
    named = [text for text in run.pilot.log if 'in its arguments' in text]
    assert [text.split(' ')[1] for text in named] == ['$UNHEARD_OF', '$2']
    assert named[0] == ('task.000000: $UNHEARD_OF in its arguments is not set and is replaced by nothing; for a plain '
                        '"$", set literal_arguments=True, or write \\$UNHEARD_OF')
    wait_until(lambda: set(named) <= {record.getMessage() for record in caplog.records}, what='the log')


def test_executable_may_use_variables(shared: Run, tmp_path: Path) -> None:
    program = tmp_path / 'my program'
    program.write_text('#!/bin/sh\necho ran "$0"\n')
    program.chmod(0o755)
    for executable in (str(program), '"$WHERE/my program"'):
        assert shared.one(executable=executable, environment={'WHERE': str(tmp_path)}).stdout == f'ran {program}\n'


@KINDS
def test_environment_of_the_description(shared: Run, way: dict[str, Any]) -> None:
    wanted = {f'ODD_{number}': text for number, text in enumerate(ODD)}
    task = shared.one(executable='/usr/bin/env', arguments=['-0'], environment={
        **wanted, 'FIRST': 'one', 'SECOND': '$FIRST/two', 'PATH': '/added:$PATH', 'RP_TASK_NAME': 'mine'}, **way)
    seen = variables(task)
    assert {name: seen.get(name) for name in wanted} == wanted
    assert seen['SECOND'] == 'one/two'
    assert seen['PATH'] == f'/added:{os.environ["PATH"]}'
    assert seen['RP_TASK_NAME'] == 'mine'


def test_names_of_variables(shared: Run) -> None:
    """A shell cannot set all names that a process can be given."""
    values: dict[str, Any] = {'executable': '/usr/bin/env', 'arguments': ['-0'], 'environment': {'a.b': '1'}}
    assert variables(shared.one(**values))['a.b'] == '1'
    assert "'a.b'" in reason(shared.one(**values, pre_exec=['true']))


# what it finds and leaves


def test_sandbox_and_standard_files(shared: Run) -> None:
    (task,) = submit(shared, shell('echo out; echo err >&2; pwd'))
    succeed(shared, task)
    sandbox = Path(str(task.sandbox))
    assert sandbox == Path(shared.pilot.pilot_sandbox) / task.uid
    assert sorted(path.name for path in sandbox.iterdir()) == [f'{task.uid}.err', f'{task.uid}.out']
    assert task.stdout == f'out\n{sandbox}\n'
    assert task.stderr == 'err\n'
    assert (sandbox / f'{task.uid}.err').read_text() == 'err\n'


def test_scripts_can_be_found(shared: Run) -> None:
    task = shared.one(executable='true', pre_launch=['true'], pre_exec=['true'])
    names = {path.name for path in Path(str(task.sandbox)).iterdir()}
    assert {f'{task.uid}.{end}' for end in ('launch.sh', 'launch.out', 'exec.sh', 'out', 'err', 'prof')} <= names
    assert os.access(Path(str(task.sandbox)) / f'{task.uid}.exec.sh', os.X_OK)


@KINDS
def test_custom_names_of_standard_files(shared: Run, tmp_path: Path, way: dict[str, Any]) -> None:
    (task,) = submit(shared, shell('echo out; echo err >&2', stdout='my out', stderr=str(tmp_path / 'err'), **way))
    succeed(shared, task)
    assert (Path(str(task.sandbox)) / 'my out').read_text() == task.stdout == 'out\n'
    assert (tmp_path / 'err').read_text() == task.stderr == 'err\n'
    assert not (Path(str(task.sandbox)) / f'{task.uid}.out').exists()


@KINDS
def test_one_file_for_both_streams(shared: Run, way: dict[str, Any]) -> None:
    (task,) = submit(shared, shell('echo one; echo two >&2; echo three', stdout='both', stderr='both', **way))
    succeed(shared, task)
    assert task.stdout == task.stderr == 'one\ntwo\nthree\n'


@KINDS
def test_standard_file_that_cannot_be_opened(shared: Run, way: dict[str, Any]) -> None:
    task = shared.one(executable='true', stdout='missing/out', **way)
    assert f'{task.sandbox}/missing/out' in reason(task)


def test_sandbox_of_the_description(shared: Run, tmp_path: Path) -> None:
    relative, absolute, again = submit(
        shared, shell('pwd; echo $RP_TASK_SANDBOX', sandbox='deep/er'),
        shell('pwd; echo $RP_TASK_SANDBOX', sandbox=str(tmp_path / 'new/sandbox')),
        shell('pwd', sandbox=f'{tmp_path}/new/../new/sandbox/'))
    succeed(shared, relative, absolute, again)
    assert relative.sandbox == f'{shared.pilot.pilot_sandbox}/deep/er'
    assert relative.stdout == f'{relative.sandbox}\n' * 2
    assert absolute.sandbox == again.sandbox == str(tmp_path / 'new/sandbox')
    assert absolute.stdout == f'{absolute.sandbox}\n' * 2
    assert {f'{task.uid}.out' for task in (absolute, again)} <= set(os.listdir(tmp_path / 'new/sandbox'))


def test_sandbox_that_cannot_be_made(shared: Run, tmp_path: Path) -> None:
    (tmp_path / 'file').touch()
    task = shared.one(executable='true', sandbox=str(tmp_path / 'file/below'))
    assert str(tmp_path / 'file') in reason(task)


def test_output_files(shared: Run) -> None:
    (task,) = submit(shared, shell('touch one; mkdir two; touch two/three', pre_exec=['touch four']))
    succeed(shared, task)
    assert task.output_files == ['four', 'one', 'two']
    assert shared.one(executable='true').output_files == []


def test_tail_of_large_outputs(shared: Run) -> None:
    (task,) = submit(shared, shell('i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; '
                                   'printf "%01100d" 0 >&2'))
    succeed(shared, task)
    assert task.stdout.endswith('line 2998\nline 2999\n')
    assert 1024 <= len(task.stdout) <= 1100
    assert 'SHORTENED' in task.stdout.splitlines()[0]
    assert task.stderr.endswith('0' * 1024)
    assert (Path(str(task.sandbox)) / f'{task.uid}.out').read_text().startswith('line 0\n')


def test_outputs_that_are_no_text(shared: Run) -> None:
    (task,) = submit(shared, shell("printf 'a\\377b\\303\\274'"))
    succeed(shared, task)
    assert task.stdout == 'a\ufffdbü'


def test_cleanup_removes_the_sandbox(shared: Run) -> None:
    kept, removed, failed = submit(shared, shell('touch file'), shell('touch file; echo done', cleanup=True),
                                   shell('echo no >&2; exit 5', cleanup=True))
    assert finish(shared, kept, removed, failed) == [rp.DONE, rp.DONE, rp.FAILED]
    assert [Path(str(task.sandbox)).exists() for task in (kept, removed, failed)] == [True, False, False]
    assert (removed.stdout, removed.output_files) == ('done\n', ['file'])
    assert (failed.stderr, failed.exit_code) == ('no\n', 5)


def test_name_and_metadata_come_back_unchanged(shared: Run) -> None:
    name = 'stage.0001,pipeline ☃, "x" '
    metadata = {'deep': {'list': [1, 2.5, None, True, 'x'], 'bytes': b'\0\xff'}, '': 'empty', 'big': 2 ** 63}
    task = shared.one(executable='true', name=name, metadata=metadata)
    assert task.state == rp.DONE
    assert task.name == task.description['name'] == name
    assert task.metadata == task.description.metadata == metadata


# commands before and after


@pytest.mark.parametrize('stages', [['pre_exec', 'task', 'post_exec'],
                                    ['pre_launch', 'pre_exec', 'task', 'post_exec', 'post_launch']])
def test_order_of_commands(shared: Run, stages: list[str]) -> None:
    commands = {stage: [f'echo {stage} 1 >> order', f'echo {stage} 2 >> order'] for stage in stages}
    (task,) = submit(shared, shell('; '.join(commands.pop('task')), **commands))
    succeed(shared, task)
    assert (Path(str(task.sandbox)) / 'order').read_text().splitlines() == [
        f'{stage} {number}' for stage in stages for number in (1, 2)]


def test_commands_share_a_shell_with_the_executable(shared: Run) -> None:
    (task,) = submit(shared, shell('echo $SET $DIR; pwd', pre_exec=['export SET="a b" # comment', 'DIR=here',
                                                                    'export DIR', 'mkdir sub', 'cd sub']))
    succeed(shared, task)
    assert task.stdout == f'a b here\n{task.sandbox}/sub\n'


@pytest.mark.parametrize('stage', ['pre_exec', 'post_exec', 'pre_launch', 'post_launch'])
def test_failing_command(shared: Run, stage: str) -> None:
    """It ends the task, nothing after it is run, and the application can read which command it was."""
    (task,) = submit(shared, shell('touch ran', **{stage: ['echo start', 'rm /no/such/file', 'touch after']}))
    assert finish(shared, task) == [rp.FAILED]
    sandbox = Path(str(task.sandbox))
    assert task.exit_code == 1
    assert (sandbox / 'ran').exists() == stage.startswith('post')
    assert not (sandbox / 'after').exists()
    said = reason(task) if stage.endswith('launch') else task.stderr
    assert stage in said
    assert 'rm /no/such/file' in said


def test_exit_code_survives_commands_that_follow(shared: Run) -> None:
    task = shared.one(executable='/bin/sh', arguments=['-c', 'exit 7'], post_exec=['true'], post_launch=['true'])
    assert (task.state, task.exit_code) == (rp.FAILED, 7)


def test_syntax_error_in_a_command(shared: Run) -> None:
    task = shared.one(executable='true', pre_exec=['if then'])
    assert task.state == rp.FAILED
    assert task.exit_code != 0
    assert 'yntax' in task.stderr


# how it ends


@KINDS
@pytest.mark.parametrize('code', [1, 42, 255])
def test_exit_code(shared: Run, way: dict[str, Any], code: int) -> None:
    (task,) = submit(shared, shell(f'echo why >&2; exit {code}', **way))
    assert finish(shared, task) == [rp.FAILED]
    assert task.exit_code == code
    assert f'exit code: {code}' in reason(task)
    assert task.stderr == 'why\n'


def test_success_has_no_exception(shared: Run) -> None:
    task = shared.one(executable='true')
    assert (task.state, task.exit_code, task.exception, task.exception_detail) == (rp.DONE, 0, None, None)


@KINDS
@pytest.mark.parametrize('name', ['TERM', 'KILL', 'SEGV'])
def test_killed_by_a_signal(shared: Run, way: dict[str, Any], name: str) -> None:
    (task,) = submit(shared, shell(f'kill -{name} $$', **way))
    assert finish(shared, task) == [rp.FAILED]
    assert f'SIG{name}' in reason(task)
    number = {'TERM': 15, 'KILL': 9, 'SEGV': 11}[name]
    assert task.exit_code in (-number, 128 + number)


@pytest.mark.parametrize(('program', 'words'), [
    ('no-such-program', 'not found'), ('/no/such/program', 'not found'), ('here/program', 'not found'),
    ('/tmp', 'directory'), (__file__, 'permission')])
def test_executable_that_cannot_be_run(shared: Run, program: str, words: str) -> None:
    said = reason(shared.one(executable=program))
    assert program in said
    assert words in said


def test_executable_that_cannot_be_run_after_commands(shared: Run) -> None:
    task = shared.one(executable='no-such-program', pre_exec=['true'])
    assert task.exit_code == 127
    assert 'did not find a command' in reason(task)
    assert 'no-such-program' in task.stderr


def test_missing_interpreter(shared: Run, tmp_path: Path) -> None:
    program = tmp_path / 'program'
    program.write_text('#!/no/such/interpreter\n')
    program.chmod(0o755)
    said = reason(shared.one(executable=str(program)))
    assert str(program) in said
    assert 'interpreter' in said


def test_program_is_found_on_the_path_of_the_task(shared: Run, tmp_path: Path) -> None:
    program = tmp_path / 'only-here'
    program.write_text('#!/bin/sh\necho found\n')
    program.chmod(0o755)
    task = shared.one(executable='only-here', environment={'PATH': f'{tmp_path}:$PATH'})
    assert task.stdout == 'found\n'


@KINDS
def test_timeout(shared: Run, way: dict[str, Any]) -> None:
    (task,) = submit(shared, shell('echo begun; sleep 100; echo never', timeout=3, **way))
    assert finish(shared, task) == [rp.CANCELED]
    assert 'timeout' in reason(task)
    assert '3 s' in reason(task)
    assert task.stdout == 'begun\n'


def test_startup_timeout(shared: Run) -> None:
    (task,) = submit(shared, shell('touch ran', startup_timeout=0.3, pre_launch=['sleep 100']))
    assert finish(shared, task) == [rp.CANCELED]
    assert 'startup_timeout' in reason(task)
    assert not (Path(str(task.sandbox)) / 'ran').exists()


def test_timeout_counts_from_the_start_of_the_execution(shared: Run) -> None:
    (task,) = submit(shared, shell('true', startup_timeout=30, timeout=1.5, pre_launch=['sleep 1.6']))
    succeed(shared, task)


def test_what_a_task_leaves_running_ends_with_it(shared: Run) -> None:
    (task,) = submit(shared, shell('sleep 100 & echo $!'))
    succeed(shared, task)
    wait_until(lambda: not running(int(task.stdout)), what='end of the background process')


def running(pid: int) -> bool:
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except OSError:
        return False


# cancellation


def pids_in(path: Path, count: int) -> list[int]:
    """The process ids that a task writes to a file, one a line, when all are there."""
    wait_until(lambda: path.exists() and path.read_text().count('\n') == count, what=f'{count} lines in {path}')
    return [int(pid) for pid in path.read_text().split()]


TREE = '''
echo $$ >> pids
sh -c 'echo $$ >> pids; sleep 100; true' &
sh -c 'trap "" TERM; echo $$ >> pids; sleep 100; true' &
setsid sh -c 'echo $$ >> pids; sh -c "echo \\$\\$ >> pids; exec sleep 100" & exit' &
(setsid sh -c 'echo $$ >> pids; exec sleep 100' </dev/null >/dev/null 2>&1 &)
wait
'''


def test_cancel_ends_the_whole_process_tree(shared: Run, tmp_path: Path) -> None:
    """Children, those that ignore SIGTERM, those in sessions of their own, orphans and daemons."""
    script = tmp_path / 'tree.sh'
    script.write_text(TREE)
    (task,) = submit(shared, rp.TaskDescription({'executable': '/bin/sh', 'arguments': [script]}))
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    pids = pids_in(Path(str(task.sandbox)) / 'pids', 6)
    task.cancel()
    assert finish(shared, task) == [rp.CANCELED]
    assert [pid for pid in pids if running(pid)] == []


def test_cancel_lets_the_task_clean_up(shared: Run) -> None:
    (task,) = submit(shared, shell('trap "echo cleaned up; exit 0" TERM; touch ready; while :; do sleep 0.05; done'))
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    wait_until((Path(str(task.sandbox)) / 'ready').exists)
    task.cancel()
    assert finish(shared, task) == [rp.CANCELED]
    assert task.stdout == 'cleaned up\n'


def test_cancel_before_there_is_a_pilot(shared: Run) -> None:
    tmgr = rp.TaskManager(session=shared.session)
    task = tmgr.submit_tasks(shell('true'))
    task.cancel()
    assert task.wait(timeout=30) == rp.CANCELED
    assert 'cancel' in reason(task)
    tmgr.close()


def test_cancel_while_waiting_for_cores(shared: Run, gate: Gate) -> None:
    (running_task,) = submit(shared, gate.task(cores_per_rank=4))
    running_task.wait(rp.AGENT_EXECUTING, timeout=30)
    waiting, later = submit(shared, shell('true'), shell('true', cores_per_rank=2))
    waiting.wait(rp.AGENT_SCHEDULING, timeout=30)
    waiting.cancel()
    assert finish(shared, waiting) == [rp.CANCELED]
    assert 'cancel' in reason(waiting)
    assert running_task.state == rp.AGENT_EXECUTING
    gate.open()
    succeed(shared, running_task, later)


def test_cancel_right_after_submission(shared: Run, gate: Gate) -> None:
    """Wherever the cancellation meets the task, nothing has to end for it."""
    (running_task,) = submit(shared, gate.task(cores_per_rank=4))
    running_task.wait(rp.AGENT_EXECUTING, timeout=30)
    for _ in range(20):
        (task,) = submit(shared, shell('true'))
        task.cancel()
        assert task.wait(timeout=30) == rp.CANCELED
    tasks = submit(shared, *[shell('true') for _ in range(200)])
    shared.tmgr.cancel_tasks([task.uid for task in tasks])
    assert set(finish(shared, *tasks)) == {rp.CANCELED}
    gate.open()
    succeed(shared, running_task)


def test_cancel_all(run: Run) -> None:
    tasks = submit(run, *[shell('sleep 100') for _ in range(8)])
    run.tmgr.wait_tasks([task.uid for task in tasks[:4]], rp.AGENT_EXECUTING, timeout=30)
    run.tmgr.cancel_tasks()
    assert finish(run, *tasks) == [rp.CANCELED] * 8
    assert run.one(executable='true').state == rp.DONE


def test_cancel_of_a_final_task_changes_nothing(shared: Run) -> None:
    task = shared.one(executable='true')
    task.cancel()
    shared.tmgr.cancel_tasks(task.uid)
    assert shared.one(executable='true').state == rp.DONE
    assert (task.state, task.exit_code) == (rp.DONE, 0)


def test_cancel_inside_a_callback(shared: Run) -> None:
    def cancel(task: rp.Task, state: str) -> None:
        if state == rp.AGENT_EXECUTING:
            task.cancel()

    tasks = submit(shared, *[shell('sleep 100') for _ in range(3)])
    for task in tasks:
        task.register_callback(cancel)
    # those that run already have been announced
    tasks += submit(shared, *[shell('sleep 100') for _ in range(3)])
    for task in tasks:
        shared.tmgr.register_callback(cancel, uid=task.uid)
    for task in tasks:
        if task.state == rp.AGENT_EXECUTING:
            task.cancel()
    assert set(finish(shared, *tasks)) == {rp.CANCELED}


# ranks and resources


def test_ranks_without_mpi(shared: Run) -> None:
    (task,) = submit(shared, shell('echo rank $RP_RANK of $RP_RANKS', ranks=3, use_mpi=False))
    succeed(shared, task)
    assert sorted(task.stdout.splitlines()) == [f'rank {rank} of 3' for rank in range(3)]
    cores = [core['index'] for slot in task.slots or () for core in slot.cores]
    assert len(task.slots or ()) == len(set(cores)) == 3


def test_commands_for_single_ranks(shared: Run) -> None:
    (task,) = submit(shared, shell('echo $RP_RANK $WHAT', ranks=3, use_mpi=False, pre_exec_sync=True, pre_exec=[
        'export WHAT=all', {'1': 'export WHAT=one', '2': ['export WHAT=two', 'export WHAT="$WHAT three"']}]))
    succeed(shared, task)
    assert sorted(task.stdout.splitlines()) == ['0 all', '1 one', '2 two three']


@KINDS
def test_a_rank_that_fails(shared: Run, way: dict[str, Any]) -> None:
    (task,) = submit(shared, shell('test $RP_RANK != 1 || exit 9', ranks=3, use_mpi=False, **way))
    assert finish(shared, task) == [rp.FAILED]
    assert task.exit_code == 9
    assert 'exit code: 9' in reason(task)
    assert 'pre_launch' in way or 'rank 1' in reason(task)


@pytest.mark.parametrize('values', [
    {'cores_per_rank': 5}, {'ranks': 5, 'use_mpi': False}, {'gpus_per_rank': 3}, {'mem_per_rank': 2 ** 40},
    {'ranks': 2, 'ranks_per_node': 1, 'use_mpi': False}])
def test_task_larger_than_the_pilot(shared: Run, gate: Gate, values: dict[str, Any]) -> None:
    """It fails at once, with the reason, also if the pilot is busy."""
    (busy,) = submit(shared, gate.task(cores_per_rank=4))
    busy.wait(rp.AGENT_EXECUTING, timeout=30)
    task = shared.one(executable='true', **values)
    assert busy.state == rp.AGENT_EXECUTING
    said = reason(task)
    assert task.uid in said
    assert 'can never' in said
    assert '4 cores' in said
    gate.open()
    succeed(shared, busy)


def timed(**values: Any) -> rp.TaskDescription:
    """A task that tells when it started and when it ended."""
    return shell('date +%s.%N; sleep 0.03; date +%s.%N', **values)


def interval(task: rp.Task) -> tuple[float, float]:
    start, end = task.stdout.split()
    return float(start), float(end)


def test_cores_are_never_shared(shared: Run) -> None:
    """With four cores, tasks of one to three cores: never more than four in use, and no core by two tasks at a time."""
    tasks = submit(shared, *[timed(cores_per_rank=cores) for cores in [1, 2, 1, 3, 1, 2, 1, 1] * 5])
    succeed(shared, *tasks)
    cores = {task.uid: {core['index'] for slot in task.slots or () for core in slot.cores} for task in tasks}
    assert [len(cores[task.uid]) for task in tasks] == [task.description.cores_per_rank for task in tasks]
    for one, other in combinations(tasks, 2):
        (start, end), (other_start, other_end) = interval(one), interval(other)
        if start < other_end and other_start < end:
            assert not cores[one.uid] & cores[other.uid]
    changes = sorted((moment, sign * len(cores[task.uid])) for task in tasks
                     for moment, sign in zip(interval(task), (1, -1), strict=True))
    in_use = [sum(change for _, change in changes[:number]) for number in range(len(changes) + 1)]
    assert max(in_use) <= 4


def test_all_cores_are_used(shared: Run, gate: Gate) -> None:
    tasks = submit(shared, *[gate.task() for _ in range(6)])
    wait_until(lambda: [task.state for task in tasks].count(rp.AGENT_EXECUTING) == 4)
    assert [task.state for task in tasks if task.state != rp.AGENT_EXECUTING] == [rp.AGENT_SCHEDULING] * 2
    assert {task.slots for task in tasks if task.state == rp.AGENT_SCHEDULING} == {None}
    gate.open()
    succeed(shared, *tasks)


def test_priorities(shared: Run, gate: Gate, tmp_path: Path) -> None:
    (busy,) = submit(shared, gate.task(cores_per_rank=4))
    busy.wait(rp.AGENT_EXECUTING, timeout=30)
    wanted = [0, 5, -3, 5, 1]
    tasks = submit(shared, *[shell(f'echo $RP_TASK_NAME >> {tmp_path}/order', cores_per_rank=4, priority=priority,
                                   name=f'{priority}') for priority in wanted])
    shared.tmgr.wait_tasks([task.uid for task in tasks], rp.AGENT_SCHEDULING, timeout=30)
    gate.open()
    succeed(shared, busy, *tasks)
    assert (tmp_path / 'order').read_text().split() == ['5', '5', '1', '0', '-3']


def test_slots_that_the_application_has_chosen(shared: Run) -> None:
    nodes = shared.pilot.nodelist
    assert nodes
    slots = nodes.find_slots(rp.RankRequirements(n_cores=1, n_gpus=1), n_slots=2)
    task = shared.one(executable='/usr/bin/env', arguments=['-0'], ranks=2, use_mpi=False, gpu_type=rp.CUDA,
                      gpus_per_rank=1, slots=slots)
    assert task.state == rp.DONE, reason(task)
    assert task.slots
    assert task.slots == slots
    nodes.release_slots(task.slots)


# GPUs


def visible(task: rp.Task) -> list[str]:
    return task.stdout.split()


def gpus(task: rp.Task) -> list[int]:
    return [gpu['index'] for slot in task.slots or () for gpu in slot.gpus]


def test_tasks_share_gpus(shared: Run, gate: Gate, tmp_path: Path) -> None:
    """Four halves run at a time on two GPUs, a fifth has to wait."""
    values = {'gpus_per_rank': 0.5, 'gpu_type': rp.CUDA, 'cores_per_rank': 1}
    tasks = submit(shared, *[gate.task('echo $CUDA_VISIBLE_DEVICES', **values) for _ in range(4)])
    shared.tmgr.wait_tasks([task.uid for task in tasks], rp.AGENT_EXECUTING, timeout=30)
    gate.open()
    succeed(shared, *tasks)
    assert Counter(gpu for task in tasks for gpu in gpus(task)) == {0: 2, 1: 2}
    assert [visible(task) for task in tasks] == [[str(gpu) for gpu in gpus(task)] for task in tasks]
    assert {gpu['occupation'] for task in tasks for slot in task.slots or () for gpu in slot.gpus} == {0.5}


def test_gpus_are_never_over_used(shared: Run) -> None:
    shares = [0.5, 1.0, 0.25, 2.0, 0.75, 0.5] * 4
    tasks = submit(shared, *[timed(gpus_per_rank=share) for share in shares])
    succeed(shared, *tasks)
    for number in range(2):
        changes = sorted((moment, sign * gpu['occupation']) for task in tasks for slot in task.slots or ()
                         for gpu in slot.gpus if gpu['index'] == number
                         for moment, sign in zip(interval(task), (1, -1), strict=True))
        in_use = [sum(change for _, change in changes[:count]) for count in range(len(changes) + 1)]
        assert max(in_use) <= 1.0


def test_each_rank_sees_its_own_gpu(shared: Run) -> None:
    (task,) = submit(shared, shell('echo $RP_RANK $CUDA_VISIBLE_DEVICES', ranks=2, gpus_per_rank=1, use_mpi=False,
                                   gpu_type=rp.CUDA))
    succeed(shared, task)
    assert sorted(task.stdout.splitlines()) == [f'{rank} {gpu}' for rank, gpu in enumerate(gpus(task))]
    assert sorted(gpus(task)) == [0, 1]


def test_several_gpus_of_a_rank(shared: Run) -> None:
    (task,) = submit(shared, shell('echo $CUDA_VISIBLE_DEVICES', gpus_per_rank=2, gpu_type=rp.CUDA))
    succeed(shared, task)
    assert task.stdout == '0,1\n'
