"""Shell process: one running /bin/sh that reads commands and writes answers.

The shell dies with the executor's process, and the processes that it has started die with the shell (see
`shell.program`).
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Mapping

from rp_agent.executor.pipe import PipeWriter
from rp_agent.executor.processes.launch import spawn
from rp_agent.executor.shell import program
from rp_api.errors import PlatformError
from rp_api.loop.event_loop import Loop

_CHUNK = 65536

SHELL = '/bin/sh'
"""The shell runs only commands of `shell.program`; the scripts of tasks have a shell of their own."""


class ShellProcess:
    """A running shell; `answered` is called with batches of answers, `died` with a sentence on how the shell ended.

    The shell appends its error messages to the file `messages`; `marks` are variables that identify its processes.
    Raise OSError if it cannot be started. It stays a zombie, so that its pid is not reused, until `close`.
    """

    def __init__(self, loop: Loop, messages: str, marks: Mapping[str, str],
                 answered: Callable[[list[program.Answer]], object], died: Callable[[str], object]) -> None:
        self._loop = loop
        self._answered = answered
        self._died = died
        self._unread = b''
        self._input = PipeWriter(loop, -1)
        self._output = self._pidfd = -1
        self.pid = -1
        self.alive = True
        opened: list[int] = []
        try:
            self._start(messages, marks, opened)
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def send(self, text: bytes) -> None:
        """Send commands to the shell; they are lost if it has died."""
        self._input.write(text)

    def kill(self) -> None:
        """Kill the shell at once; `died` will be called."""
        signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """End the shell, and release all resources."""
        if self._pidfd < 0:
            return
        self.alive = False
        os.killpg(self.pid, signal.SIGKILL)
        os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
        self._input.close()
        for descriptor in (self._output, self._pidfd):
            self._loop.remove_fd(descriptor)
            os.close(descriptor)
        self._pidfd = -1

    def _start(self, messages: str, marks: Mapping[str, str], opened: list[int]) -> None:
        output = os.open(messages, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        opened.append(output)
        variables = {'PATH': os.defpath, 'LC_ALL': 'C', **marks}
        environment = [os.fsencode(f'{name}={value}') for name, value in variables.items()]
        try:
            stdin, writing = os.pipe()
            self._input = PipeWriter(self._loop, writing)
            opened.append(stdin)
            self._output, answers = os.pipe()
            opened.append(answers)
            self.pid, self._pidfd = spawn([os.fsencode(SHELL), b'-s'], environment, b'/', stdin, output, output,
                                            (answers,))
        except OSError:
            self._input.close()
            if self._output >= 0:
                os.close(self._output)
            raise
        os.set_blocking(self._output, False)
        try:
            self._loop.add_fd(self._output, self._read)
            self._loop.add_fd(self._pidfd, self._ended)
        except OSError:
            self.close()
            raise

    def _read(self) -> None:
        """Handle all answers that have arrived."""
        text = [self._unread]
        try:
            while chunk := os.read(self._output, _CHUNK):
                text.append(chunk)
            self._loop.remove_fd(self._output)   # all writers have ended
        except BlockingIOError:
            pass
        *lines, self._unread = b''.join(text).split(b'\n')
        if lines:
            self._answered([program.parse(line) for line in lines])

    def _ended(self) -> None:
        """Report the unexpected end of the shell."""
        ended = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None or not self.alive:
            return
        self.alive = False
        self._loop.remove_fd(self._pidfd)
        self._input.close()
        self._read()
        how = 'exit code' if ended.si_code == os.CLD_EXITED else 'signal'
        self._died(f'the shell that ran the task (process {self.pid}) has ended with {how} {ended.si_status}')


def find_tools(search_path: str) -> program.Tools:
    """Find the programs that the shell needs, in these directories and those of the system."""
    found = {}
    for name in ('env', 'setpriv', 'setsid', 'taskset'):
        path = shutil.which(name, path=f'{search_path}:{os.defpath}')
        if path is None:
            raise PlatformError(f'agent_spawner SHELL needs the program {name}, of GNU coreutils or util-linux 2.33, '
                                f'which is not in {search_path}: install it or use agent_spawner POPEN')
        found[name] = os.path.abspath(path)
    return program.Tools(**found)
