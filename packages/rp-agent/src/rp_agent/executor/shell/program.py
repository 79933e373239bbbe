"""Protocol between an executor and its shell: the commands that the shell runs, and the lines that it answers.

The shell reads commands from its standard input, and answers each by one line on descriptor 3: `prologue` by 0;
`start_text` by the pid of the started process, or 0 if it could not be started; `wait_text` by the exit code of an
ended process, which is 128 + n after signal n. All words in commands are quoted, so the shell never expands users'
texts; separate shells run the scripts of tasks.

Each process is a background command of the shell: `setsid` creates its session, `setpriv` makes the kernel kill it when
the shell dies, `taskset` binds it, `env` sets its exact environment. These programs execute each other in the same
process, so that the shell gets the exit code of the task's program.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence

from rp_api.errors import PlatformError

_ANSWERS = 9
"""Descriptor of the shell for answers; higher than those that a task may get."""


def prologue(search_path: str, base_env: Iterable[bytes]) -> bytes:
    """Return the first commands: they set the descriptor for answers, functions and the shared environment.

    The programs that they need are looked up in these directories and those of the system. Raise PlatformError if one
    is missing. A shell without job control makes its background commands ignore SIGINT and SIGQUIT; `env` of GNU
    coreutils 8.31 or later undoes that.
    """
    env, setpriv, setsid, taskset = (_tool(name, search_path) for name in ('env', 'setpriv', 'setsid', 'taskset'))
    start = b'%s %s --pdeathsig KILL --' % (setsid, setpriv)
    return (b'exec %d>&3 3>&-\n' % _ANSWERS   # not from 0, where ksh waits for ever
            + b'if %s --default-signal=INT,QUIT true 2>/dev/null\n' % env
            + b'then rp_signals=--default-signal=INT,QUIT\nelse rp_signals=\nfi\n'
            + b'rp_exec() { exec %s %s -i $rp_signals -- "$@"; }\n' % (start, env)
            + b'rp_bound() { rp_mask=$1; shift; exec %s %s "$rp_mask" %s -i $rp_signals -- "$@"; }\n'
            % (start, taskset, env)
            + b'set -- %s\necho 0 >&%d\n' % (b' '.join(map(_quote, base_env)), _ANSWERS))


def start_text(argv: Sequence[bytes], env: Iterable[bytes], cwd: bytes, fds: Sequence[int], cpus: bytes | None,
               memory: int) -> bytes:
    """Return a command that starts a process.

    Args:
        argv: The program and its arguments.
        env: The variables that not all processes share.
        cwd: The directory of the process.
        fds: Descriptors of this process that become standard output, standard error, and those from 3 on.
        cpus: The CPU mask that it is bound to, or None.
        memory: The limit of its data in bytes, 0 for no limit.
    """
    if b'=' in argv[0]:   # env takes it for a variable
        argv = [b'/bin/sh', b'-c', b'exec "$@"', b'sh', *argv]
    run = b'rp_exec' if cpus is None else b'rp_bound %#x' % int.from_bytes(cpus, 'little')
    limit = b'ulimit -d %d && ' % (memory // 1024) if memory else b''
    opened = b' '.join(b'%d>>/proc/%d/fd/%d' % (number, os.getpid(), fd)
                       for number, fd in zip((1, 2, 3, 4), fds, strict=False))
    return (b'cd -- %s && { ( %s%s "$@" %s %d>&-; exit 126 ) </dev/null & echo $! >&%d; } %s || echo 0 >&%d; cd /\n'
            % (_quote(cwd), limit, run, b' '.join(map(_quote, (*env, *argv))), _ANSWERS, _ANSWERS, opened, _ANSWERS))


def wait_text(pid: int) -> bytes:
    """Return a command that reports the exit code of an ended process, without the signal messages of some shells."""
    return b'wait %d 2>/dev/null; echo $? >&%d\n' % (pid, _ANSWERS)


def _tool(name: str, search_path: str) -> bytes:
    path = shutil.which(name, path=f'{search_path}:{os.defpath}')
    if path is None:
        raise PlatformError(f'agent_spawner SHELL needs the program {name}, of GNU coreutils or util-linux 2.33, '
                            f'which is not in {search_path}: install it or use agent_spawner POPEN')
    return _quote(os.fsencode(os.path.abspath(path)))


def _quote(text: bytes) -> bytes:
    """Quote the text for a shell so that every byte is literal."""
    return b"'" + text.replace(b"'", b"'\\''") + b"'"
