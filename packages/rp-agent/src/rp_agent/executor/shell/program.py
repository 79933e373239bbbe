"""What is said between an executor and its shell: the texts that the shell runs, and the lines that it answers with.

The shell reads these texts from its standard input. A text is made of words that stand for themselves, so nothing that
a user wrote is ever read by this shell; the scripts of tasks are run by shells of their own. The answers come on a
pipe, one line each, about a process with a number that the executor has chosen:

    S <number> <pid>     the process was started
    N <number>           the process was not started
    F <number>           the started process could not enter its sandbox, limit itself or open its output, and ends
    E <number> <code>    the process has ended; signal n is code 128 + n

A process is what becomes of a background command of the shell: `setsid` gives it a session of its own, `setpriv` has
the kernel kill it when the shell dies, `taskset` binds it, `env` gives it exactly its environment. Nothing stands
between it and the shell, so the shell is told its exit code.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# the shell's end of the pipe for answers, out of the way of the descriptors that a task may be given
_ANSWERS = 9


class Answer(NamedTuple):
    """A line of the shell; `value` is the pid or the exit code, 0 for other kinds."""

    kind: str
    number: int
    value: int


@dataclass(frozen=True)
class Tools:
    """The paths of the programs by which the shell starts processes."""

    env: str
    setpriv: str
    setsid: str
    taskset: str


@dataclass(frozen=True)
class Job:
    """A process to start: its number, its program and arguments, its own part of the environment.

    `cpus` is the mask of the CPUs that it is bound to, None if it is not; `memory` the bytes of data that it may use, 0
    for no limit.
    """

    number: int
    argv: Sequence[bytes]
    env: Sequence[bytes]
    cpus: bytes | None = None
    memory: int = 0


def prologue(tools: Tools, base_env: Iterable[bytes]) -> bytes:
    """What the shell is told first: where to answer, how to start programs, the environment that all processes share.

    A shell without job control has its background commands ignore SIGINT and SIGQUIT; `env` undoes that where it can
    (GNU coreutils 8.31).
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
    """Start the processes of a task, with their standard output and error appended to these two files.

    `inherited` maps numbers of descriptors to the paths of pipes that the processes find there. The shell opens them
    once for all.
    """
    text = b'\n'.join(_start(job, cwd, output) for job in jobs) + b'\n'
    if not inherited:
        return text
    opened = b' '.join(b'%d>%s' % (fd, _quote(path)) for fd, path in inherited.items())
    failed = b'; '.join(_answer(b'N', job.number) for job in jobs)
    return b'{\n%s} %s || { %s; }\n' % (text, opened, failed)


def wait_text(number: int, pid: int) -> bytes:
    """Answer with the exit code of a process that has ended; some shells would also have a message about a signal."""
    return b'wait %d 2>/dev/null; echo E %d $? >&%d\n' % (pid, number, _ANSWERS)


def parse(line: bytes) -> Answer:
    """The answer in a line; ValueError if it is none."""
    kind, number, *value = line.decode('ascii').split(' ')
    if kind not in ('S', 'N', 'F', 'E') or len(value) != (kind in ('S', 'E')):
        raise ValueError(f'the shell has said {line!r}')
    return Answer(kind, int(number), int(value[0]) if value else 0)


def _start(job: Job, cwd: bytes, output: tuple[bytes, bytes]) -> bytes:
    argv = list(job.argv)
    if b'=' in argv[0]:
        # which env would take for a variable
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
    """The text quoted for a shell so that every byte stands for itself."""
    return b"'" + text.replace(b"'", b"'\\''") + b"'"
