"""Runs scripts where a platform's batch system is: here, or over ssh.

One login shell is kept, and gets the scripts through its standard input, so that nothing of them is quoted on the way,
whatever the user's own shell is (csh, zsh, fish). What the login prints comes before the mark that begins the output,
and is not taken for it. There is no terminal: nobody is asked for a password, a host that wants one is an error.
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

TIMEOUT = 60.0
"""Seconds that a script may take."""

_LOGIN = 'exec /bin/sh -c "test -x /bin/bash && exec /bin/bash -l; exec /bin/sh -l"'
_OPTIONS = ('-oBatchMode=yes', '-oConnectTimeout=15', '-oStrictHostKeyChecking=accept-new', '-oLogLevel=ERROR',
            '-oServerAliveInterval=15', '-oServerAliveCountMax=4')
_BURIAL = 2.0
"""Seconds that a shell may take to end when it has nothing more to read."""


class ShellTimeoutError(PlatformError):
    """A script did not end in time; it may have done its work."""


class Result(NamedTuple):
    """How a script went: the exit code and what it printed, its errors among it."""

    code: int
    output: str


class Target(NamedTuple):
    """The host of a URL, and the program that brings scripts there; no program if that is this host."""

    program: str
    user: str
    host: str
    port: str

    @property
    def name(self) -> str:
        """User and host, as ssh takes them."""
        return f'{self.user}@{self.host}' if self.user else self.host

    @property
    def words(self) -> list[str]:
        """The arguments of the program that name the host."""
        return [*(['-p', self.port] if self.port else []), self.name]


class _Lost(Exception):
    """The shell has ended, or never was one; what it said, and whether it had begun with the script."""

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
        """Whether the scripts run on another host, or on this one as if it were another."""
        return bool(self._target.program)

    def run(self, script: str, timeout: float = TIMEOUT) -> Result:
        """Run a script of the POSIX shell; `PlatformError` if it cannot be run, or takes longer than `timeout`."""
        deadline = time.monotonic() + timeout
        fresh = self._process is None
        try:
            try:
                return self._run(script, deadline)
            except _Lost as error:
                if fresh or error.begun:
                    raise
                return self._run(script, deadline)   # the connection was lost since the last script
        except _Lost as error:
            raise PlatformError(self._explained(error)) from None
        except TimeoutError:
            self._kill()
            raise ShellTimeoutError(f'{self._where} did not answer within {timeout:g} s') from None

    def put(self, path: str, content: bytes, mode: int = 0o600) -> str:
        """A script that writes a file, and exits if it cannot; the directory has to be there."""
        quoted, text = shlex.quote(path), base64.encodebytes(content).decode()
        return (f"rm -f {quoted} && (umask 077 && base64 -d > {quoted}) <<'E_O_F' && chmod {mode:o} {quoted} "
                f'|| exit 1\n{text}E_O_F\n')

    def command(self, script: str) -> list[str]:
        """The command that runs a short script apart from the others, with its own standard input."""
        command = ['/bin/sh', '-c', script]
        return [*self._connection(), f'exec {shlex.join(command)}'] if self.remote else command

    def close(self) -> None:
        """End the shell."""
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            handle = ProcessHandle.open(process.pid)
            if handle is not None:   # it is not reaped yet: its number has to be that of its group
                handle.wait(_BURIAL)
                handle.close()
        self._kill()

    @property
    def _where(self) -> str:
        return f'{self._target.program} {self._target.name}' if self.remote else 'the shell of this host'

    def _run(self, script: str, deadline: float) -> Result:
        mark = os.urandom(8).hex()
        text = f"echo {mark}\n(:\n{script}\n) </dev/null 2>&1\nprintf '\\n%s %d\\n' {mark} $?\n"
        process = self._started()
        talk = _Talk(process, text.encode(), f'{mark}\n'.encode(), f'\n{mark} '.encode())
        if not talk.finish(deadline):
            self._process = None
            _end(process)
            raise _Lost(' '.join(talk.said.split())[-500:], process.returncode, begun=talk.begun)
        return Result(talk.code, talk.output)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            command = [*self._connection(), _LOGIN] if self.remote else ['/bin/sh']
            try:
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                 stderr=subprocess.PIPE, start_new_session=True)
            except OSError as error:
                raise PlatformError(f'{command[0]} cannot be started: {error}') from None
        return self._process

    def _connection(self) -> list[str]:
        """The command that brings another one to the host."""
        program = self._target.program
        if not shutil.which(program):
            raise PlatformError(f'{program} is needed to reach {self.host}, and it is not installed here')
        return [program, *_OPTIONS, *self._target.words]

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    def _explained(self, error: _Lost) -> str:
        said = error.said or f'nothing, and ended with exit code {error.code}'
        if error.begun:
            return f'{self._where} was lost while a script ran; it said: {said}'
        if self.remote and error.code == 255:   # ssh itself
            return f'{self._where} failed: {said}'
        what = f'the login shell of {self._where}' if self.remote else self._where
        return f'{what} did not run a script; it said: {said}'


class _Talk:
    """One script going into a shell, and its output coming out between two marks."""

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
        """Whether the shell has come to the script."""
        return self._first in self._out

    @property
    def said(self) -> str:
        """What has come so far, other than the marks."""
        return (self._err or self._out.replace(self._first, b'')).decode(errors='replace')

    @property
    def code(self) -> int:
        """The exit code of the script, once it has ended."""
        return int(self._out.rpartition(self._last)[2])

    @property
    def output(self) -> str:
        """What the script printed, once it has ended."""
        return self._out.partition(self._first)[2].rpartition(self._last)[0].decode(errors='replace')

    def finish(self, deadline: float) -> bool:
        """Go on until the script has ended; False if the shell ended instead. `TimeoutError` at the deadline."""
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
                        self._read(err, out)   # its last words
                        return False
            if self._ended:
                return True

    @property
    def _ended(self) -> bool:
        _, found, code = self._out.rpartition(self._last)
        return bool(found) and code.endswith(b'\n')

    def _write(self, fd: int) -> bool:
        """Write what the shell takes; False when there is no more, or it has ended."""
        try:
            self._text = self._text[os.write(fd, self._text):]
        except BlockingIOError:
            return True
        except BrokenPipeError:   # which shows where it is read
            return False
        return bool(self._text)

    def _read(self, fd: int, out: int) -> bool:
        """Take in what has come; False at the end."""
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
    """Kill a shell and what it has started, if it has not ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()
    process.wait()


def target(url: str) -> Target:
    """The host of a URL. Its name is left as it is: aliases in the configuration of ssh may have capital letters."""
    parts = urlsplit(url)
    host = parts.hostname or 'localhost'
    place = parts.netloc.rpartition('@')[2]
    start = max(0, place.lower().find(host))
    return Target(_transport(parts.scheme), parts.username or '', place[start:start + len(host)] or host,
                  str(parts.port or ''))


def _transport(scheme: str) -> str:
    """The program that brings a script to its host; empty if that is this one."""
    plain, _, over = scheme.lower().partition('+')
    if over in ('ssh', 'gsissh'):
        return over
    if plain in ('ssh', 'sftp', 'scp'):
        return 'ssh'
    return 'gsissh' if plain in ('gsissh', 'gsisftp', 'gsiscp') else ''


def is_remote(url: str) -> bool:
    """Whether a job URL stands for another host, whose files cannot be seen from here."""
    return bool(_transport(urlsplit(url).scheme))
