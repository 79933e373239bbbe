"""What can go wrong when tasks are launched, while they run and when they are ended, with real processes.

What needs a process with other limits, another user, clock or numbers is in launch_scenarios.py.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import launch_scenarios as scenarios
import pytest
from executor_support import Harness, sh, text
from launch_support import (
    Gate,
    an_executor,
    compiled,
    end_tasks,
    lines,
    none_left,
    numbers,
    reap_orphans,
    states_of,
)
from leftovers import must_end

from rp_agent import lookup
from rp_agent.lineage import become_subreaper
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.system.processes import read_process

HERE = Path(__file__).parent
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason='only root can become somebody else or mount')

OWN_NUMBERS = ('unshare', '--pid', '--fork', '--kill-child', '--mount-proc', 'setsid')
"""Has a program run where it alone chooses the numbers of processes."""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Harness]]:
    """Makes an executor, which must leave nothing."""
    with ExitStack() as stack:
        yield lambda **arguments: stack.enter_context(an_executor(tmp_path, **arguments))


@pytest.fixture
def harness(make: Callable[..., Harness]) -> Harness:
    return make()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    opened = Gate(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that every user may reach and write to."""
    with tempfile.TemporaryDirectory(dir='/tmp') as path:
        os.chmod(path, 0o777)
        yield Path(path)


def run(scenario: Callable[[Path], None], path: Path, *wrapper: str, **environment: str) -> None:
    """Run a scenario in a process of its own, and end it if it hangs."""
    command = [*wrapper, sys.executable, str(HERE / 'launch_scenarios.py'), scenario.__name__, str(path)]
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, sys.path)), **environment}
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, env=environment)
    finally:
        end_tasks(path, *path.iterdir())
    assert ran.returncode == 0, ran.stderr


# something is short


@needs_root
@pytest.mark.parametrize('scenario', [
    scenarios.wait_for_processes, scenarios.order_is_kept, scenarios.wait_for_processes_of_ranks,
    scenarios.no_process_at_all, scenarios.shortage_passes, scenarios.waiting_is_ended])
def test_limit_of_processes(public: Path, scenario: Callable[[Path], None]) -> None:
    run(scenario, public)


@pytest.mark.parametrize('scenario', [
    scenarios.wait_for_descriptors, scenarios.keep_descriptors, scenarios.too_many_ranks,
    scenarios.shortage_at_every_step, scenarios.cancel_without_descriptors,
    scenarios.no_descriptor_at_all])
def test_limit_of_open_files(tmp_path: Path, scenario: Callable[[Path], None]) -> None:
    run(scenario, tmp_path)


def test_other_shortages(tmp_path: Path) -> None:
    shim, shortage = compiled(tmp_path, 'shortage'), tmp_path / 'shortage'
    shortage.write_bytes(bytes(16))
    run(scenarios.passing_errors, tmp_path, LD_PRELOAD=str(shim), TEST_SHORTAGE=str(shortage))


# what is to be executed is not what it was


def missing_interpreter(path: Path) -> None:
    path.write_text('#!/no/such/interpreter\n')


def no_program(path: Path) -> None:
    path.write_bytes(b'\x00\x01\x02 this is for no machine')


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def loop_of_links(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


SPOILT: list[tuple[Callable[[Path], object], str]] = [
    (Path.unlink, 'not found|No such file or directory'),
    (directory, 'is a directory|Permission denied'),
    (lambda path: path.chmod(0o644), 'permission to execute is missing|Permission denied'),
    (missing_interpreter, 'No such file or directory.*interpreter'),
    (no_program, 'Exec format error'),
    (loop_of_links, 'symbolic link'),
]


def a_program(path: Path) -> Path:
    path.write_text('#!/bin/sh\necho ran\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(('spoil', 'reason'), SPOILT)
def test_executable_changes_after_it_was_found(harness: Harness, monkeypatch: pytest.MonkeyPatch,
                                               spoil: Callable[[Path], object], reason: str) -> None:
    """Between look-up and start: the task fails with path and reason, the others of the bulk run."""
    victim = a_program(harness.path / 'program')
    executable = lookup._executable

    def found_and_spoilt(path: str) -> bool:
        found = executable(path)
        if found and path == str(victim):
            monkeypatch.setattr(lookup, '_executable', executable)
            spoil(victim)
        return found

    monkeypatch.setattr(lookup, '_executable', found_and_spoilt)
    good = [harness.task(f'good.{index}') for index in range(20)]
    bad = harness.task('bad', executable=str(victim))
    harness.run(*good[:10], bad, *good[10:])
    assert states_of(good) == {states.DONE}
    assert (bad.target_state, bad.exit_code) == (states.FAILED, None)
    assert bad.exception_detail is not None
    assert str(victim) in bad.exception_detail
    assert re.search(reason, bad.exception_detail), bad.exception_detail


@pytest.mark.parametrize('name', ['program', '{directory}/program'])
@pytest.mark.parametrize('spoil', [spoil for spoil, _ in SPOILT])
def test_executable_changes_between_bulks(harness: Harness, spoil: Callable[[Path], object], name: str) -> None:
    """What was found once is not taken for granted, and is found again when it is back."""
    directory = harness.path / 'bin'
    directory.mkdir()
    victim = a_program(directory / 'program')
    attributes = {'executable': name.format(directory=directory), 'environment': {'PATH': f'{directory}:/bin'}}
    before, spoilt, after = (harness.task(uid, **attributes) for uid in ('before', 'spoilt', 'after'))
    good = [harness.task(f'good.{index}') for index in range(4)]

    def next_bulk(_: list[AgentTask]) -> None:
        if len(harness.out) == 1:
            spoil(victim)
            harness.executor.put([*good[:2], spoilt, *good[2:]])
        elif len(harness.out) == 6:
            (victim.rmdir if victim.is_dir() else partial(victim.unlink, missing_ok=True))()
            a_program(victim)
            harness.executor.put([after])

    harness.on_output = next_bulk
    harness.wanted = 7
    harness.executor.put([before])
    harness.wait()
    assert states_of([before, *good, after]) == {states.DONE}, after.exception_detail
    assert spoilt.target_state == states.FAILED
    assert spoilt.exception_detail is not None
    assert str(directory) in spoilt.exception_detail


def test_program_that_is_being_written(harness: Harness) -> None:
    victim = harness.path / 'program'
    victim.write_bytes(Path('/bin/true').read_bytes())
    victim.chmod(0o755)
    bad, good = harness.task('bad', executable=str(victim)), harness.task('good')
    with victim.open('r+b'):
        harness.run(bad, good)
    assert states_of([bad, good]) == {states.FAILED, states.DONE}
    assert bad.exception_detail == f'cannot execute: Text file busy ({victim})'


# tasks that do not want to end


STUBBORN = r"trap '' TERM INT HUP; echo \$\$ >>../pids"


@pytest.mark.parametrize('more', [{}, {'pre_exec': ['true']}, {'pre_launch': ['true']}])
def test_a_tree_that_ignores_sigterm(make: Callable[..., Harness], more: dict[str, Any]) -> None:
    """After the grace period nothing is left of it, whichever kind of plan started it."""
    harness = make(grace=0.1)
    (harness.path / 'inner').write_text("trap '' TERM; echo $$ >>../pids; while :; do sleep 1000; done\n")
    inner = 'sh ../inner & setsid sh ../inner &'
    task = harness.task(**sh(f"{STUBBORN}; {inner} while :; do sleep 1000; done"), **more)
    harness.when(lambda: lines(harness.path / 'pids') == 3, lambda: harness.executor.cancel([task.uid]))
    harness.run(task)
    assert (task.target_state, task.exception) == (states.CANCELED, None)
    must_end(numbers(harness.path / 'pids'))
    none_left(harness)


DAEMON = r"(setsid sh -c 'echo \$\$ >>../pids; exec sleep 1000' </dev/null >/dev/null 2>&1 &)"


@pytest.fixture
def subreaper() -> Iterator[None]:
    """Be the parent of orphans, as an agent is."""
    become_subreaper()
    yield
    assert ctypes.CDLL(None).prctl(36, 0, 0, 0, 0) == 0


@pytest.mark.usefixtures('subreaper')
def test_daemon_of_a_task_that_is_cancelled(make: Callable[..., Harness]) -> None:
    harness = make(grace=0.2)
    task = harness.task(**sh(f'{DAEMON}; {DAEMON}; sleep 1000'))
    harness.when(lambda: lines(harness.path / 'pids') == 2, lambda: harness.executor.cancel([task.uid]))
    harness.run(task)
    must_end(numbers(harness.path / 'pids'))
    none_left(harness)
    reap_orphans()


@pytest.mark.usefixtures('subreaper')
def test_daemon_of_a_task_that_ends(harness: Harness) -> None:
    task = harness.run_one(**sh(f'{DAEMON}; until test -s ../pids; do :; done'))
    assert task.target_state == states.DONE
    must_end(numbers(harness.path / 'pids'))
    none_left(harness)
    reap_orphans()


def test_every_rank_tells_that_it_runs(harness: Harness) -> None:
    """The first one is enough to be in time, and the others are not harmed by that."""
    task = harness.run_one(**sh(r'echo \$RP_RANK'), pre_launch=['true'], pre_exec=[{'1': 'sleep 0.1'}], ranks=3,
                           use_mpi=False, startup_timeout=1000.0)
    assert task.target_state == states.DONE, task.exception_detail
    assert sorted(text(task, 'task.000000.out').split()) == ['0', '1', '2']


def test_task_that_closes_its_files(harness: Harness) -> None:
    """It runs on, and its end is seen."""
    task = harness.run_one(**sh('exec 0<&- 1>&- 2>&-; sleep 0.1; echo >>../ran; exit 7'))
    assert (task.target_state, task.exit_code) == (states.FAILED, 7)
    assert lines(harness.path / 'ran') == 1


def test_task_that_leaves_its_work_to_a_child(harness: Harness) -> None:
    """A task is its first process: when that ends, the children end with it."""
    task = harness.run_one(**sh(r'sleep 1000 & echo \$! >>../pids; sleep 1000 & echo \$! >>../pids'))
    assert (task.target_state, task.exit_code) == (states.DONE, 0)
    must_end(numbers(harness.path / 'pids'))


@pytest.mark.parametrize('more', [{}, {'pre_exec': ['true']}, {'pre_launch': ['true']}])
def test_task_that_stops_itself(make: Callable[..., Harness], more: dict[str, Any]) -> None:
    """It has not ended, so it stays until it is cancelled."""
    harness = make(grace=0.1)
    task = harness.task(**sh(r'echo \$\$ >../pids; kill -STOP \$\$; exit 3'), **more)

    def stopped() -> bool:
        process = read_process(numbers(harness.path / 'pids')[0]) if lines(harness.path / 'pids') else None
        return process is not None and process.state == 'T'

    harness.when(stopped, lambda: harness.executor.cancel([task.uid]))
    harness.run(task)
    assert task.target_state == states.CANCELED
    must_end(numbers(harness.path / 'pids'))
    none_left(harness)


def test_task_that_is_stopped_keeps_its_time_limit(make: Callable[..., Harness]) -> None:
    task = make(grace=0.1).run_one(**sh(r'kill -STOP \$\$'), timeout=0.1)
    assert task.exception_detail == 'timeout: the task ran longer than 0.1 s'


BOMB = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for depth in range(5):   # 2^5 processes, and then 32 more that are started again and again
    if os.fork() == 0 and depth % 2:
        os.setsid()
with open('../pids', 'a') as stream:
    stream.write(f'{os.getpid()}\\n')
while True:
    child = os.fork()
    if child == 0:
        signal.pause()
    os.waitpid(child, 0)
"""


@pytest.mark.usefixtures('subreaper')
def test_fork_bomb(make: Callable[..., Harness]) -> None:
    """64 processes in several sessions, half of which come back when they are killed, end with the task."""
    harness = make(grace=0.2)
    task = harness.task(executable=sys.executable, arguments=['-S', '-c', BOMB.replace('$', r'\$')])
    harness.when(lambda: lines(harness.path / 'pids') == 32, lambda: harness.executor.cancel([task.uid]))
    harness.run(task)
    assert task.target_state == states.CANCELED
    must_end(numbers(harness.path / 'pids'))
    none_left(harness)
    reap_orphans()


# the sandbox and the files of the outputs


@pytest.mark.parametrize(('end', 'state'), [('', states.DONE), ('; exit 3', states.FAILED)])
@pytest.mark.parametrize('more', [{}, {'pre_exec': ['true']}, {'pre_launch': ['true']}])
def test_sandbox_is_removed_while_the_task_runs(harness: Harness, more: dict[str, Any], end: str, state: str) -> None:
    task = harness.run_one(**sh(f'rm -r "$RP_TASK_SANDBOX"; echo x{end}'), **more)
    assert (task.target_state, task.exit_code) == (state, 3 if end else 0)
    assert not os.path.exists(task.sandbox)


@needs_root
def test_sandbox_becomes_read_only(harness: Harness) -> None:
    """What runs goes on with the files that it has; what is started there then fails, with the path and the reason."""
    sandbox = harness.path / 'task.000000'
    sandbox.mkdir()
    gate = Gate(harness.path)
    running = harness.task(**gate.task('echo before', 'echo after'))
    late = harness.task('late', stdout='late.out')
    late.sandbox = str(sandbox)
    mounts = ['mount', '--bind', str(sandbox), str(sandbox)], ['mount', '-o', 'remount,ro,bind', str(sandbox)]

    def freeze() -> None:
        for command in mounts:
            subprocess.run(command, check=True)
        harness.executor.put([late])

    harness.when(lambda: lines(sandbox / 'task.000000.out') == 1, freeze)
    harness.on_output = lambda ended: gate.let()
    harness.wanted = 2
    try:
        harness.executor.put([running])
        harness.wait()
    finally:
        gate.close()
        subprocess.run(['umount', '-l', sandbox], check=True)
    assert running.target_state == states.DONE
    assert text(running, 'task.000000.out') == 'before\nafter\n'
    assert late.exception_detail == f'cannot open {sandbox}/late.out: Read-only file system'


def test_output_to_a_full_device(harness: Harness) -> None:
    task = harness.task('bad', executable='/bin/echo', arguments=['x'], stdout='/dev/full')
    good = harness.task('good')
    harness.run(task, good)
    assert (task.target_state, task.exit_code, good.target_state) == (states.FAILED, 1, states.DONE)
    assert 'No space left on device' in text(task, 'bad.err')


def test_output_to_a_reader(harness: Harness) -> None:
    """A FIFO that somebody reads is an output like any other: the task waits until it has been emptied."""
    task = harness.task(executable='head', arguments=['-c', '1000000', '/dev/zero'], stdout='fifo')
    Path(task.sandbox).mkdir()
    fifo = Path(task.sandbox, 'fifo')
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    got: list[int] = []
    harness.loop.add_fd(reader, lambda: got.append(len(os.read(reader, 1 << 20))))
    harness.on_output = lambda ended: harness.loop.remove_fd(reader)
    harness.run(task)
    while chunk := os.read(reader, 1 << 20):
        got.append(len(chunk))
    os.close(reader)
    assert (task.target_state, task.exit_code) == (states.DONE, 0)
    assert sum(got) == 1_000_000


def test_output_to_nobody(tmp_path: Path) -> None:
    run(scenarios.output_to_nobody, tmp_path)


@pytest.mark.parametrize('target', ['file', 'missing'])
def test_sandbox_is_no_directory(harness: Harness, target: str) -> None:
    """A file, or a link that leads nowhere, is in its place."""
    (harness.path / 'file').touch()
    (harness.path / 'bad').symlink_to(harness.path / target)
    bad, good = harness.task('bad'), harness.task('good')
    harness.run(bad, good)
    assert states_of([bad, good]) == {states.FAILED, states.DONE}
    assert bad.exception_detail == f'cannot create the task sandbox {bad.sandbox}: File exists'


# the clock


def test_clock_steps(tmp_path: Path) -> None:
    shim, offset = compiled(tmp_path, 'clock'), tmp_path / 'offset'
    offset.write_bytes(bytes(8))
    run(scenarios.clock_steps, tmp_path, LD_PRELOAD=str(shim), TEST_CLOCK_OFFSET=str(offset))


# numbers of processes that are used again


@needs_root
@pytest.mark.parametrize('scenario', [
    scenarios.number_of_a_rank_is_used_again, scenarios.many_short_tasks_and_cancels])
def test_numbers_are_used_again(tmp_path: Path, scenario: Callable[[Path], None]) -> None:
    run(scenario, tmp_path, *OWN_NUMBERS)
