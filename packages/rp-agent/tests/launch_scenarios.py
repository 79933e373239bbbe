"""Executors whose process has other limits, another user, clock or numbers: `launch_scenarios.py NAME PATH`.

Each scenario runs in a process of its own, as it changes that for good. It raises AssertionError if something is wrong.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from executor_support import Harness, sh, text
from launch_support import (
    LAST_PID,
    Bystanders,
    Gate,
    an_executor,
    is_gone,
    lines,
    none_left,
    numbers,
    reap_orphans,
    states_of,
)
from leftovers import open_descriptors

from rp_agent.executor.popen import component
from rp_agent.executor.processes.launchloop import OWN, SPARE
from rp_agent.lineage import become_subreaper
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.system import processes
from rp_profiling.read.profile import read_profile

PR_SET_DUMPABLE = 4
HOUR = 3600


# the limit of processes


def become_somebody() -> None:
    """Be a user who has no other process: the limit of processes counts all of a user's, and does not bind root."""
    user = 30000 + os.getpid() % 20000
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    # changing the user has made /proc/self the property of root
    assert ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0


def allow_processes(count: int) -> None:
    """So many more than this one."""
    own = len(os.listdir('/proc/self/task'))
    resource.setrlimit(resource.RLIMIT_NPROC, (own + count, resource.getrlimit(resource.RLIMIT_NPROC)[1]))


@contextmanager
def few_processes(path: Path, count: int, **arguments: Any) -> Iterator[tuple[Harness, Gate]]:
    """An executor that can have `count` processes at a time, and a gate for its tasks."""
    become_somebody()
    allow_processes(count)
    gate = Gate(path)
    with an_executor(path, **arguments) as harness:
        yield harness, gate
    gate.close()


def wait_for_processes(path: Path) -> None:
    """Four tasks can run, forty are to: a task that ends makes room for the next one at once."""
    with few_processes(path, 4) as (harness, gate):
        tasks = [harness.task(f'task.{index:06d}', **gate.task()) for index in range(40)]
        # one at a time, so that the others hold all there is; and retries once a second would take too long
        harness.on_output = lambda ended: gate.let(len(ended))
        gate.let()
        harness.run(*tasks)
        assert len(harness.out) == 40
        assert states_of(tasks) == {states.DONE}, [task.exception_detail for task in tasks]


def order_is_kept(path: Path) -> None:
    """One task can run at a time: they run in the order in which they came."""
    with few_processes(path, 1) as (harness, _):
        tasks = [harness.task(f'task.{index:06d}', **sh(f'echo {index} >>../order')) for index in range(12)]
        harness.run(*tasks)
        assert states_of(tasks) == {states.DONE}, [task.exception_detail for task in tasks]
        assert numbers(path / 'order') == list(range(12))


def wait_for_processes_of_ranks(path: Path) -> None:
    """A task of three ranks that can get only one does not keep that, and runs whole when there is room."""
    with few_processes(path, 4) as (harness, gate):
        ranks = {'ranks': 3, 'use_mpi': False}
        first = harness.task('first', **gate.task('echo >>../runs'), **ranks)
        second = harness.task('second', **sh('echo x; until test -e ../ended; do :; done'), **ranks)
        harness.on_output = lambda ended: (path / 'ended').touch()
        harness.when(lambda: lines(path / 'runs') == 3, lambda: gate.let(3))
        harness.run(first, second)
        assert states_of([first, second]) == {states.DONE}, (first.exception_detail, second.exception_detail)
        assert text(second, 'second.out') == 'x\n' * 3


def no_process_at_all(path: Path) -> None:
    """Nothing runs whose end could help: after a while the task fails and says which limit it was."""
    vars(component)['SHORTAGE_LIMIT'] = 0.3
    with few_processes(path, 0) as (harness, _):
        task = harness.run_one()
        assert task.target_state == states.FAILED
        assert task.exception_detail is not None
        assert 'cannot create a process: Resource temporarily unavailable' in task.exception_detail


def shortage_passes(path: Path) -> None:
    """Nothing runs, but somebody else makes room: the task is started by itself."""
    with few_processes(path, 0) as (harness, _):
        harness.loop.call_later(0.1, allow_processes, 1)
        task = harness.run_one()
        assert task.target_state == states.DONE, task.exception_detail


def waiting_is_ended(path: Path) -> None:
    """Tasks that wait for room can be cancelled one by one, and end with the others when all is ended."""
    with few_processes(path, 1) as (harness, gate):
        running, waiting, last = tasks = [harness.task(f'task.{index}', **gate.task('echo >>../runs'))
                                          for index in range(3)]
        harness.wanted = 4
        harness.executor.put(tasks)

        def next_step(ended: list[AgentTask]) -> None:
            assert states_of(ended) == {states.CANCELED}, [task.exception_detail for task in ended]
            if ended == [waiting]:
                harness.executor.stop(harness.loop.stop, 'the pilot was cancelled')

        harness.on_output = next_step
        harness.when((path / 'runs').exists, partial(harness.executor.cancel, [waiting.uid]))
        harness.wait()
        assert states_of(tasks) == {states.CANCELED}, [task.exception_detail for task in tasks]
        assert [task.exception_detail for task in (waiting, running, last)] == [
            None, 'the pilot was cancelled', 'the pilot was cancelled']
        assert (path / 'runs').read_text() == '\n'


# the limit of open files


def allow_descriptors(count: int) -> None:
    """So many more than are open."""
    used = {number for number, *_ in open_descriptors()}
    # the limit is one of numbers, so those in between count too
    wanted = [number for number in range(max(used) + count + 2) if number not in used][count]
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def take_descriptors(leave: int = 0) -> list[int]:
    """Use up all descriptors that this process may have, but so many."""
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    for _ in range(leave):
        os.close(taken.pop())
    return taken


def give_back(taken: list[int]) -> None:
    while taken:
        os.close(taken.pop())


@contextmanager
def few_descriptors(path: Path, count: int, **arguments: Any) -> Iterator[tuple[Harness, Gate]]:
    """An executor that can have `count` descriptors more than an idle one, and a gate for its tasks."""
    gate = Gate(path)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with an_executor(path, **arguments) as harness:
        allow_descriptors(count)
        yield harness, gate
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    gate.close()


def wait_for_descriptors(path: Path) -> None:
    """Of 200 tasks of three kinds only a few can run at a time."""
    with few_descriptors(path, 24) as (harness, gate):
        # those that wait at the gate hold what others need
        kinds: dict[int, dict[str, Any]] = {1: {'ranks': 3, 'use_mpi': False},
                                            2: {'pre_launch': ['true'], 'startup_timeout': 1000.0}}
        tasks = [harness.task(f'task.{index:06d}', **kinds.get(index % 20, gate.task())) for index in range(200)]
        harness.on_output = lambda ended: gate.let(len(ended))
        gate.let()
        harness.run(*tasks)
        assert len(harness.out) == 200
        assert states_of(tasks) == {states.DONE}, {task.exception_detail for task in tasks}


def keep_descriptors(path: Path) -> None:
    """However many tasks there are, and daemons of theirs, some descriptors stay for what else an agent has to do."""
    become_subreaper()
    gate = Gate(path)
    allow_descriptors(OWN + SPARE + 20)
    with an_executor(path, grace=0.2) as harness:
        kinds: dict[int, dict[str, Any]] = {1: {'ranks': 3, 'use_mpi': False}, 2: {'pre_exec': ['true']}}
        tasks = [harness.task(f'task.{index:06d}', **(kinds.get(index % 20) or gate.task('(setsid sleep 1000 &)')))
                 for index in range(100)]
        free: list[int] = []

        def look(ended: list[AgentTask]) -> None:
            taken = take_descriptors()
            free.append(len(taken))
            give_back(taken)
            gate.let(len(ended))

        harness.on_output = look
        gate.let()
        harness.run(*tasks)
        assert states_of(tasks) == {states.DONE}, {task.exception_detail for task in tasks}
        assert min(free) >= SPARE, free
        harness.executor.sweep([task.uid for task in tasks])
        harness.when(lambda: not processes.sweep(harness.context.belongs, 0), harness.loop.stop)
        harness.loop.run()
        reap_orphans()
    gate.close()


def too_many_ranks(path: Path) -> None:
    """A task that needs more descriptors than there can be waits for the others, and fails with the reason."""
    vars(component)['SHORTAGE_LIMIT'] = 0.3
    allow_descriptors(OWN + SPARE + 20)
    with an_executor(path) as harness:
        others = [harness.task(f'task.{index}') for index in range(20)]
        large = harness.task('large', ranks=40, use_mpi=False, **sh('sleep 1000'))
        harness.run(*others[:10], large, *others[10:])
        assert states_of(others) == {states.DONE}
        assert large.target_state == states.FAILED
        assert large.exception_detail is not None
        assert 'ulimit -n' in large.exception_detail
        none_left(harness)


def shortage_at_every_step(path: Path) -> None:
    """Whichever descriptor it is that cannot be had, the task is started when there are enough, and none is lost."""
    for free in range(10):
        own = path / str(free)
        own.mkdir()
        start_with(free, own)


def start_with(free: int, path: Path) -> None:
    """Start tasks of several kinds with so few descriptors, and give more when another task is to end."""
    two = {'ranks': 2, 'use_mpi': False}
    with few_descriptors(path, 64) as (harness, gate):
        running = harness.task('running', **gate.task())
        tasks = [harness.task('plain', **two), harness.task('scripted', **two, pre_exec=['true'], pre_exec_sync=True),
                 harness.task('starting', pre_launch=['true'], startup_timeout=1000.0)]
        taken: list[int] = []

        def squeeze() -> None:
            taken.extend(take_descriptors(free))
            harness.executor.put(tasks)
            # the executor tries in this turn or in the next one
            harness.loop.call_soon(harness.loop.call_soon, relieve)

        def relieve() -> None:
            give_back(taken)
            gate.let()

        harness.wanted = 4
        harness.loop.call_soon(squeeze)
        harness.executor.put([running])
        harness.wait()
        assert states_of([running, *tasks]) == {states.DONE}, (free, [task.exception_detail for task in tasks])


def cancel_without_descriptors(path: Path) -> None:
    """What runs can be ended without a single descriptor, and a daemon of it as soon as there is one again."""
    become_subreaper()
    with few_descriptors(path, 64, grace=0.2) as (harness, gate):
        daemon = r'(setsid sleep 1000 & echo \$! >>../daemons)'
        tasks = [harness.task('task.0', **gate.task(f'{daemon}; echo >>../runs')),
                 *(harness.task(f'task.{index}', **gate.task('echo >>../runs')) for index in range(1, 12)),
                 harness.task('task.12', **sh("trap '' TERM; echo >>../runs; while :; do sleep 1000; done"))]
        taken: list[int] = []

        def cancel() -> None:
            taken.extend(take_descriptors())
            harness.executor.cancel([task.uid for task in tasks])

        def stop_after_daemon(ended: list[AgentTask]) -> None:
            if len(harness.out) == len(tasks):
                give_back(taken)
                harness.when(partial(is_gone, numbers(path / 'daemons')[0]), harness.loop.stop)

        harness.when(lambda: lines(path / 'runs') == len(tasks), cancel)
        harness.on_output = stop_after_daemon
        harness.wanted = len(tasks) + 1
        harness.executor.put(tasks)
        harness.wait()
        assert states_of(tasks) == {states.CANCELED}
        none_left(harness)
        reap_orphans()


def no_descriptor_at_all(path: Path) -> None:
    """Nothing runs whose end could help: after a while the task fails and says which limit it was."""
    vars(component)['SHORTAGE_LIMIT'] = 0.3
    with few_descriptors(path, 16) as (harness, _):
        taken = take_descriptors()
        task = harness.run_one()
        give_back(taken)
        assert task.target_state == states.FAILED
        assert task.exception_detail is not None
        assert 'Too many open files' in task.exception_detail


# other shortages, which the shim shortage.c makes


MAKE_FILE, MAKE_PROCESS = 1, 2


def passing_errors(path: Path) -> None:
    """Whatever the machine is short of, a task is started when that has passed."""
    with open(os.environ['TEST_SHORTAGE'], 'r+b') as file, mmap.mmap(file.fileno(), 16) as memory:
        for call in (MAKE_FILE, MAKE_PROCESS):
            for code in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
                own = path / f'{call}.{code}'
                own.mkdir()
                start_despite(partial(struct.pack_into, '=qq', memory, 0), call, code, own)


def start_despite(fail: Callable[[int, int], None], call: int, code: int, path: Path) -> None:
    """Start a task while that call fails, until another task is to end."""
    gate = Gate(path)
    with an_executor(path) as harness:
        running, task = harness.task('running', **gate.task()), harness.task('task')

        def squeeze() -> None:
            fail(call, code)
            harness.executor.put([task])
            # the executor tries in this turn or in the next one
            harness.loop.call_soon(harness.loop.call_soon, relieve)

        def relieve() -> None:
            assert harness.out == [], harness.out[0].exception_detail
            assert 'task' not in harness.executor._reaper.running, 'the shim has no effect'
            fail(0, 0)
            gate.let()

        harness.wanted = 2
        harness.loop.call_soon(squeeze)
        harness.executor.put([running])
        harness.wait()
        assert states_of([running, task]) == {states.DONE}, (call, code, task.exception_detail)
    gate.close()


# the clock


class Clock:
    """The offset of the wall clock in a process that has been started with the shim clock.c."""

    def __init__(self, path: str) -> None:
        with open(path, 'r+b') as file:
            self._memory = mmap.mmap(file.fileno(), 8)

    def step(self, seconds: int) -> None:
        before = time.time()
        struct.pack_into('=q', self._memory, 0, struct.unpack_from('=q', self._memory)[0] + seconds)
        assert abs(time.time() - before - seconds) < HOUR / 2, 'the shim has no effect'


def clock_steps(path: Path) -> None:
    """The wall clock goes forth and back while tasks run: limits, grace and waits keep to the time that passes."""
    clock = Clock(os.environ['TEST_CLOCK_OFFSET'])
    profile = path / 'x.prof'
    gate = Gate(path)
    with an_executor(path, profile=profile, grace=0.3) as harness:
        short = harness.task('task.short', executable='sleep', arguments=['1000'], timeout=0.5)
        startup = harness.task('task.startup', pre_launch=['sleep 1000'], startup_timeout=0.5)
        stubborn = harness.task('task.stubborn', timeout=0.5,
                                **sh("trap '' TERM; while :; do sleep 1000; done"))
        patient = harness.task('task.patient', **gate.task(), timeout=1000.0)
        tasks = [short, startup, stubborn, patient]
        for moment, seconds in ((0.1, HOUR), (0.2, -2 * HOUR), (0.3, HOUR), (0.55, -HOUR), (0.7, 3 * HOUR)):
            harness.loop.call_later(moment, clock.step, seconds)
        harness.on_output = lambda ended: gate.let() if len(harness.out) == 3 else None
        began = time.monotonic()
        harness.run(*tasks)
        assert time.monotonic() - began >= 0.8, 'time limit and grace have been cut short'
    gate.close()
    assert states_of([short, startup, stubborn]) == {states.CANCELED}
    assert patient.target_state == states.DONE, patient.exception_detail
    assert (short.exit_code, stubborn.exit_code) == (-15, -9)
    harness.tracer.close()
    rows = read_profile(profile)
    assert {row.uid for row in rows} >= {task.uid for task in tasks}
    assert [row.event for row in rows if row.uid == patient.uid and row.event in ('rank_start', 'rank_stop')] == [
        'rank_start', 'rank_stop']
    steps = [round((after.time - before.time) / HOUR) for before, after in pairwise(rows)]
    assert any(steps), f'the trace knows nothing of the steps: {steps}'


# an output that makes the one wait who opens it


def output_to_nobody(path: Path) -> None:
    """A FIFO that nobody reads cannot be opened for writing; the executor does not wait for a reader."""
    with an_executor(path) as harness:
        tasks = [harness.task(f'good.{index}') for index in range(3)]
        into_fifo = harness.task('bad', stdout='fifo')
        Path(into_fifo.sandbox).mkdir()
        os.mkfifo(Path(into_fifo.sandbox, 'fifo'))
        harness.run(tasks[0], into_fifo, *tasks[1:])
        assert states_of(tasks) == {states.DONE}
        assert into_fifo.target_state == states.FAILED
        assert into_fifo.exception_detail is not None
        assert f'{into_fifo.sandbox}/fifo' in into_fifo.exception_detail, into_fifo.exception_detail


# numbers of processes that are used again: in a namespace of its own, or other tests' processes would get them as well


@contextmanager
def some_bystanders() -> Iterator[Bystanders]:
    """Processes that must still run in the end."""
    started = Bystanders()
    try:
        yield started
        assert started.run(), "a process was signalled that is not a task's"
    finally:
        started.end()


def number_of_a_rank_is_used_again(path: Path) -> None:
    """One rank has ended, its number is that of somebody else, and then the task is cancelled."""
    # the other rank has no child: if its shell ended first, that would be a child of this process, the first one here
    command = r'echo \$\$ >>../pids.\$RP_RANK; test \$RP_RANK = 0 || exec sleep 1000'
    for name, before in (('TERM', ''), ('KILL', "trap '' TERM; ")):
        place = path / name
        place.mkdir()
        with an_executor(place, grace=0.1) as harness, some_bystanders() as bystanders:
            task = harness.task(**sh(before + command), ranks=2, use_mpi=False)
            harness.when(partial(_is_taken, place, bystanders), partial(harness.executor.cancel, [task.uid]))
            harness.run(task)
            assert task.target_state == states.CANCELED


def _is_taken(place: Path, bystanders: Bystanders) -> bool:
    both = all(lines(place / f'pids.{rank}') for rank in (0, 1))
    return both and bystanders.take(numbers(place / 'pids.0')[0])


def many_short_tasks_and_cancels(path: Path) -> None:
    """A thousand tasks, some of which are cancelled while they start, run or end; their numbers are used again."""
    with an_executor(path) as harness, some_bystanders() as bystanders:
        silent = {'stdout': '/dev/null', 'stderr': '/dev/null'}
        tasks = [harness.task(f'task.{index:06d}', **silent) for index in range(1000)]
        for task in tasks:
            task.sandbox = str(harness.path)
        waiting = iter(tasks[16:])
        first = bystanders.add()

        def go_on(ended: list[AgentTask]) -> None:
            more = [task for task in (next(waiting, None) for _ in ended) if task is not None]
            if len(harness.out) % 100 < len(ended):
                LAST_PID.write_text(str(first))
                bystanders.add()
            harness.executor.put(more)
            some = [task.uid for task in [*ended, *more] if int(task.uid[5:]) % 10 == 0]
            harness.executor.cancel(some[::2])
            harness.loop.call_soon(harness.executor.cancel, some[1::2])

        harness.on_output = go_on
        harness.wanted = len(tasks)
        harness.executor.put(tasks[:16])
        harness.wait()
        assert len(harness.out) == len({task.uid for task in harness.out}) == len(tasks)
        assert states_of(tasks) == {states.DONE, states.CANCELED}
        assert {task.target_state for task in tasks if int(task.uid[5:]) % 10} == {states.DONE}


SCENARIOS: dict[str, Callable[[Path], None]] = {scenario.__name__: scenario for scenario in (
    wait_for_processes, order_is_kept, wait_for_processes_of_ranks, no_process_at_all, shortage_passes,
    waiting_is_ended, wait_for_descriptors, keep_descriptors, too_many_ranks,
    shortage_at_every_step, cancel_without_descriptors, no_descriptor_at_all,
    passing_errors, clock_steps, output_to_nobody, number_of_a_rank_is_used_again, many_short_tasks_and_cancels)}


if __name__ == '__main__':
    SCENARIOS[sys.argv[1]](Path(sys.argv[2]))
