"""The MongoDB servers that tests use: two from PyPI that speak its protocol, and a real one where there is one.

Each is a process with a data directory of its own at a free port of 127.0.0.1. They are test-only dependencies. In CI a
missing one is a failure, elsewhere tests that need it are skipped.

What one server cannot do, and what the tests leave out because of that, is said here and nowhere else:

- nx-27017 answers at once when a change stream has nothing new, so connections poll instead; it allows only letters,
  digits and underscores in names of collections, so they are spelled differently there. It does not start while its
  file with a process id names a process, so that file is removed.
- secantusdb keeps its journal in memory for a while, whatever a client asks for, so it is started with the option that
  changes that. It needs a second for a thousand documents that are looked up by `_id`: `Server.slow` makes tests use
  fewer.
- An external server (RP_TEST_MONGODB_URL) is neither killed nor stopped: `Server.ours` is False.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ports import free_ports

EXTERNAL = 'RP_TEST_MONGODB_URL'
TIMEOUT = 30.0

COMMANDS: dict[str, Callable[[Path, int], list[str]]] = {
    'nx-27017': lambda data, port: ['nx-27017', '--data-dir', f'{data}', '--host', '127.0.0.1', '-p', f'{port}',
                                    '--log-file', f'{data}.log', '--pid-file', f'{data}.pid'],
    'secantusdb': lambda data, port: ['secantusd-py', '--host', '127.0.0.1', '--port', f'{port}',
                                      '--storage-path', f'{data}', '--sync-on-commit'],
    'mongod': lambda data, port: ['mongod', '--bind_ip', '127.0.0.1', '--port', f'{port}', '--dbpath', f'{data}']}


def program(name: str) -> str | None:
    """The path of a program that is installed with this Python, or on PATH."""
    return shutil.which(name, path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get('PATH', '')]))


KINDS = ['nx-27017', 'secantusdb', *(['mongod'] if program('mongod') else []),
         *(['external'] if os.environ.get(EXTERNAL) else [])]
"""The servers that tests are to be run with."""


class Server:
    """A server that can be killed and started again on the same data."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.slow = kind == 'secantusdb'
        self.ours = kind != 'external'
        self._data = directory / 'data'
        self._process: subprocess.Popen[bytes] | None = None
        if self.ours:
            (self._port,) = free_ports(1)
            self._command = COMMANDS[kind](self._data, self._port)
            self.url = f'mongodb://127.0.0.1:{self._port}/rp_tests'
        else:
            self.url = os.environ[EXTERNAL]

    @property
    def pid(self) -> int:
        """The process id of a server that runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server, and wait until it takes connections; fails or skips the test if it is not installed."""
        if not self.ours:
            return
        path = program(self._command[0])
        if path is None:
            (pytest.fail if 'CI' in os.environ else pytest.skip)(f'{self.kind} is not installed')
        self._data.mkdir(exist_ok=True)
        Path(f'{self._data}.pid').unlink(missing_ok=True)
        with open(f'{self._data}.out', 'ab') as out:
            self._process = subprocess.Popen([path, *self._command[1:]], stdout=out, stderr=out,
                                             cwd=self._data.parent, start_new_session=True)
        deadline = time.monotonic() + TIMEOUT
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                pytest.fail(f'{self.kind} did not start: {Path(f"{self._data}.out").read_text()[-2000:]}')
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            socket.create_connection(('127.0.0.1', self._port), 1.0).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """End the server without warning."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop the server: it keeps its connections and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)


@contextmanager
def running(kind: str, directory: Path) -> Iterator[Server]:
    """A server of that kind, whose data are in a directory; it is gone at the end."""
    server = Server(kind, directory)
    server.start()
    try:
        yield server
    finally:
        server.kill()
