"""The executor SHELL: one persistent /bin/sh starts all tasks and reports their exit codes.

It is the executor POPEN with another launch loop. The shell, the parent of the tasks' processes, reads commands and
answers them at once, so the loop waits for each answer. It never waits for a running process: the loop watches the
processes, and asks for the exit code of one that has ended. The shell counts its code 128 + n as the end by signal n,
because it means that for nearly all programs.

The shell dies with this process, and the processes that it has started die with the shell.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence

from rp_agent.executor.launching.environment import PilotContext
from rp_agent.executor.launching.outcome import code_of, end_of_output, exit_code_of_task, fail
from rp_agent.executor.popen.component import Executor
from rp_agent.executor.popen.reaper import signal_group, signal_started
from rp_agent.executor.processes.launch import Block
from rp_agent.executor.processes.launchloop import LaunchLoop, Process
from rp_agent.executor.run import Run
from rp_agent.task import AgentTask
from rp_api.errors import PlatformError
from rp_api.failures.kinds import LOST
from rp_api.system import processes

SHELL = '/bin/sh'
"""The shell runs only commands of this file; the scripts of tasks have a shell of their own."""

SHELL_NAME = 'RP_SPAWNER_ID'
"""Name of a variable of a shell, and of its processes until they have their own environments."""

SHELL_TIMEOUT = 10.0
"""Seconds after which a shell that does not answer is killed."""

MAX_SENT_BYTES = 4096
"""Bytes of commands that are sent as they are; the shell gets more as a file, as bash reads its input byte by byte."""

_ANSWERS = 9
"""Descriptor of the shell for answers; higher than those that a task may get."""


class ShellLoop(LaunchLoop):
    """Starts processes by a shell, and watches them; `died(name)` is called with the name of a shell that has died.

    Its programs are looked up in `search_path`; all processes get the variables `shared`. The shell appends its error
    messages to the file `messages`; `marks` are variables that identify its processes. If it dies, or does not answer
    in time, its processes end with a failure; the next process gets a new shell.
    """

    def __init__(self, uid: str, search_path: str, shared: Sequence[bytes], messages: str, marks: Mapping[str, str],
                 died: Callable[[str], object]) -> None:
        self._prologue = prologue(search_path, shared)
        super().__init__()
        self._uid = uid
        self._shared = frozenset(shared)
        self._messages = messages
        self._marks = marks
        self._died = died
        self._shells = 0
        self._socket: socket.socket | None = None
        self.shell: Process | None = None

    def start(self, run: object, rank: int, argv: list[bytes], env: Block | list[bytes], cwd: bytes,
              stdio: tuple[int, int, int], pass_fds: tuple[int, ...] = (), path: bytes | None = None,
              cpus: bytes | None = None, memory: int = 0) -> Process:
        shell = self.shell or self._start_shell()
        own = [entry for entry in env if entry not in self._shared]
        (pid,) = self._ask([start_text(argv, own, cwd, (*stdio[1:], *pass_fds), cpus, memory)])
        if pid == 0:
            raise OSError(errno.EIO, f'the shell could not prepare the task (sandbox, output files), '
                                     f'{end_of_output(self._messages)}')
        pidfd = -1
        try:
            process = processes.read_process(pid)
            started = process is not None and process.parent == shell.pid   # or its pid is in use again
            found = processes.open_process(pid, process.started) if process is not None and started else None
            pidfd = os.eventfd(1) if found is None else found   # readable, as that of an ended process
            return self.follow(run, rank, pid, pidfd)
        except OSError:
            signal_started(pid, signal.SIGKILL)
            if pidfd >= 0:
                os.close(pidfd)
            raise

    def ended(self) -> list[Process]:
        """Return ended processes, with the exit codes that the shell knows."""
        ended, shell = super().ended(), self.shell
        if shell is None or not ended:
            return ended
        if shell not in ended:
            try:
                codes = self._ask([wait_text(process.pid) for process in ended])
            except OSError:
                while shell not in ended:   # it has been killed
                    select.select([self.fd], [], [])
                    ended += super().ended()
            else:
                for process, code in zip(ended, codes, strict=True):
                    process.code = code_of(code, shell=True)
                    process.leftovers = signal_group(process.pid, 0)
                return ended
        return self._lost(shell, ended)

    def close(self) -> None:
        if self.shell is not None:
            self.kill(self.shell)
            self._drop_shell()
        super().close()

    def _start_shell(self) -> Process:
        self._shells += 1
        variables = {'PATH': os.defpath, 'LC_ALL': 'C', **self._marks, SHELL_NAME: self._name()}
        try:
            self._socket, other = socket.socketpair()
            with other, open(self._messages, 'ab') as messages:
                stdio = other.fileno(), messages.fileno(), messages.fileno()
                self.shell = super().start(self._name(), 0, [os.fsencode(SHELL), b'-s'],
                                           [os.fsencode(f'{name}={value}') for name, value in variables.items()], b'/',
                                           stdio, (other.fileno(),))
        except OSError as error:
            self._drop_shell()
            raise OSError(error.errno, f'cannot start the shell that runs the task: {error.strerror}') from error
        self._socket.settimeout(SHELL_TIMEOUT)
        self._ask([self._prologue])
        return self.shell

    def _name(self) -> str:
        return f'{self._uid}.{self._shells:04d}'

    def _ask(self, commands: list[bytes]) -> list[int]:
        """Return the answers of the shell to these commands; kill it and raise OSError if it does not answer."""
        assert self._socket is not None
        assert self.shell is not None
        text, answers, large = b''.join(commands), b'', None
        try:
            if len(text) > MAX_SENT_BYTES:
                large = os.memfd_create('commands')
                os.write(large, text)
                text = b'. /proc/%d/fd/%d\n' % (os.getpid(), large)
            self._socket.sendall(text)
            while answers.count(b'\n') < len(commands):
                received = self._socket.recv(65536)
                if not received:
                    raise EOFError('it has ended')
                answers += received
        except (OSError, EOFError) as error:   # `ended` returns the shell; the next start creates another one
            signal.pidfd_send_signal(self.shell.pidfd, signal.SIGKILL)
            raise BlockingIOError(errno.EAGAIN, f'the shell that starts tasks does not answer: {error}') from error
        finally:
            if large is not None:
                os.close(large)
        return [int(line) for line in answers.split()]

    def _lost(self, shell: Process, ended: list[Process]) -> list[Process]:
        """Return all processes of a shell that has died, because only the shell can tell their exit codes."""
        self._died(self._name())
        self._drop_shell()
        how = f'signal {-shell.code}' if shell.code < 0 else f'exit code {shell.code}'
        failure = OSError(f'the shell that ran the task (process {shell.pid}) has ended with {how}')
        lost = [process for process in (*ended, *self.watched.values())
                if process.run is not None and process is not shell]
        for process in lost:
            signal_group(process.pid, signal.SIGKILL)
            self.forget(process)
            process.code, process.failure = -signal.SIGKILL, failure
        return lost

    def _drop_shell(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = self.shell = None


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


class ShellExecutor(Executor):
    """Runs tasks as processes of this node, started by a shell; `grace` is the time between SIGTERM and SIGKILL.

    Raise PlatformError if the machine lacks programs that the shell needs.
    """

    by_shell = True
    uses_dvms = False

    def expect(self, expected: Callable[[int], Sequence[AgentTask]]) -> None:
        """Ignore the forecast: the shell prepares no processes."""

    def _make_loop(self, context: PilotContext) -> ShellLoop:
        shared = list(self._environment.with_gpus.block({}))   # `env` can add variables, and remove none
        messages = os.path.join(context.own_sandbox, f'{self.uid}.sh.err')
        # processes that a dead shell has just started may not have the environment of their task
        return ShellLoop(self.uid, context.base_env.get('PATH', os.defpath), shared, messages, context.belongs,
                         lambda name: self._reaper.sweep([name], SHELL_NAME))

    def _start_plain(self, task: AgentTask) -> bool:
        return False

    def _not_executed(self, run: Run, rank: int, error: OSError) -> None:
        """Hand on a task whose shell has died."""
        task = run.task
        self._record(task.uid, 'task_run_stop')
        task.exit_code = exit_code_of_task(run.codes)
        fail(task, str(error), {'kind': LOST}, exception=str(error))
        self._to_sweep.add(task.uid)
        self._hand_on(task)
