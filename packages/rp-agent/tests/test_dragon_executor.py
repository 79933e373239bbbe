"""The executor DRAGON, with a program on PATH that answers as Dragon does, or the one that TEST_DRAGON names."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from executor_support import Harness as ExecutorHarness
from executor_support import said, sh, text
from launch_support import is_gone
from leftovers import must_end, open_descriptors

from rp_agent.executor.backends.dragon.executor import DragonKind
from rp_agent.executor.backends.jobs import JobExecutor
from rp_agent.executor.backends.launcher import InstanceNode
from rp_api import states
from rp_api.system import processes

STAND_IN = Path(__file__).with_name('dragon_stand_in')

REAL = os.environ.get('TEST_DRAGON', '')
"""The directory of a Dragon's programs, whose Python has pyzmq as well."""


class Harness(ExecutorHarness):
    """A Dragon executor on this host."""

    executor: JobExecutor

    def __init__(self, path: Path, **environ: Any) -> None:
        def make(uid: str, tracer: Any, loop: Any, context: Any) -> JobExecutor:
            kind = DragonKind(loop, 'tcp://127.0.0.1:*', single=True)
            return JobExecutor(uid, tracer, loop, context, kind, (range(1),), [InstanceNode('localhost', 4)])

        super().__init__(path, make, PATH=f'{REAL or STAND_IN}:{os.environ["PATH"]}', DRAGON_DEFAULT_SEG_SZ=str(2**28),
                         STAND_IN_PYTHONPATH=os.pathsep.join(filter(None, sys.path)), **environ)
        self.patience = 120.0 if REAL else 30.0

    def runtimes(self) -> list[int]:
        """The process numbers of the runtimes that run."""
        return [live.process.process.pid for live in self.executor.supervisor._live.values()
                if live.process.process is not None]

    def stop(self) -> None:
        """End all tasks and runtimes."""
        self.wanted = len(self.out) + 1000
        stopped: list[bool] = []
        self.executor.stop(lambda: stopped.append(True), 'the end')
        self.when(lambda: stopped, self.loop.stop)
        self.wait()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Harness]]:
    before = open_descriptors()
    made: list[Harness] = []

    def make(**environ: str) -> Harness:
        made.append(Harness(tmp_path, **environ))
        return made[-1]

    yield make
    for harness in made:
        runtimes = harness.runtimes()
        harness.close()
        assert all(map(is_gone, runtimes))
        must_end(processes.sweep({'RP_SESSION_ID': harness.context.session_id}, 0))
    assert open_descriptors() <= before
    if REAL:
        subprocess.run([f'{REAL}/dragon-cleanup'], capture_output=True, timeout=60)


def test_tasks(make: Callable[..., Harness], tmp_path: Path) -> None:
    harness = make()
    task = harness.task('task', **sh('echo $RP_RANK of $RP_RANKS in $(pwd); echo no >&2; echo $FOO'),
                        environment={'FOO': 'bar'}, pre_exec=['echo before'])
    ranks = harness.task('ranks', **sh('echo $RP_RANK/$RP_RANKS'), ranks=3, use_mpi=False, pre_exec_sync=True)
    fails = harness.task('fails', **sh('exit $((RP_RANK * 7))'), ranks=2, use_mpi=False)
    mpi = harness.task('mpi', ranks=2)
    missing = harness.task('missing', executable='/no/such/program')
    literal = harness.task('literal', executable='echo', arguments=['$PWD', '`pwd`', r'\$'], literal_arguments=True)
    harness.run(task, ranks, fails, mpi, missing, literal)
    assert (task.target_state, task.exit_code) == (states.DONE, 0), task.exception_detail
    assert text(task, 'task.out').splitlines() == ['before', f'0 of 1 in {task.sandbox}', 'bar']
    assert text(task, 'task.err') == 'no\n'
    assert sorted(text(ranks, 'ranks.out').split()) == ['0/3', '1/3', '2/3']
    assert text(literal, 'literal.out') == '$PWD `pwd` \\$\n'
    assert (fails.target_state, fails.exit_code) == (states.FAILED, 7)
    assert (missing.target_state, missing.exit_code) == (states.FAILED, 127)
    assert 'use_mpi=False' in str(mpi.exception_detail)
    assert not list(Path(harness.context.pilot_sandbox).glob('dragon.*')), 'keys are left'
    harness.stop()
    assert not harness.runtimes()


def test_ends_that_are_not_their_own(make: Callable[..., Harness], tmp_path: Path) -> None:
    """Time limits, and tasks that are cancelled."""
    harness = make()
    slow = harness.task('slow', **sh('exec sleep 1000'), timeout=0.2)
    cancelled = harness.task('cancelled', **sh(f'touch {tmp_path}/runs; exec sleep 1000'))
    harness.when((tmp_path / 'runs').exists, lambda: harness.executor.cancel(['cancelled', 'unknown']))
    harness.run(slow, cancelled)
    assert slow.exception_detail == 'timeout: the task ran longer than 0.2 s'
    assert {slow.target_state, cancelled.target_state} == {states.CANCELED}
    harness.stop()


def test_tasks_of_a_runtime_that_dies_run_again(make: Callable[..., Harness], tmp_path: Path) -> None:
    """And nothing stays of it."""
    others = list(Path('/dev/shm').glob('DD*'))
    harness = make()
    script = tmp_path / 'twice.sh'
    script.write_text(f'echo $$ >>{tmp_path}/pids\ntest $(wc -l <{tmp_path}/pids) = 2 || exec sleep 1000\n')
    task = harness.task(executable='/bin/sh', arguments=[str(script)])
    harness.when(lambda: said(tmp_path / 'pids'), lambda: os.kill(harness.runtimes()[0], signal.SIGKILL))
    harness.run(task)
    assert task.target_state == states.DONE, task.exception_detail
    first, second = map(int, (tmp_path / 'pids').read_text().split())
    assert first != second
    assert is_gone(first)
    harness.stop()
    if not REAL:
        segments = Path(harness.context.own_sandbox, 'segments').read_text().split()
        assert [Path(segment).exists() for segment in segments] == [False, False]
    elif not others:
        assert not list(Path('/dev/shm').glob('DD*'))


@pytest.mark.skipif(bool(REAL), reason='the real one works')
def test_no_dragon(make: Callable[..., Harness]) -> None:
    harness = make(DRAGON_STAND_IN_FAILS='yes')
    task = harness.run_one()
    assert task.target_state == states.FAILED
    assert 'no active job allocations were found' in str(task.exception_detail)
