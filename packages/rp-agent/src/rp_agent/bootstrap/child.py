"""The agent as a child process of stage 1: captures its output, forwards signals, ends it together with stage 1.

Errors of the bootstrap go to a file in the sandbox, which the client's launcher reads after the job has ended.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from rp_agent.lineage import die_with_parent
from rp_api.system import private, signals

FILE = 'bootstrap_0.failed'

TAIL = 2048
"""Bytes of output in the report."""


class BootstrapError(Exception):
    """The bootstrap cannot continue. Holds an exit code, a sentence, and a log file (or '') with its last lines."""

    def __init__(self, code: int, sentence: str, file: str = '', tail: str = '') -> None:
        super().__init__(sentence)
        self.code = code
        self.file = file
        self.tail = tail


def report(stage: int, error: BootstrapError) -> None:
    """Write the error to standard error and to the report file; ignore a full disk."""
    print(f'stage {stage}: {error}', file=sys.stderr)
    content = json.dumps({'stage': stage, 'exit_code': error.code, 'sentence': str(error), 'file': error.file,
                          'tail': error.tail})
    with suppress(OSError):
        private.write_file(FILE, f'{content}\n'.encode())


FAILED = 30
"""Exit code of the bootstrap after an agent has failed."""

_ENDING = (signal.SIGTERM, signal.SIGINT)
"""Signals that are forwarded as SIGTERM, at which the agent ends its tasks and itself."""


class Output:
    """A file for the output of a process, created at the first write. Keeps the last bytes as `tail`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.tail = b''
        self._fd: int | None = None

    def write(self, data: bytes) -> None:
        """Append to the file. A full disk loses output but does not end the pilot."""
        self.tail = (self.tail + data)[-TAIL:]
        try:
            if self._fd is None:
                self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.write(self._fd, data)
        except OSError:
            return

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class BootstrapProcess:
    """Runs one agent. Signals that this process receives meanwhile are forwarded to it."""

    def __init__(self) -> None:
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._signalled: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._outputs: dict[int, Output] = {}
        self._name = ''

    def __enter__(self) -> BootstrapProcess:
        signal.set_wakeup_fd(self._woken)
        for number in (*_ENDING, *signals.WARNINGS):
            signal.signal(number, lambda number, _: self._signalled.append(number))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        signal.set_wakeup_fd(-1)
        for fd in (self._wake, self._woken):
            os.close(fd)

    def start(self, command: Sequence[str], name: str) -> None:
        """Start the agent with its output in the files `<name>.out` and `<name>.err`."""
        self._name = name
        parent = os.getpid()

        def begin() -> None:   # in the process of the agent, which executes a shell first
            die_with_parent(parent)
            signals.ignore_warnings()

        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, preexec_fn=begin)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._outputs = {self._process.stdout.fileno(): Output(f'{name}.out'),
                         self._process.stderr.fileno(): Output(f'{name}.err')}

    def wait(self) -> int:
        """Wait for the agent; return 0, or raise `BootstrapError` with the end of its output if it has failed."""
        process = self._process
        assert process is not None
        pidfd = os.pidfd_open(process.pid)
        with selectors.DefaultSelector() as selector:
            for fd in (pidfd, self._wake, *self._outputs):
                selector.register(fd, selectors.EVENT_READ)
            while pidfd in selector.get_map():
                for key, _ in selector.select():
                    self._ready(key.fd, pidfd, selector)
        os.close(pidfd)
        code = process.wait()
        self._drain()
        if code:
            self._fail(code)
        return 0

    def _ready(self, fd: int, pidfd: int, selector: selectors.BaseSelector) -> None:
        if fd == self._wake:
            os.read(fd, 64)
            while self._signalled:
                number = self._signalled.pop()
                assert self._process is not None
                self._process.send_signal(signal.SIGTERM if number in _ENDING else number)
        elif fd == pidfd or not self._copy(fd):
            selector.unregister(fd)

    def _copy(self, fd: int) -> bool:
        """Copy available output to its file; return False at the end of the stream."""
        data = os.read(fd, 1 << 16)
        self._outputs[fd].write(data) if data else None
        return bool(data)

    def _drain(self) -> None:
        """Copy the remaining output, without waiting for the end of the stream: other processes may hold the pipes."""
        for fd, output in self._outputs.items():
            os.set_blocking(fd, False)
            try:
                while self._copy(fd):
                    pass
            except BlockingIOError:
                pass
            output.close()
        assert self._process is not None
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _fail(self, code: int) -> None:
        stdout, stderr = self._outputs.values()
        output = stderr if stderr.tail else stdout
        words = output.tail.decode(errors='replace').strip()
        last = f': {words.splitlines()[-1].removeprefix("rp-agent: ")}' if words else ''
        raise BootstrapError(FAILED, f'{self._name} {_how(code)}{last}',
                             os.path.abspath(output.path) if words else os.path.abspath(f'{self._name}.log'), words)


def _how(code: int) -> str:
    if code > 0:
        return f'ended with exit code {code}'
    names = {number.value: f' ({number.name})' for number in signal.Signals}   # real-time signals have none
    return f'was killed by signal {-code}{names.get(-code, "")}'
