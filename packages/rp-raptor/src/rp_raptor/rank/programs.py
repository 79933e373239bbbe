"""Programs and shell commands that calls run: as children of the rank, in its session, each in a group of its own.

What is left of that group ends with the program. Daemons, which have left it, end with the worker.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any

from rp_api.system import processes
from rp_raptor.rank.capture import KEPT, Outcome, failure, tail
from rp_raptor.worker.mpi_launch import without_job

_OWN_GROUP: dict[str, Any] = {'process_group': 0} if sys.version_info >= (3, 11) else {'preexec_fn': os.setpgrp}


def run_program(executable: str, arguments: Sequence[str], stdout: str, stderr: str, *,
                shared: bool = False) -> Outcome:
    """What becomes of a program in the working directory; `$` in its arguments is expanded by a shell.

    What it puts out goes to the files that are named, too; to their ends, when it has ended, if they are `shared` with
    other ranks.
    """
    words = [executable, *map(str, arguments)]
    if any('$' in word or '`' in word for word in words):
        return run_command(' '.join(map(_quoted, words)), stdout, stderr, shared=shared)
    return _run(words, stdout, stderr, shared)


def run_command(command: str, stdout: str, stderr: str, *, shared: bool = False) -> Outcome:
    """What becomes of a shell command in the working directory; the files are as with `run_program`."""
    return _run(['/bin/sh', '-c', command], stdout, stderr, shared)


def _run(argv: list[str], stdout: str, stderr: str, shared: bool) -> Outcome:
    try:
        with _opened('' if shared else stdout) as out, _opened('' if shared else stderr) as err:
            code = _code(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                          env=without_job(os.environ), **_OWN_GROUP))
            if shared:
                _append(out, stdout)
                _append(err, stderr)
            return Outcome(_end(out), _end(err), code, None, (None, None))
    except OSError as error:   # there is no such program, or no room
        return failure(RuntimeError(f'cannot run {argv[0]}: {error.strerror}'))


def _code(process: subprocess.Popen[bytes]) -> int:
    """The exit code; whatever interrupts the wait for it ends all that was started."""
    try:
        # it keeps its number, which is that of its group, until it is reaped
        with suppress(ChildProcessError):   # unless SIGCHLD is ignored
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    except BaseException:
        processes.kill_tree([process.pid], signal.SIGKILL)
        process.wait()
        raise
    with suppress(ProcessLookupError, PermissionError):   # another user's by now
        os.killpg(process.pid, signal.SIGKILL)
    code = processes.exit_code(process)
    if code is None:
        raise ChildProcessError(0, 'its exit code is not known, as SIGCHLD is ignored in this rank')
    return code


def _opened(name: str) -> IO[bytes]:
    """The file of that name, or one without a name."""
    return open(name, 'w+b') if name else tempfile.TemporaryFile(dir='.')


def _append(file: IO[bytes], name: str) -> None:
    if name:
        file.seek(0)
        with open(name, 'ab') as whole:
            shutil.copyfileobj(file, whole)


def _end(file: IO[Any]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - KEPT))
    return tail(file.read().decode(errors='replace'))


def _quoted(word: str) -> str:
    return '"' + re.sub(r'(["\\])', r'\\\1', word) + '"'
