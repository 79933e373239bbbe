"""How programs are started, with real processes."""

from __future__ import annotations

import errno
import gc
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from children import nothing_stays
from spawning import spawn

ENV = [b'PATH=/usr/bin:/bin', b'LANG=C']
TMP = b'/tmp'
FINDS = {**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}   # the modules of tests


@pytest.fixture
def null() -> Iterator[int]:
    descriptor = os.open('/dev/null', os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def reap(pidfd: int) -> int:
    """The exit code, negative for a signal; closes the descriptor."""
    ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
    os.close(pidfd)
    assert ended is not None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def output(null: int, log: Path, argv: list[bytes], **arguments: Any) -> bytes:
    """Standard output and error of the program."""
    with log.open('wb') as stream:
        _, pidfd = spawn(argv, arguments.pop('env', ENV), arguments.pop('cwd', TMP), null, stream.fileno(),
                         stream.fileno(), **arguments)
        reap(pidfd)
    return log.read_bytes()


@pytest.mark.parametrize('code', [0, 1, 42, 255])
def test_exit_codes(null: int, code: int) -> None:
    pid, pidfd = spawn([b'/bin/sh', b'-c', b'exit %d' % code], ENV, TMP, null, null, null)
    assert pid > 0
    assert reap(pidfd) == code


def test_signals(null: int) -> None:
    _, pidfd = spawn([b'/bin/sh', b'-c', b'kill -SEGV $$'], ENV, TMP, null, null, null)
    assert reap(pidfd) == -signal.SIGSEGV


def test_pidfd_becomes_readable_at_the_end(null: int) -> None:
    pid, pidfd = spawn([b'/bin/sleep', b'1000'], ENV, TMP, null, null, null)
    assert select.select([pidfd], [], [], 0)[0] == []
    os.kill(pid, signal.SIGKILL)
    assert select.select([pidfd], [], [], 30)[0] == [pidfd]
    assert reap(pidfd) == -signal.SIGKILL


def test_the_environment_is_what_was_given(null: int, tmp_path: Path) -> None:
    env = [b'A=1', b'B=', 'ümläut=\u00e9\n"\''.encode(), b'RAW=\xff\xfe']
    assert output(null, tmp_path / 'out', [b'/usr/bin/env', b'-0'], env=env) == b'\0'.join(env) + b'\0'


def test_arguments_arrive_unchanged(null: int, tmp_path: Path) -> None:
    words = [b'', b'two words', b'new\nline', b'"quo\'tes"', 'ünïcödé \U0001f680'.encode(), b'\xff', b'*', b'$HOME',
             b'-n']
    assert output(null, tmp_path / 'out', [b'/usr/bin/printf', b'%s\\0', *words]) == b'\0'.join(words) + b'\0'


def test_the_path_can_differ_from_the_name(null: int, tmp_path: Path) -> None:
    said = output(null, tmp_path / 'out', [b'my name', b'-c', b'echo $0'], path=b'/bin/sh')
    assert said == b'my name\n'


def test_working_directory(null: int, tmp_path: Path) -> None:
    assert output(null, tmp_path / 'out', [b'/bin/pwd'], cwd=os.fsencode(tmp_path)) == os.fsencode(tmp_path) + b'\n'


def test_only_the_given_descriptors_are_open(null: int, tmp_path: Path) -> None:
    inheritable = os.dup(null)
    os.set_inheritable(inheritable, True)
    try:
        listed = output(null, tmp_path / 'out', [b'/bin/ls', b'/proc/self/fd'])
        # the last one is that of the directory which ls reads
        assert listed.split() == [b'0', b'1', b'2', b'3']
    finally:
        os.close(inheritable)


def test_passed_descriptors_get_the_next_numbers(null: int, tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    said = output(null, tmp_path / 'out', [b'/bin/sh', b'-c', b'readlink /proc/self/fd/3; echo hello >&4'],
                  pass_fds=(null, write_fd))
    assert said == b'/dev/null\n'
    assert os.read(read_fd, 100) == b'hello\n'
    os.close(read_fd)
    os.close(write_fd)


def test_descriptors_that_stand_in_each_others_way(tmp_path: Path) -> None:
    """Standard streams whose sources are the descriptors 0, 1 and 2 themselves, in another order."""
    program = f'''if True:
        import os, sys
        from spawning import spawn
        null = os.open('/dev/null', os.O_RDONLY)
        out = os.open({str(tmp_path / 'out')!r}, os.O_WRONLY | os.O_CREAT)
        err = os.open({str(tmp_path / 'err')!r}, os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 0), os.dup2(err, 1), os.dup2(null, 2)
        pid, pidfd = spawn([b'/bin/sh', b'-c', b'echo out; echo err >&2; cat'], [b'PATH=/bin:/usr/bin'], b'/', 2, 0, 1)
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
    '''
    subprocess.run([sys.executable, '-c', program], env=FINDS, check=True, timeout=30)
    assert (tmp_path / 'out').read_text() == 'out\n'
    assert (tmp_path / 'err').read_text() == 'err\n'


def test_signal_handlers_and_mask_are_the_default_ones(null: int, tmp_path: Path) -> None:
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN, 'Python ignores it, a task must not'
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        status = output(null, tmp_path / 'out', [b'/bin/cat', b'/proc/self/status']).decode()
        assert signal.SIGUSR1 in signal.pthread_sigmask(signal.SIG_BLOCK, ()), 'the mask of the parent has changed'
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    masks = dict(line.split(':\t') for line in status.splitlines() if line.startswith('Sig'))
    assert int(masks['SigBlk'], 16) == int(masks['SigIgn'], 16) == int(masks['SigCgt'], 16) == 0


def test_leads_a_session_of_its_own(null: int) -> None:
    pid, pidfd = spawn([b'/bin/sleep', b'1000'], ENV, TMP, null, null, null)
    assert os.getsid(pid) == os.getpgid(pid) == pid
    os.killpg(pid, signal.SIGKILL)
    assert reap(pidfd) == -signal.SIGKILL


def test_script_without_interpreter_line(null: int, tmp_path: Path) -> None:
    script = tmp_path / 'script'
    script.write_text('echo "$0 $1 $#"\n')
    script.chmod(0o755)
    said = output(null, tmp_path / 'out', [b'script', b'a b', b'c'], path=os.fsencode(script))
    assert said.decode() == f'{script} a b 2\n'


def test_program_for_another_machine_is_not_run_as_a_script(null: int, tmp_path: Path) -> None:
    program = tmp_path / 'program'
    program.write_bytes(b'\x7fELF\0\0garbage')
    program.chmod(0o755)
    with pytest.raises(OSError, match='cannot execute') as caught:
        spawn([os.fsencode(program)], ENV, TMP, null, null, null)
    assert caught.value.errno == errno.ENOEXEC


@pytest.mark.parametrize(('argv', 'cwd', 'error', 'filename', 'text'), [
    ([b'/no/such/program'], TMP, FileNotFoundError, '/no/such/program', 'cannot execute: No such file'),
    ([b'/etc/passwd'], TMP, PermissionError, '/etc/passwd', 'cannot execute: Permission denied'),
    ([b'/bin/true'], b'/no/such/place', FileNotFoundError, '/no/such/place', 'cannot enter the working directory'),
    ([b'/bin/true', b'x' * 3_000_000], TMP, OSError, '/bin/true', 'cannot execute: Argument list too long'),
])
def test_failures_say_what_failed_and_leave_nothing(null: int, argv: list[bytes], cwd: bytes, error: type[OSError],
                                                    filename: str, text: str) -> None:
    gc.collect()
    with nothing_stays():
        with pytest.raises(error, match=text) as caught:
            spawn(argv, ENV, cwd, null, null, null)
        assert caught.value.filename == filename


def test_bad_descriptor(null: int) -> None:
    with pytest.raises(OSError, match='cannot pass on the open files: Bad file descriptor'):
        spawn([b'/bin/true'], ENV, TMP, -1, null, null)


@pytest.mark.parametrize(('argv', 'env', 'error', 'text'), [
    ([], ENV, ValueError, 'argv is empty'),
    ([b'/bin/echo', 'text'], ENV, TypeError, "need bytes, not str: 'text'"),
    ([b'/bin/echo', b'a\0b'], ENV, ValueError, 'NUL character'),
    ([b'/bin/echo'], [b'A=\0'], ValueError, 'NUL character'),
    ([b'/bin/echo'], [1], TypeError, 'need bytes, not int'),
    ((b'/bin/echo',), ENV, TypeError, 'list'),
])
def test_what_cannot_be_passed_is_refused(null: int, argv: Any, env: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        spawn(argv, env, TMP, null, null, null)


def test_too_many_descriptors_are_refused(null: int) -> None:
    with pytest.raises(ValueError, match='cannot pass 14 file descriptors, the limit is 13'):
        spawn([b'/bin/true'], ENV, TMP, null, null, null, (null,) * 14)


def test_no_process_can_be_created() -> None:
    """A limit on processes does not bind root; one on descriptors does: there is none left for that of the process."""
    program = '''if True:
        import os, resource
        from rp_agent.executor.processes.launchloop import LaunchLoop
        null = os.open('/dev/null', os.O_RDWR)
        loop = LaunchLoop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (loop.fd + 1, loop.fd + 1))
        try:
            loop.start('run', 0, [b'/bin/true'], [], b'/', (null, null, null))
        except OSError as error:
            print(error.errno, error.strerror)
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED)
        except ChildProcessError:
            print('no child')
    '''
    ran = subprocess.run([sys.executable, '-c', program], check=True, timeout=30, capture_output=True, text=True)
    assert ran.stdout == f'{errno.EMFILE} cannot create a process: Too many open files\nno child\n'


def test_dies_with_its_parent() -> None:
    program = '''if True:
        import os, signal
        from spawning import spawn
        null = os.open('/dev/null', os.O_RDWR)
        pid, pidfd = spawn([b'/bin/sleep', b'1000'], [], b'/', null, null, null)
        os.write(1, f'{pid}\\n'.encode())
        signal.pause()
    '''
    with subprocess.Popen([sys.executable, '-c', program], env=FINDS, stdout=subprocess.PIPE) as helper:
        assert helper.stdout is not None
        pidfd = os.pidfd_open(int(helper.stdout.readline()))
        helper.kill()
        assert select.select([pidfd], [], [], 30)[0] == [pidfd]
        os.close(pidfd)


def test_many_starts_leave_no_descriptor_and_no_zombie(null: int) -> None:
    with nothing_stays():
        for _ in range(100):
            _, pidfd = spawn([b'/bin/true'], ENV, TMP, null, null, null)
            assert reap(pidfd) == 0
