"""Programs and shell commands of calls: children of the rank, in its session, each in a process group of its own.

Other processes of that group are killed when the program ends. Daemons, which have left it, end with the worker.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import IO, Any

from rp_api.errors import PlatformError
from rp_api.raptor_link import SHELL
from rp_api.system import processes
from rp_api.system.shell import find_shell
from rp_api.system.shell_text import advice, command_line, escaped, is_command, shell_quote
from rp_raptor.rank.capture import MAX_STREAM_CHARS, Outcome, failure, tail
from rp_raptor.worker.mpi_launch import without_job

_shell = cache(find_shell)

_OWN_GROUP: dict[str, Any] = {'process_group': 0} if sys.version_info >= (3, 11) else {'preexec_fn': os.setpgrp}


def run_program(executable: str, arguments: Sequence[str], stdout: str, stderr: str, *,
                shared: bool = False, literal: bool = False) -> Outcome:
    """Run a program in the working directory and return the outcome.

    Unless `literal`, `$` in arguments is expanded, and a shell runs an executable that is a command line.
    Output also goes to the files that are named: during the run or, if `shared` with other ranks, appended at its end.
    """
    words = list(map(str, arguments))
    if not literal and is_command(executable, '.'):
        return run_command(command_line(executable, words), stdout, stderr, shared=shared)
    if literal or not any('$' in word or '`' in word for word in words):
        return _run([executable, *words], stdout, stderr, shared)
    outcome = run_command(' '.join(map(shell_quote, [escaped(executable), *words])), stdout, stderr, shared=shared)
    explained = advice(outcome.exit_code, words)
    return outcome._replace(exception=(f'exit code: 127{explained}', None)) if explained else outcome


def run_command(command: str, stdout: str, stderr: str, *, shared: bool = False) -> Outcome:
    """Run a command of the platform's shell in the working directory; files as with `run_program`."""
    try:
        shell = _shell(os.environ.get(SHELL, ''), os.environ.get('PATH', os.defpath))
    except PlatformError as error:
        return failure(error)
    return _run([shell, '-c', command], stdout, stderr, shared)


def _run(argv: list[str], stdout: str, stderr: str, shared: bool) -> Outcome:
    try:
        with _opened('' if shared else stdout) as out, _opened('' if shared else stderr) as err:
            code = _code(partial(subprocess.Popen, argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                 env=without_job(os.environ), **_OWN_GROUP))
            if shared:
                _append(out, stdout)
                _append(err, stderr)
            return Outcome(_end(out), _end(err), code, None, (None, None))
    except OSError as error:   # no such program, or no resources
        return failure(RuntimeError(f'cannot run {argv[0]}: {error.strerror}'))


def _code(start: Callable[[], subprocess.Popen[Any]]) -> int:
    """Start a program and return its exit code; an interruption kills all processes of the program."""
    process: subprocess.Popen[Any] | None = None
    try:
        with _without_interruption():   # a program whose start is interrupted would go on, unknown
            process = start()
        # the process id, which is that of the group, stays reserved until the process is reaped
        with suppress(ChildProcessError):   # unless SIGCHLD is ignored
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    except BaseException:
        if process is not None:
            processes.kill_tree([process.pid], signal.SIGKILL)
            process.wait()
        raise
    with suppress(ProcessLookupError, PermissionError):   # the group is empty, or has become another user's
        os.killpg(process.pid, signal.SIGKILL)
    code = processes.exit_code(process)
    if code is None:
        raise ChildProcessError(0, 'its exit code is not known, as SIGCHLD is ignored in this rank')
    return code


@contextmanager
def _without_interruption() -> Generator[None, None, None]:
    """Delay the signal that interrupts a call, which the main thread handles, until the end of the context."""
    handler = signal.getsignal(signal.SIGUSR1)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    late: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: late.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, handler)
        for number in late:
            signal.raise_signal(number)


def _opened(name: str) -> IO[bytes]:
    """Open the file of that name, or an anonymous one."""
    return open(name, 'w+b') if name else tempfile.TemporaryFile(dir='.')


def _append(file: IO[bytes], name: str) -> None:
    if name:
        file.seek(0)
        with open(name, 'ab') as whole:
            shutil.copyfileobj(file, whole)


def _end(file: IO[Any]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MAX_STREAM_CHARS))
    return tail(file.read().decode(errors='replace'))
