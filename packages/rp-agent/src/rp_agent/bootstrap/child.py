"""An agent as the child of stage 1: its output is kept, signals are passed on, and it does not outlive us."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Sequence
from types import TracebackType

from rp_agent.bootstrap.failure import TAIL, BootstrapError
from rp_agent.lineage import die_with_parent

FAILED = 30
"""The exit code of the bootstrap for an agent that has failed."""

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Output:
    """A file for what a process writes; made when it writes something."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.tail = b''
        self._fd: int | None = None

    def write(self, data: bytes) -> None:
        """Add to the file; a disk that is full costs what is added, not the pilot."""
        self.tail = (self.tail + data)[-TAIL:]
        try:
            if self._fd is None:
                self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.write(self._fd, data)
        except OSError:
            return

    def close(self) -> None:
        """Have no more to write."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Child:
    """Runs one agent; signals that come to this process meanwhile go to it."""

    def __init__(self) -> None:
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._signalled: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._outputs: dict[int, Output] = {}
        self._name = ''

    def __enter__(self) -> Child:
        signal.set_wakeup_fd(self._woken)
        for number in _PASSED_ON:
            signal.signal(number, self._note)
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
        """Start it; its output goes to the files `<name>.out` and `<name>.err`."""
        self._name = name
        parent = os.getpid()
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, preexec_fn=lambda: die_with_parent(parent))
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._outputs = {self._process.stdout.fileno(): Output(f'{name}.out'),
                         self._process.stderr.fileno(): Output(f'{name}.err')}

    def wait(self) -> int:
        """0 when it has ended in order; BootstrapError, with its last words, if it has not."""
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
            self._pass_on()
        elif fd == pidfd or not self._copy(fd):
            selector.unregister(fd)

    def _copy(self, fd: int) -> bool:
        """Take over what was written; False at the end."""
        data = os.read(fd, 1 << 16)
        self._outputs[fd].write(data) if data else None
        return bool(data)

    def _drain(self) -> None:
        """Take over the last words. Others may still have the pipes, so the end of them is not waited for."""
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

    def _note(self, number: int, _: object) -> None:
        self._signalled.append(number)

    def _pass_on(self) -> None:
        """Tell the agent what we were told: it ends its tasks, and then itself."""
        while self._signalled:
            self._signalled.pop()
            assert self._process is not None
            self._process.send_signal(signal.SIGTERM)

    def _fail(self, code: int) -> None:
        stdout, stderr = self._outputs.values()
        output = stderr if stderr.tail else stdout
        words = output.tail.decode(errors='replace').strip()
        raise BootstrapError(FAILED, f'{self._name} {_how(code)}{_last(words)}',
                             os.path.abspath(output.path) if words else os.path.abspath(f'{self._name}.log'), words)


def _how(code: int) -> str:
    if code > 0:
        return f'ended with exit code {code}'
    names = {number.value: f' ({number.name})' for number in signal.Signals}   # real-time signals have none
    return f'was killed by signal {-code}{names.get(-code, "")}'


def _last(words: str) -> str:
    """The last line that it wrote, as part of a sentence."""
    return f': {words.splitlines()[-1].removeprefix("rp-agent: ")}' if words else ''
