"""Protocol between an executor and its shell: the commands that the shell runs, and the lines that it answers.

The shell reads commands from its standard input. All words in them are quoted, so the shell never expands users' texts;
separate shells run the scripts of tasks. Answers come on a pipe, one line each, about a process whose number the
executor has chosen:

    S <number> <pid>     the process was started
    N <number>           the process was not started
    F <number>           the started process could not enter its sandbox, limit itself or open its output, and ends
    E <number> <code>    the process has ended; signal n is code 128 + n

Each process is a background command of the shell: `setsid` creates its session, `setpriv` makes the kernel kill it when
the shell dies, `taskset` binds it, `env` sets its exact environment. These programs execute each other in the same
process, so that the shell gets the exit code of the task's program.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_ANSWERS = 9
"""Descriptor of the shell for answers; higher than those that a task may get."""


class Answer(NamedTuple):
    """An answer of the shell; `value` is the pid or the exit code, 0 for other kinds."""

    kind: str
    number: int
    value: int


@dataclass(frozen=True)
class Tools:
    """Paths of the programs that the shell uses to start processes."""

    env: str
    setpriv: str
    setsid: str
    taskset: str


@dataclass(frozen=True)
class Job:
    """A process to start: its number, its program and arguments, the variables that not all processes share.

    `cpus` is the CPU mask that it is bound to, or None; `memory` limits its data in bytes, 0 for no limit.
    """

    number: int
    argv: Sequence[bytes]
    env: Sequence[bytes]
    cpus: bytes | None = None
    memory: int = 0


def prologue(tools: Tools, base_env: Iterable[bytes]) -> bytes:
    """Return the first commands: they set the descriptor for answers, functions and the shared environment.

    A shell without job control makes its background commands ignore SIGINT and SIGQUIT; `env` of GNU coreutils 8.31 or
    later undoes that.
    """
    env, setpriv, setsid, taskset = (_quote(os.fsencode(path)) for path in
                                     (tools.env, tools.setpriv, tools.setsid, tools.taskset))
    start = b'%s %s --pdeathsig KILL --' % (setsid, setpriv)
    return (b'exec %d>&3 3>&-\n' % _ANSWERS
            + b'if %s --default-signal=INT,QUIT true 2>/dev/null\n' % env
            + b'then rp_signals=--default-signal=INT,QUIT\nelse rp_signals=\nfi\n'
            + b'rp_exec() { exec %s %s -i $rp_signals -- "$@"; }\n' % (start, env)
            + b'rp_bound() { rp_mask=$1; shift; exec %s %s "$rp_mask" %s -i $rp_signals -- "$@"; }\n'
            % (start, taskset, env)
            + b'set -- %s\n' % b' '.join(map(_quote, base_env)))


def start_text(jobs: Sequence[Job], cwd: bytes, output: tuple[bytes, bytes],
               inherited: Mapping[int, bytes]) -> bytes:
    """Return commands that start the processes of a task; their standard output and error are appended to two files.

    `inherited` maps descriptors of the processes to paths of pipes. The shell opens them once for all processes.
    """
    text = b'\n'.join(_start(job, cwd, output) for job in jobs) + b'\n'
    if not inherited:
        return text
    opened = b' '.join(b'%d>%s' % (fd, _quote(path)) for fd, path in inherited.items())
    failed = b'; '.join(_answer(b'N', job.number) for job in jobs)
    return b'{\n%s} %s || { %s; }\n' % (text, opened, failed)


def wait_text(number: int, pid: int) -> bytes:
    """Return a command that reports the exit code of an ended process, without the signal messages of some shells."""
    return b'wait %d 2>/dev/null; echo E %d $? >&%d\n' % (pid, number, _ANSWERS)


def parse(line: bytes) -> Answer:
    """Parse an answer; raise ValueError for any other line."""
    kind, number, *value = line.decode('ascii').split(' ')
    if kind not in ('S', 'N', 'F', 'E') or len(value) != (kind in ('S', 'E')):
        raise ValueError(f'{line!r} is not an answer of the shell')
    return Answer(kind, int(number), int(value[0]) if value else 0)


def _start(job: Job, cwd: bytes, output: tuple[bytes, bytes]) -> bytes:
    argv = list(job.argv)
    if b'=' in argv[0]:   # env takes it for a variable
        argv = [b'/bin/sh', b'-c', b'exec "$@"', b'sh', *argv]
    words = b' '.join(map(_quote, (*job.env, *argv)))
    run = b'rp_exec' if job.cpus is None else b'rp_bound %#x' % int.from_bytes(job.cpus, 'little')
    limit = b'ulimit -d %d && ' % (job.memory // 1024) if job.memory else b''
    stdout, stderr = map(_quote, output)
    return (b'( cd -- %s && %s{ %s "$@" %s %d>&-; } </dev/null >>%s 2>>%s; %s; exit 126 ) & echo S %d $! >&%d'
            % (_quote(cwd), limit, run, words, _ANSWERS, stdout, stderr, _answer(b'F', job.number), job.number,
               _ANSWERS))


def _answer(kind: bytes, number: int) -> bytes:
    return b'echo %s %d >&%d' % (kind, number, _ANSWERS)


def _quote(text: bytes) -> bytes:
    """Quote the text for a shell so that every byte is literal."""
    return b"'" + text.replace(b"'", b"'\\''") + b"'"
