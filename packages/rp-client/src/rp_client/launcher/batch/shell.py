"""Runs scripts on the host of a platform's batch system: locally, or over ssh.

One login shell stays open and reads scripts from its standard input, so that they need no quoting, whatever shell the
user has (csh, zsh, fish). A mark separates the output of a script from that of the login. There is no terminal: a host
that asks for a password is an error.
"""

from __future__ import annotations

import base64
import os
import select
import shlex
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from rp_api.errors import PlatformError
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system.host import with_home
from rp_api.system.ssh import OPTIONS

TIMEOUT = 60.0
"""Seconds in which a script must end."""

_LOGIN = 'exec /bin/sh -c "test -x /bin/bash && exec /bin/bash -l; exec /bin/sh -l"'
_REAP_TIMEOUT = 2.0
"""Seconds to wait for the end of a shell after its input is closed."""


class ShellTimeoutError(PlatformError):
    """A script did not end in time; it may have done its work."""


class ShellResult(NamedTuple):
    """The exit code of a script, and its output with error messages."""

    code: int
    output: str


class Target(NamedTuple):
    """The host of a URL, and the program that connects to it; no program for this host."""

    program: str
    user: str
    host: str
    port: str

    @property
    def name(self) -> str:
        """User and host in the form of ssh."""
        return f'{self.user}@{self.host}' if self.user else self.host

    @property
    def words(self) -> list[str]:
        """The program's arguments that name the host."""
        return [*(['-p', self.port] if self.port else []), self.name]


class _Lost(Exception):
    """The shell has ended or could not be started: its output, exit code, and whether the script had begun."""

    def __init__(self, said: str, code: int, *, begun: bool) -> None:
        super().__init__(said)
        self.said = said
        self.code = code
        self.begun = begun


class Shell:
    """Runs scripts on the host of a URL such as `slurm+ssh://user@host:port/`, one at a time; close it when done."""

    def __init__(self, url: str) -> None:
        self._target = target(url)
        self.host = self._target.host
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def remote(self) -> bool:
        """True if scripts run over ssh."""
        return bool(self._target.program)

    def run(self, script: str, timeout: float = TIMEOUT) -> ShellResult:
        """Run a POSIX shell script; raise `PlatformError` if it cannot run, or takes longer than `timeout` seconds."""
        deadline = time.monotonic() + timeout
        fresh = self._process is None
        try:
            try:
                return self._run(script, deadline)
            except _Lost as error:
                if fresh or error.begun:
                    raise
                return self._run(script, deadline)   # the connection was lost after the last script
        except _Lost as error:
            raise PlatformError(self._explained(error)) from None
        except TimeoutError:
            self._kill()
            raise ShellTimeoutError(f'{self._where} did not answer within {timeout:g} s') from None

    def put(self, path: str, content: bytes, mode: int = 0o600) -> str:
        """Return a script that writes a file in an existing directory, and exits on failure."""
        quoted, text = shlex.quote(path), base64.encodebytes(content).decode()
        return (f"rm -f {quoted} && (umask 077 && base64 -d > {quoted}) <<'E_O_F' && chmod {mode:o} {quoted} "
                f'|| exit 1\n{text}E_O_F\n')

    def command(self, script: str, *options: str) -> list[str]:
        """Return a command that runs a short script in a shell of its own, with its own standard input.

        On another host, `options` are for the program that connects to it.
        """
        command = ['/bin/sh', '-c', script]
        return [*self._connection(*options), f'exec {shlex.join(command)}'] if self.remote else command

    def close(self) -> None:
        """End the shell."""
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            handle = ProcessHandle.open(process.pid)
            if handle is not None:   # not reaped yet, as `_end` needs the id of its process group
                handle.wait(_REAP_TIMEOUT)
                handle.close()
        self._kill()

    @property
    def _where(self) -> str:
        return f'{self._target.program} {self._target.name}' if self.remote else 'the shell of this host'

    def _run(self, script: str, deadline: float) -> ShellResult:
        mark = os.urandom(8).hex()
        text = f"echo {mark}\n(:\n{script}\n) </dev/null 2>&1\nprintf '\\n%s %d\\n' {mark} $?\n"
        process = self._started()
        talk = _Talk(process, text.encode(), f'{mark}\n'.encode(), f'\n{mark} '.encode())
        if not talk.finish(deadline):
            self._process = None
            _end(process)
            raise _Lost(' '.join(talk.said.split())[-500:], process.returncode, begun=talk.begun)
        return ShellResult(talk.code, talk.output)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            command = [*self._connection(), _LOGIN] if self.remote else ['/bin/sh']
            try:
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                 stderr=subprocess.PIPE, start_new_session=True,
                                                 env=with_home(os.environ))
            except OSError as error:
                raise PlatformError(f'{command[0]} cannot be started: {error}') from None
        return self._process

    def _connection(self, *options: str) -> list[str]:
        """Return the command that runs another command on the host."""
        program = self._target.program
        if not shutil.which(program):
            raise PlatformError(f'{program} is needed to reach {self.host}, and it is not installed here')
        return [program, *OPTIONS, *options, *self._target.words]

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    def _explained(self, error: _Lost) -> str:
        said = error.said or f'none, exit code {error.code}'
        if error.begun:
            return f'{self._where} was lost while a script ran; its output: {said}'
        if self.remote and error.code == 255:   # ssh itself
            return f'{self._where} failed: {said}'
        what = f'the login shell of {self._where}' if self.remote else self._where
        return f'{what} did not run a script; its output: {said}'


class _Talk:
    """The exchange of one script with a shell, whose output is between two marks."""

    def __init__(self, process: subprocess.Popen[bytes], text: bytes, first: bytes, last: bytes) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._fds = process.stdin.fileno(), process.stdout.fileno(), process.stderr.fileno()
        for fd in self._fds:
            os.set_blocking(fd, False)
        self._text = text
        self._first, self._last = first, last
        self._out = b''
        self._err = b''

    @property
    def begun(self) -> bool:
        """True if the script has begun."""
        return self._first in self._out

    @property
    def said(self) -> str:
        """The output so far, without marks."""
        return (self._err or self._out.replace(self._first, b'')).decode(errors='replace')

    @property
    def code(self) -> int:
        """The exit code of the script after its end."""
        return int(self._out.rpartition(self._last)[2])

    @property
    def output(self) -> str:
        """The output of the script after its end."""
        return self._out.partition(self._first)[2].rpartition(self._last)[0].decode(errors='replace')

    def finish(self, deadline: float) -> bool:
        """Wait for the end of the script; return False if the shell ended, raise `TimeoutError` at the deadline."""
        into, out, err = self._fds
        poll = select.poll()
        poll.register(into, select.POLLOUT)
        poll.register(out, select.POLLIN)
        poll.register(err, select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            for fd, _ in poll.poll(left * 1000 + 1):
                if fd == into:
                    if not self._write(into):
                        poll.unregister(into)
                elif not self._read(fd, out):
                    poll.unregister(fd)
                    if fd == out:
                        self._read(err, out)   # its last error messages
                        return False
            if self._ended:
                return True

    @property
    def _ended(self) -> bool:
        _, found, code = self._out.rpartition(self._last)
        return bool(found) and code.endswith(b'\n')

    def _write(self, fd: int) -> bool:
        """Write as much as the shell accepts; return False if all is written, or the shell has ended."""
        try:
            self._text = self._text[os.write(fd, self._text):]
        except BlockingIOError:
            return True
        except BrokenPipeError:   # the shell has ended, which `_read` finds
            return False
        return bool(self._text)

    def _read(self, fd: int, out: int) -> bool:
        """Read available output; return False at its end."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return True
        if fd == out:
            self._out += data
        else:
            self._err += data
        return bool(data)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a shell and its process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()
    process.wait()


def target(url: str) -> Target:
    """Return the host of a URL, in its original case, as aliases in the configuration of ssh are case-sensitive."""
    parts = urlsplit(url)
    host = parts.hostname or 'localhost'
    place = parts.netloc.rpartition('@')[2]
    start = max(0, place.lower().find(host))
    return Target(_transport(parts.scheme), parts.username or '', place[start:start + len(host)] or host,
                  str(parts.port or ''))


def _transport(scheme: str) -> str:
    """Return the program that connects to the host of a URL; empty for this host."""
    plain, _, over = scheme.lower().partition('+')
    if over in ('ssh', 'gsissh'):
        return over
    if plain in ('ssh', 'sftp', 'scp'):
        return 'ssh'
    return 'gsissh' if plain in ('gsissh', 'gsisftp', 'gsiscp') else ''


def is_remote(url: str) -> bool:
    """Return whether a job URL names another host, whose files are not accessible here."""
    return bool(_transport(urlsplit(url).scheme))
