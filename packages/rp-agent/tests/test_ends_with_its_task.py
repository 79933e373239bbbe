"""What a task leaves behind ends with it, and a task that does not want to end does, whatever has started it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from backend_support import DragonHarness, FluxHarness
from children import children
from executor_support import Harness
from launcher_support import HYDRA, launchers
from leftovers import must_end
from test_dvm_tasks import Bench

from rp_agent.executor.launching import rank_program
from rp_agent.executor.shell import ShellExecutor
from rp_agent.lineage import become_subreaper
from rp_api import states

# a child that holds the output of the task, one in a session of its own, and a daemon
LEAVES = '''
sleep 1000 &
echo $! >>"$1"
setsid sh -c 'echo $$ >>"$1"; exec sleep 1000' sh "$1" &
(setsid sh -c 'echo $$ >>"$1"; exec sleep 1000' sh "$1" </dev/null >/dev/null 2>&1 &)
until test "$(wc -l <"$1")" = 3; do :; done
'''

IGNORES = '''
trap '' TERM
sh -c 'echo $$ >>"$1"; while :; do sleep 1; done' sh "$1" &
setsid sh -c 'echo $$ >>"$1"; while :; do sleep 1; done' sh "$1" &
until test "$(wc -l <"$1")" = 2; do :; done
echo $$ >>"$1"
while :; do sleep 1; done
'''

SHELL: dict[str, Any] = {'pre_exec': ['true']}
"""Of a task whose ranks need a shell."""


def plain(path: Path, stack: ExitStack) -> Harness:
    return Harness(path, grace=0.5)


def shell(path: Path, stack: ExitStack) -> Harness:
    return Harness(path, ShellExecutor, grace=0.5)


def mpiexec(path: Path, stack: ExitStack) -> Harness:
    return Harness(path, grace=6.0, launchers=stack.enter_context(launchers(path, HYDRA)))


def prte(path: Path, stack: ExitStack) -> Harness:
    return Bench(path)


def flux(path: Path, stack: ExitStack) -> Harness:
    return FluxHarness(path, stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))


def dragon(path: Path, stack: ExitStack) -> Harness:
    return DragonHarness(path)


@pytest.fixture(params=[
    pytest.param((plain, {}), id='plain'), pytest.param((plain, SHELL), id='plain, script'),
    pytest.param((plain, {'pre_launch': ['true']}), id='plain, launch script'),
    pytest.param((shell, {}), id='SHELL'), pytest.param((shell, SHELL), id='SHELL, script'),
    pytest.param((mpiexec, {'use_mpi': True}), id='MPIEXEC'),
    pytest.param((mpiexec, {'use_mpi': True, **SHELL}), id='MPIEXEC, script'),
    pytest.param((prte, {'use_mpi': True}), id='PRTE'), pytest.param((flux, {}), id='FLUX'),
    pytest.param((dragon, {}), id='DRAGON')])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Harness, dict[str, Any]]]:
    """An executor in a process that is the parent of orphans, as an agent is, and what makes tasks start one way."""
    others = children()
    become_subreaper()
    make, description = request.param
    with ExitStack() as stack:
        harness = make(tmp_path, stack)
        yield harness, description
        harness.stop()
        harness.close()
    assert ctypes.CDLL(None).prctl(36, 0, 0, 0, 0) == 0
    for pid in children() - others:   # they have ended, if nothing has failed
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def task_of(harness: Harness, uid: str, text: str, **description: Any) -> tuple[Any, Path]:
    """A task that runs a script, which writes numbers of processes to a file, and that."""
    script, pids = harness.path / f'{uid}.sh', harness.path / f'{uid}.pids'
    script.write_text(text)
    return harness.task(uid, executable='/bin/sh', arguments=[str(script), str(pids)], ranks=1, **description), pids


def numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_a_task_that_ends(way: tuple[Harness, dict[str, Any]]) -> None:
    harness, description = way
    for uid in ('first', 'second'):   # nothing that the first one has left is in the way
        task, pids = task_of(harness, uid, LEAVES, **description)
        harness.run(task)
        assert (task.target_state, task.exit_code) == (states.DONE, 0), task.exception_detail
        assert len(numbers(pids)) == 3
        must_end(numbers(pids))


def test_a_task_that_does_not_want_to(way: tuple[Harness, dict[str, Any]]) -> None:
    harness, description = way
    task, pids = task_of(harness, 'stubborn', IGNORES, **description)
    harness.when(lambda: len(numbers(pids)) == 3, lambda: harness.executor.cancel([task.uid]))
    harness.run(task)
    assert task.target_state == states.CANCELED
    must_end(numbers(pids))


@pytest.mark.parametrize('text', [LEAVES, IGNORES], ids=['leaves', 'ignores'])
def test_ranks_on_other_nodes(tmp_path: Path, text: str) -> None:
    """There, what starts a rank is alone with what that leaves, even if it has cleared its environment."""
    (tmp_path / 'script').write_text(text.replace('sleep 1000', 'env -i sleep 1000'))
    pids = tmp_path / 'pids'
    program = rank_program.installed(str(tmp_path))
    command = rank_program.of_script(program, str(tmp_path / 'script'), str(tmp_path / 'notes'))
    with subprocess.Popen([*command, str(pids)]) as ran:
        if text == IGNORES:
            while len(numbers(pids)) < 3:
                pass
            ran.send_signal(signal.SIGTERM)
        assert ran.wait(60) == (128 + signal.SIGKILL if text == IGNORES else 0)
    must_end(numbers(pids))
