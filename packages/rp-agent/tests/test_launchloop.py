"""The launch loop without an executor: environments, bindings, limits, and the ends of processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from leftovers import open_descriptors
from spawning import spawn

from rp_agent.executor.processes.launch import Variables, cpu_mask
from rp_agent.executor.processes.launchloop import LaunchLoop, Process
from rp_api.system import processes

ENV = [b'PATH=/usr/bin:/bin']
SHELL = b'/bin/sh'


@pytest.fixture
def null() -> Iterator[int]:
    descriptor = os.open('/dev/null', os.O_RDWR)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def launched() -> Iterator[LaunchLoop]:
    loop = LaunchLoop()
    yield loop
    loop.close()


def start(launched: LaunchLoop, null: int, command: bytes, run: object = 'run', rank: int = 0) -> Process:
    return launched.start(run, rank, [SHELL, b'-c', command], ENV, b'/', (null, null, null))


def wait(launched: LaunchLoop, count: int = 1) -> list[Process]:
    """The next processes that end."""
    found: list[Process] = []
    while len(found) < count:
        assert select.select([launched.fd], [], [], 20)[0], f'only {len(found)} of {count} processes ended'
        found += launched.ended()
    return found


def variables(block: object) -> dict[str, str]:
    assert hasattr(block, '__iter__')
    return dict(os.fsdecode(entry).split('=', 1) for entry in block)


def test_a_block_has_the_shared_and_the_own_variables() -> None:
    block = Variables({'A': '1', 'B': '2', 'C': '3'}).block({'B': 'own', 'D': 'new'})
    assert list(block) == [b'A=1', b'B=own', b'C=3', b'D=new']
    assert len(block) == 4


def test_a_block_outlives_what_it_was_made_from() -> None:
    blocks = [Variables({f'A{number}': 'x' * number}).block({f'B{number}': 'y' * number}) for number in range(200)]
    for number, block in enumerate(blocks):
        assert variables(block) == {f'A{number}': 'x' * number, f'B{number}': 'y' * number}


def test_texts_that_are_not_ascii() -> None:
    block = Variables({'A': 'ä', 'RAW': 'a\udcff'}).block({'B': '日本', 'BYTES': '\udcfe'})
    assert list(block) == ['A=ä'.encode(), b'RAW=a\xff', 'B=日本'.encode(), b'BYTES=\xfe']


def test_a_large_block() -> None:
    own = {f'NAME_{number}': 'v' * number for number in range(2000)}
    assert variables(Variables({'A': 'b'}).block(own)) == {'A': 'b', **own}


def test_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match='NUL'):
        Variables({'A': 'x\0y'})
    with pytest.raises(ValueError, match='NUL'):
        Variables({}).block({'A': 'x\0y'})


def test_only_text_is_taken() -> None:
    with pytest.raises(TypeError):
        Variables({}).block({'A': 1})   # type: ignore[dict-item]


def test_a_program_sees_its_block(null: int, tmp_path: Path) -> None:
    block = Variables({'PATH': '/usr/bin:/bin', 'A': 'shared', 'B': 'b'}).block({'A': 'own', 'N': 'ö'})
    with (tmp_path / 'out').open('wb') as out:
        _, pidfd = spawn([b'/usr/bin/env'], block, b'/', null, out.fileno(), null)
    os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
    os.close(pidfd)
    assert (tmp_path / 'out').read_text('utf-8').splitlines() == ['PATH=/usr/bin:/bin', 'A=own', 'B=b', 'N=ö']


@pytest.mark.parametrize(('cpus', 'mask'), [
    ([], bytes(8)), ([0], b'\1' + bytes(7)), ([1, 8], b'\2\1' + bytes(6)), ([64], bytes(8) + b'\1' + bytes(7)),
])
def test_cpu_mask(cpus: list[int], mask: bytes) -> None:
    assert cpu_mask(cpus) == mask
    assert cpu_mask(iter(cpus)) == mask


def test_a_program_is_bound_to_its_cpus(null: int, tmp_path: Path) -> None:
    for cpu in sorted(os.sched_getaffinity(0)):
        with (tmp_path / 'out').open('wb') as out:
            _, pidfd = spawn([sys.executable.encode(), b'-c', b'import os; print(sorted(os.sched_getaffinity(0)))'],
                             ENV, b'/', null, out.fileno(), null, cpus=cpu_mask([cpu]))
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        os.close(pidfd)
        assert (tmp_path / 'out').read_text() == f'[{cpu}]\n'


def test_a_binding_to_cpus_that_do_not_exist(null: int) -> None:
    with pytest.raises(OSError, match='cannot bind the process to its cores'):
        spawn([b'/bin/true'], ENV, b'/', null, null, null, cpus=cpu_mask([4000]))


def test_memory_is_limited(null: int) -> None:
    program = b'block = bytearray(200 * 2**20)'
    codes = []
    for memory in (0, 2**30, 100 * 2**20):
        _, pidfd = spawn([sys.executable.encode(), b'-c', program], ENV, b'/', null, null, null, memory=memory)
        ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        assert ended is not None
        codes.append(ended.si_status)
        os.close(pidfd)
    assert codes == [0, 0, 1]


def test_ends_come_with_run_rank_and_code(launched: LaunchLoop, null: int) -> None:
    runs = [object() for _ in range(20)]
    for number, run in enumerate(runs):
        start(launched, null, b'exit %d' % number, run, number)
    assert len(launched) == 20
    ended = sorted(wait(launched, 20), key=lambda process: process.rank)
    assert [(process.run, process.rank, process.code) for process in ended] == [
        (run, number, number) for number, run in enumerate(runs)]
    assert len(launched) == 0
    assert launched.ended() == []


def test_the_end_by_a_signal(launched: LaunchLoop, null: int) -> None:
    start(launched, null, b'kill -SEGV $$')
    assert wait(launched)[0].code == -signal.SIGSEGV


def test_many_ends_at_once(launched: LaunchLoop, null: int) -> None:
    for _ in range(150):
        start(launched, null, b'exit 3')
    assert {process.code for process in wait(launched, 150)} == {3}


@pytest.mark.parametrize('spared', [False, True])
def test_what_is_left_of_a_group(spared: bool, launched: LaunchLoop, null: int) -> None:
    """Nothing of it outlives the process that was started, unless it is spared."""
    process = start(launched, null, b'sleep 1000 & exit 0')
    process.spared = spared
    wait(launched)
    if spared:
        os.killpg(process.pid, signal.SIGKILL)   # which finds it
    deadline = time.monotonic() + 30
    while any(each.session == process.pid and each.alive for each in processes.process_table().values()):
        assert time.monotonic() < deadline, 'a process is left'
        time.sleep(0.005)


def test_a_process_that_is_forgotten_is_left_alone(launched: LaunchLoop, null: int) -> None:
    process = start(launched, null, b'exec sleep 1000')
    assert process.pid in launched
    launched.forget(process)
    launched.forget(process)
    assert process.pid not in launched
    os.kill(process.pid, signal.SIGKILL)
    os.waitpid(process.pid, 0)
    assert launched.ended() == []


def test_orphans_are_reaped_by_a_subreaper() -> None:
    program = f'''if True:
        import os, select
        from rp_agent.executor.processes.launchloop import LaunchLoop
        from rp_agent.lineage import become_subreaper
        become_subreaper()
        null = os.open('/dev/null', os.O_RDWR)
        launched = LaunchLoop()
        # the grandchild leads a session of its own, and loses its parent
        launched.start('run', 0, [b'/bin/sh', b'-c', b'setsid sh -c "exit 0" & sleep 0.2'], {ENV!r}, b'/', (null,) * 3)
        select.select([launched.fd], [], [])
        assert [process.run for process in launched.ended()] == ['run']
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print('none left')
    '''
    ran = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, timeout=30, check=False)
    assert (ran.stdout, ran.stderr) == ('none left\n', '')


@pytest.mark.parametrize(('argv', 'cwd', 'error', 'text'), [
    ([b'/no/such/program'], b'/', FileNotFoundError, 'cannot execute: No such file'),
    ([b'/etc/passwd'], b'/', PermissionError, 'cannot execute: Permission denied'),
    ([b'/bin/true'], b'/no/such/place', FileNotFoundError, 'cannot enter the working directory'),
    ([b'/bin/true', b'x' * 3_000_000], b'/', OSError, 'cannot execute: Argument list too long'),
])
def test_a_program_that_is_never_executed(launched: LaunchLoop, null: int, argv: list[bytes], cwd: bytes,
                                          error: type[OSError], text: str) -> None:
    """That shows at the end of the process; nobody waits for it before."""
    launched.start('run', 0, argv, ENV, cwd, (null, null, null))
    process, = wait(launched)
    assert isinstance(process.failure, error)
    assert text in str(process.failure)


def test_a_program_that_was_executed_has_no_failure(launched: LaunchLoop, null: int) -> None:
    start(launched, null, b'exit 127')
    process, = wait(launched)
    assert (process.code, process.failure) == (127, None)


def test_a_failing_start_uses_no_errno_of_the_parent(launched: LaunchLoop, null: int, tmp_path: Path) -> None:
    """Children that fail run beside the parent and share its memory: what it does goes on unharmed."""
    for number in range(300):
        launched.start('run', number, [b'/no/such/program'], ENV, b'/', (null, null, null))
        with pytest.raises(FileExistsError):
            tmp_path.mkdir()
    assert {type(process.failure) for process in wait(launched, 300)} == {FileNotFoundError}


def test_kill_waits_for_the_end(launched: LaunchLoop, null: int) -> None:
    process = start(launched, null, b'sleep 1000')
    launched.kill(process)
    launched.kill(process)
    assert len(launched) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_close_leaves_no_descriptor(null: int) -> None:
    before = open_descriptors()
    launched = LaunchLoop()
    process = start(launched, null, b'exec sleep 1000')
    launched.close()
    launched.close()
    assert open_descriptors() <= before
    os.kill(process.pid, signal.SIGKILL)
    os.waitpid(process.pid, 0)
