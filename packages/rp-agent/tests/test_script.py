"""The texts of exec and launch scripts, run by the shells of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from executor_support import a_task, sh
from spawning import spawn

from rp_agent.executor.launching.script import exec_script, launch_script, start_ranks, started_by_agent
from rp_agent.lookup import LaunchRefused
from rp_profiling.levels import OFF
from rp_profiling.write.detail import Detail

SHELLS = [shell for shell in ('sh', 'bash', 'dash', 'ksh', 'busybox') if shutil.which(shell)]

@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    return [request.param, 'sh'] if request.param == 'busybox' else [request.param]


class Script:
    """A task's exec script in its sandbox."""

    def __init__(self, sandbox: Path, shell: list[str]) -> None:
        self.sandbox = sandbox
        self.shell = shell
        self.told = {'RP_TASK_ID': 'task.000000', 'RP_TASK_NAME': "it's $HOME", 'RP_TASK_SANDBOX': str(sandbox),
                     'RP_PILOT_SANDBOX': str(sandbox), 'RP_PROF_TGT': str(sandbox / 'events')}

    def run(self, rank: int | None = None, **description: Any) -> subprocess.CompletedProcess[str]:
        """Run the script of one rank."""
        task = a_task(self.sandbox, **description)
        return self.run_text(exec_script(task, self.told, started_by_agent('/bin/sh'), detail=Detail()),
                             {} if rank is None else {'RP_RANK': str(rank)})

    def run_text(self, text: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        path = self.sandbox / 'script.sh'
        path.write_text(text)
        return subprocess.run([*self.shell, str(path)], env={'PATH': os.environ['PATH'], **env}, timeout=30, cwd='/',
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def events(self) -> list[str]:
        """Events, with their messages if they have any, and what other lines the file has."""
        lines = (self.sandbox / 'events').read_text().splitlines()
        return [f'{row[1]} {row[6]}'.rstrip() if len(row) == 7 else line
                for line in lines for row in [line.split(',')]]


@pytest.fixture
def script(tmp_path: Path, shell: list[str]) -> Script:
    sandbox = tmp_path / "it's a sandbox"
    sandbox.mkdir()
    return Script(sandbox, shell)


def test_order_of_steps_and_events(script: Script) -> None:
    ran = script.run(pre_exec=['echo pre >>events'], executable='sh',
                     arguments=['-c', 'echo run >>events; exit 3'], post_exec=['echo post >>events'])
    assert ran.returncode == 3, ran.stderr
    assert [line.split()[0] for line in script.events()] == [
        'exec_start', 'exec_pre', 'pre', 'rank_start', 'run', 'rank_stop', 'exec_post', 'post', 'exec_stop']
    pids = dict(pair.split('=') for pair in script.events()[5].split()[1].split(':'))
    assert pids['RP_EXEC_PID'] != pids['RP_RANK_PID']


def test_what_the_program_sees(script: Script) -> None:
    ran = script.run(pre_exec=['export MADE="by pre_exec"', 'cd sub || { mkdir sub && cd sub; } # a comment'],
                     environment={'A': '"quoted" \\ $(echo cmd) $RP_TASK_ID', 'B': '<$A>'}, executable='printf',
                     arguments=['%s|', '$MADE', '$A', '$B', '$RP_TASK_NAME', '$RP_RANK', '`pwd`', ''])
    assert ran.returncode == 0, ran.stderr
    a = '"quoted" \\ $(echo cmd) task.000000'
    assert ran.stdout == '|'.join(['by pre_exec', a, f'<{a}>', "it's $HOME", '0', f'{script.sandbox}/sub', '', ''])


def test_what_post_exec_sees(script: Script) -> None:
    ran = script.run(executable='sh', arguments=['-c', r'echo \$\$; exit 7'],
                     post_exec=['echo $RP_RANK_PID $RP_RET; test $RP_EXEC_PID = $$'])
    pid, seen = ran.stdout.splitlines()
    assert seen == f'{pid} 7'
    assert ran.returncode == 7


@pytest.mark.parametrize(('stage', 'ran_program'), [('pre_exec', False), ('post_exec', True)])
def test_a_failing_command_ends_the_rank(script: Script, stage: str, ran_program: bool) -> None:
    commands: dict[str, Any] = {stage: ['sh -c "exit 5"', 'echo later']}
    ran = script.run(executable='echo', arguments=['ran'], **commands)
    assert ran.returncode == 1
    assert ran.stdout == ('ran\n' if ran_program else '')
    assert ran.stderr == f'{stage} failed with exit code 5: sh -c "exit 5"\n'


@pytest.mark.parametrize('command', ['# only a comment', '', 'cat <<END >doc\n$HOME\nEND', 'if true; then\n:\nfi',
                                     'true &'])
def test_unusual_commands(script: Script, command: str) -> None:
    ran = script.run(pre_exec=[command], executable='echo', arguments=['ran'])
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, 'ran\n', '')


@pytest.mark.parametrize(('rank', 'said'), [(None, 'a 0 b'), (1, 'a 1 2 b'), (2, 'a b'), (10, 'a ten b')])
def test_commands_of_single_ranks(script: Script, rank: int | None, said: str) -> None:
    commands = ['echo a', {'0': 'echo 0', '1': ['echo 1', 'echo 2'], 10: 'echo ten', '3': []}, 'echo b']
    ran = script.run(rank, pre_exec=commands, executable='true')
    assert ran.stdout.split() == said.split(), ran.stderr


def test_a_missing_program(script: Script) -> None:
    ran = script.run(pre_exec=['true'], executable='no-such-program', arguments=['x'])
    assert ran.returncode == 127
    assert 'no-such-program' in ran.stderr


def test_named_environment_comes_before_the_own_one(script: Script) -> None:
    env = script.sandbox / 'env'
    env.mkdir()
    (env / 'rp_named_env.my env.sh').write_text('export A=named B=named\n')
    ran = script.run(named_env='my env', environment={'B': '$A+own'}, executable='echo', arguments=['$A $B'])
    assert ran.stdout == 'named named+own\n', ran.stderr


def test_the_program_sees_none_of_the_scripts_descriptors(script: Script) -> None:
    task = a_task(script.sandbox, pre_exec=['ls /proc/self/fd'], executable='ls', arguments=['/proc/self/fd'],
                  post_exec=['ls /proc/self/fd'])
    context = started_by_agent('/bin/sh', sync=True, signals_start=True)
    text = exec_script(task, script.told, context, detail=Detail(OFF))
    path = script.sandbox / 'script.sh'
    path.write_text(text)
    (start_read, start_write), (sync_read, sync_write) = os.pipe(), os.pipe()
    null = os.open('/dev/null', os.O_RDONLY)
    with (script.sandbox / 'log').open('wb') as log:
        argv = [os.fsencode(word) for word in (*script.shell, str(path))]
        _, pidfd = spawn(argv, [b'PATH=/usr/bin:/bin'], b'/', null, log.fileno(), log.fileno(),
                         (start_write, sync_write), path=os.fsencode(shutil.which(script.shell[0]) or ''))
    for descriptor in (start_write, sync_write, null):
        os.close(descriptor)
    with os.fdopen(start_read) as start, os.fdopen(sync_read) as sync:
        assert start.read() == '1\n', 'the start was not told'
        assert sync.read() == ''
    ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
    os.close(pidfd)
    listed = (script.sandbox / 'log').read_text()
    assert ended is not None
    assert ended.si_status == 0, listed
    # 3 is the directory that ls reads
    assert listed.split() == ['0', '1', '2', '3'] * 3


def run_launch(script: Script, ranks: int, **description: Any) -> subprocess.CompletedProcess[str]:
    task = a_task(script.sandbox, ranks=ranks, **description)
    text = exec_script(task, script.told, started_by_agent('/bin/sh'), detail=Detail())
    (script.sandbox / 'x.exec.sh').write_text(text)
    variables = [{'RP_RANK': str(rank), 'GPUS': f'{rank} {rank}'} for rank in range(ranks)]
    files = str(script.sandbox / 'o $HOME'), str(script.sandbox / 'e')
    start = start_ranks(variables, '/bin/sh', 'x.exec.sh', files)
    return script.run_text(launch_script(task, script.told, start, '/bin/sh', detail=Detail()), {})


def test_launch_script(script: Script) -> None:
    ran = run_launch(script, 2, pre_launch=['echo before; export UP=1'], post_launch=['echo after $RP_RET'],
                     **sh('echo $RP_RANK $GPUS $UP; echo err >&2; test $RP_RANK = 0 || exit 4'))
    assert (ran.returncode, ran.stdout, ran.stderr) == (4, 'before\nafter 4\n', '')
    assert sorted((script.sandbox / 'o $HOME').read_text().splitlines()) == ['0 0 0 1', '1 1 1 1']
    assert (script.sandbox / 'e').read_text() == 'err\nerr\n'
    events = [line.split()[0] for line in script.events()]
    assert events[:4] == ['launch_start', 'launch_pre', 'launch_submit', 'exec_start']
    assert events[-4:] == ['exec_stop', 'launch_collect', 'launch_post', 'launch_stop']
    assert events.count('rank_start') == 2


@pytest.mark.parametrize('stage', ['pre_launch', 'post_launch'])
def test_a_failing_launch_command_fails_the_task(script: Script, stage: str) -> None:
    ran = run_launch(script, 1, executable='touch', arguments=['ran'], **{stage: ['false']})
    assert ran.returncode == 1
    assert ran.stderr == f'{stage} failed with exit code 1: false\n'
    assert (script.sandbox / 'ran').exists() == (stage == 'post_launch')


def test_rows_of_events(script: Script) -> None:
    """They are those that a program writes which records events itself."""
    before = time.time()
    task = a_task(script.sandbox, uid='a,"b"', executable='true', pre_exec=['unset RP_TASK_ID; set -eu'])
    ran = script.run_text(exec_script(task, script.told, started_by_agent('/bin/sh'), detail=Detail()), {})
    assert (ran.returncode, ran.stderr) == (0, '')
    rows = [line.split(',') for line in (script.sandbox / 'events').read_text().splitlines()]
    assert [row[1:6] for row in rows] == [[event, '', 'MainThread', 'a__b_', 'AGENT_EXECUTING'] for event in (
        'exec_start', 'exec_pre', 'rank_start', 'rank_stop', 'exec_post', 'exec_stop')]
    times = [float(row[0]) for row in rows]
    assert before - 1 <= times[0] <= times[3] <= time.time() + 1
    assert times == sorted(times)
    assert all(re.fullmatch(r'[0-9]+\.[0-9]{7}', row[0]) for row in rows)


def test_less_detail(script: Script) -> None:
    task = a_task(script.sandbox, pre_exec=['true'])
    for text in (exec_script(task, script.told, started_by_agent('/bin/sh'), detail=Detail('states')),
                 launch_script(task, script.told, [], '/bin/sh', detail=Detail('states'))):
        ran = script.run_text(text, {'RP_RET': '0'})
        assert (ran.returncode, ran.stderr) == (0, '')
    assert [event.partition(' ')[0] for event in script.events()] == ['rank_start', 'rank_stop']


def test_without_profile_nothing_is_recorded(script: Script) -> None:
    task = a_task(script.sandbox, pre_exec=['true'])
    text = exec_script(task, script.told, started_by_agent('/bin/sh'), detail=Detail(OFF))
    ran = script.run_text(text, {})
    assert (ran.returncode, ran.stderr) == (0, '')
    assert not (script.sandbox / 'events').exists()


def test_names_that_no_shell_can_set_are_refused() -> None:
    with pytest.raises(LaunchRefused, match="'a-b', which a shell cannot set"):
        exec_script(a_task(environment={'a-b': ''}), {}, started_by_agent('/bin/sh'), detail=Detail(OFF))
