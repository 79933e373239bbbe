"""The program `rp-rank`: it does for a rank what the exec script does, so most is tried with both."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from executor_support import NO_TRACE
from launch_support import is_gone

from rp_agent.executor.launching import rank_program, rank_script
from rp_agent.executor.launching.rank_script import RankShare
from rp_agent.executor.launching.script import exec_script
from rp_agent.task import AgentTask
from rp_profiling.write.detail import Detail

CPUS = sorted(os.sched_getaffinity(0))
TIMEOUT = 20.0


class Ranks:
    """Ranks of a task, which a test starts in place of a launcher, by the program or by the script."""

    def __init__(self, path: Path, way: str) -> None:
        self.sandbox = path / 'task.0'
        self.sandbox.mkdir()
        self._way = way
        self._program = rank_program.installed(str(path))

    def command(self, shares: Sequence[RankShare] = (RankShare(),), *, base: Mapping[str, str] | None = None,
                memory: int = 0, ends: bool = False, detail: Detail = NO_TRACE, **description: Any) -> list[str]:
        """What the launcher starts for each rank."""
        task = AgentTask('task.0', {'executable': '/bin/true', **description}, 'pilot.0000', str(self.sandbox))
        stem = str(self.sandbox.parent / 'base')
        if base:
            Path(f'{stem}.env').write_text(''.join(f'{name}={value}\0' for name, value in base.items()))
            Path(f'{stem}.sh').write_text(''.join(f"export {name}='{value}'\n" for name, value in base.items()))
        told = {'RP_TASK_SANDBOX': str(self.sandbox), 'RP_TOLD': "it's"}
        if detail.on:
            told['RP_PROF_TGT'] = str(self.sandbox / 'task.0.prof')
        if self._way == 'program':
            assert rank_program.is_enough(task.description, task.sandbox)
            text = rank_program.plan('task.0', str(self.sandbox), task.description, told, shares, ('NONE', 'NUMBER'),
                                     launcher='TEST', base=f'{stem}.env' if base else '', memory=memory, ends=ends,
                                     trace=told.get('RP_PROF_TGT', ''), detail=detail)
            plan = self.sandbox / 'plan'
            plan.write_text(text)
            return [self._program, str(plan)]
        context = rank_script.started_by_launcher(
            'task.0', str(self.sandbox), shares, ('NONE', 'NUMBER'), launcher='TEST', base=f'{stem}.sh' if base else '',
            memory=memory, ends=ends)
        script = self.sandbox / 'script'
        script.write_text(exec_script(task, told, context, detail=detail))
        return ['/bin/sh', str(script)]

    def run(self, number: str = '', **how: Any) -> subprocess.CompletedProcess[str]:
        """One rank, to its end."""
        environ = {'PATH': os.environ['PATH'], 'OF_LAUNCHER': 'kept'} | ({'NUMBER': number} if number else {})
        return subprocess.run(self.command(**how), env=environ, capture_output=True, text=True, timeout=TIMEOUT)

    @property
    def notes(self) -> list[str]:
        """What ranks have noted, but for their usage."""
        path = self.sandbox / 'task.0.ranks'
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if not line.startswith('used ')]


@pytest.fixture(params=['program', 'script'])
def ranks(request: pytest.FixtureRequest, tmp_path: Path) -> Ranks:
    return Ranks(tmp_path, request.param)


@pytest.fixture
def program(tmp_path: Path) -> Ranks:
    return Ranks(tmp_path, 'program')


def variables(text: str) -> dict[str, str]:
    return dict(line.split('=', 1) for line in text.splitlines())


def test_environment(ranks: Ranks) -> None:
    shares = [RankShare(), RankShare(variables=(('GPUS', '0,1'),))]
    ran = ranks.run('1', shares=shares, executable='env', environment={'MINE': 'a b'},
                    base={'SITE': 'x y', 'MINE': 'no'})
    found = variables(ran.stdout)
    assert (ran.returncode, ran.stderr) == (0, '')
    assert {name: found.get(name) for name in ('OF_LAUNCHER', 'SITE', 'MINE', 'RP_TOLD', 'RP_RANK', 'GPUS')} == {
        'OF_LAUNCHER': 'kept', 'SITE': 'x y', 'MINE': 'a b', 'RP_TOLD': "it's", 'RP_RANK': '1', 'GPUS': '0,1'}
    assert found['RP_EXEC_PID'].isdecimal()


def test_place_and_arguments(ranks: Ranks) -> None:
    ran = ranks.run(executable='/bin/sh', arguments=['-c', 'pwd; shift; printf "<%s>"', '', '', "it's", 'a\nb', '*'])
    assert ran.stdout.startswith(f'{ranks.sandbox}\n')
    quoted = ranks.run(executable='printf', arguments=['<%s>', '', "it's", '"', '\\', 'a\nb', '*'])
    assert quoted.stdout == '<><it\'s><"><\\><a\nb><*>'


def test_literal_arguments(ranks: Ranks) -> None:
    texts = ['$HOME', r'\$HOME', '$(date)', '`date`', '$5', '{print $2}']
    ran = ranks.run(executable='printf', arguments=['%s|', *texts], literal_arguments=True)
    assert ran.stdout.split('|')[:-1] == texts


@pytest.mark.parametrize(('number', 'noted'), [('0', ['0 started']), ('1', [])])
def test_a_rank_that_does_well(ranks: Ranks, number: str, noted: list[str]) -> None:
    assert ranks.run(number, shares=[RankShare()] * 2).returncode == 0
    assert ranks.notes == noted


def test_a_rank_that_notes_its_end(ranks: Ranks) -> None:
    assert ranks.run('1', shares=[RankShare()] * 2, ends=True).returncode == 0
    assert ranks.notes == ['1 0']


@pytest.mark.parametrize(('script', 'code'), [('exit 7', 7), ('kill -9 $$', 137)])
def test_a_rank_that_fails(ranks: Ranks, script: str, code: int) -> None:
    path = ranks.sandbox / 'fails'
    path.write_text(f'#!/bin/sh\n{script}\n')
    path.chmod(0o755)
    assert ranks.run('1', shares=[RankShare()] * 2, executable=str(path), ends=True).returncode == code
    assert ranks.notes == [f'1 {code}']


def test_programs_that_cannot_be_executed(ranks: Ranks) -> None:
    (ranks.sandbox / 'text').write_text('x')
    for name, code in (('/no/such/program', 127), ('no-such-program', 127), (f'{ranks.sandbox}/text', 126)):
        ran = ranks.run(executable=name)
        assert (ran.returncode, name in ran.stderr) == (code, True)


def test_a_rank_that_is_not_told_its_number(ranks: Ranks) -> None:
    ran = ranks.run(shares=[RankShare()] * 2)
    assert (ran.returncode, ranks.notes) == (1, [])
    assert 'TEST' in ran.stderr
    assert 'number' in ran.stderr


@pytest.mark.parametrize(('number', 'said'), [('2', 'there are only 2 ranks'), ('x', "number of the rank to 'x'")])
def test_a_rank_that_is_told_a_wrong_number(program: Ranks, number: str, said: str) -> None:
    ran = program.run(number, shares=[RankShare()] * 2)
    assert ran.returncode == 1
    assert said in ran.stderr


def test_a_rank_is_bound(ranks: Ranks) -> None:
    shares = [RankShare((CPUS[0],)), RankShare((CPUS[-1],))]
    for rank, share in enumerate(shares):
        ran = ranks.run(str(rank), shares=shares, executable='grep',
                        arguments=['Cpus_allowed_list', '/proc/self/status'])
        assert ran.stdout.split() == ['Cpus_allowed_list:', str(share.cpus[0])]


def test_a_rank_that_cannot_be_bound_says_so(ranks: Ranks) -> None:
    ran = ranks.run('0', shares=[RankShare((4095,))] * 2)
    assert ran.returncode == 0
    assert ran.stderr.startswith('rank 0 is not bound to the CPUs 4095: ')
    assert 'Invalid argument' in ran.stderr


def test_memory(ranks: Ranks) -> None:
    ran = ranks.run(executable='grep', arguments=['Max data size', '/proc/self/limits'], memory=2**30)
    assert ran.stdout.split()[3:5] == [str(2**30)] * 2


def test_trace(ranks: Ranks) -> None:
    begin = time.time()
    assert ranks.run(detail=Detail()).returncode == 0
    rows = [line.split(',') for line in (ranks.sandbox / 'task.0.prof').read_text().splitlines()]
    assert [row[1] for row in rows] == ['exec_start', 'exec_pre', 'rank_start', 'rank_stop', 'exec_post', 'exec_stop']
    assert {tuple(row[2:6]) for row in rows} == {('', 'MainThread', 'task.0', 'AGENT_EXECUTING')}
    times = [float(row[0]) for row in rows]
    assert times == sorted(times)
    assert begin - 0.01 < times[0] <= times[-1] <= time.time()
    assert all(re.fullmatch(r'\d+\.\d{7}', row[0]) for row in rows)
    assert [bool(re.fullmatch(r'RP_EXEC_PID=\d+:RP_RANK_PID=\d+', row[6])) for row in rows] == [False] * 3 + [True] + \
        [False] * 2


def test_a_trace_of_less_detail(ranks: Ranks) -> None:
    assert ranks.run(detail=Detail('states')).returncode == 0
    rows = [line.split(',') for line in (ranks.sandbox / 'task.0.prof').read_text().splitlines()]
    assert [(row[1], bool(row[6])) for row in rows] == [('rank_start', False), ('rank_stop', True)]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_for_the_rank_is_one_for_its_program(program: Ranks, number: signal.Signals) -> None:
    path = program.sandbox / 'waits'
    path.write_text('#!/bin/sh\ntrap "echo told >>told; exit 3" TERM\n: >up\nwhile :; do sleep 0.01; done\n')
    path.chmod(0o755)
    with subprocess.Popen(program.command(executable=str(path)), start_new_session=True) as process:
        until((program.sandbox / 'up').exists)
        process.send_signal(number)
        assert process.wait(TIMEOUT) == 3
    assert ((program.sandbox / 'told').read_text(), program.notes) == ('told\n', ['0 started', '0 3'])


def test_a_program_does_not_outlive_its_rank(program: Ranks) -> None:
    path = program.sandbox / 'waits'
    path.write_text('#!/bin/sh\necho $$ >pid.new; mv pid.new pid; exec sleep 1000\n')
    path.chmod(0o755)
    with subprocess.Popen(program.command(executable=str(path))) as process:
        until((program.sandbox / 'pid').exists)
        process.kill()
    pid = int((program.sandbox / 'pid').read_text())
    until(lambda: is_gone(pid))


def test_what_is_not_a_plan(program: Ranks) -> None:
    path = program.sandbox / 'other'
    for text, said in ((b'rp-rank 0\0', 'is not a plan'), (b'rp-rank 2\0task', 'ends too soon')):
        path.write_bytes(text)
        ran = subprocess.run([program._program, str(path)], capture_output=True, text=True, timeout=TIMEOUT)
        assert (ran.returncode, said in ran.stderr) == (1, True)
    ran = subprocess.run([program._program, '/no/such/plan'], capture_output=True, text=True, timeout=TIMEOUT)
    assert (ran.returncode, 'cannot read /no/such/plan: No such file' in ran.stderr) == (1, True)


@pytest.mark.parametrize('shell', [{'pre_exec': ['true']}, {'post_exec': ['true']}, {'named_env': 'x'},
                                   {'pre_exec_sync': True}, {'arguments': ['$RP_RANK']}, {'executable': '`which true`'},
                                   {'environment': {'A': '$B'}}])
def test_what_needs_a_shell(shell: dict[str, Any]) -> None:
    task = AgentTask('task.0', {'executable': '/bin/true', **shell}, 'pilot.0000', '/')
    assert not rank_program.is_enough(task.description, task.sandbox)


def test_a_nul_character_is_refused(program: Ranks) -> None:
    with pytest.raises(ValueError, match='a NUL character cannot be passed to a program'):
        program.command(arguments=['a\0b'])


def test_where_no_program_can_be_executed(tmp_path: Path) -> None:
    assert rank_program.installed(str(tmp_path / 'missing')) == ''
    (tmp_path / 'rp-rank').mkdir()
    assert rank_program.installed(str(tmp_path)) == ''
