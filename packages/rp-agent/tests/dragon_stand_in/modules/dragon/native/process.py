"""As the real one, with which a process has not ended while its output is held by what it has left, nor any other."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from dragon.infrastructure.policy import Policy


class Child(subprocess.Popen[bytes]):
    """A process, and what is read from it: each with the file that it belongs into."""

    outputs: list[tuple[IO[bytes], Any]]


STARTED: dict[int, Child] = {}
table = threading.Lock()


def poll(process: Child) -> int | None:
    """The exit code of a process, when it has ended and all of its output was read."""
    with table:
        if process.poll() is None:
            return None
        for pipe, path in process.outputs:
            with open(path, 'ab') as file:
                file.write(pipe.read())
        process.outputs = []
        return process.returncode


class Process:
    DEVNULL = -3

    def __init__(self, target: str, args: Sequence[str] = (), cwd: str = '.', env: Mapping[str, str] | None = None,
                 stdin: Any = None, stdout: Any = None, stderr: Any = None, policy: Policy | None = None) -> None:
        if shutil.which(target) is None:
            raise AttributeError(f'Cannot find executable {target}')
        if policy is not None and policy.host_name != os.uname().nodename:
            raise RuntimeError(f'no node {policy.host_name}')
        own = {**(env or {}), 'DRAGON_INDEX': '0'}   # which the real one sets, too
        self._command, self._cwd, self._env, self._output = [target, *args], cwd, own, (stdout, stderr)

    def start(self) -> None:
        out, err = (subprocess.DEVNULL if each == self.DEVNULL else subprocess.PIPE for each in self._output)
        with table:
            self._process = Child(self._command, cwd=self._cwd, env=self._env, stdin=subprocess.DEVNULL,
                                  stdout=out, stderr=err)
        pipes = zip((self._process.stdout, self._process.stderr), self._output, strict=True)
        self._process.outputs = [(pipe, path) for pipe, path in pipes if pipe is not None]
        self.puid = self._process.pid
        STARTED[self.puid] = self._process

    def send_signal(self, sig: int) -> None:
        self._process.send_signal(sig)

    def kill(self) -> None:
        self._process.kill()
