"""The process of the application, as the driver of the matrix sees it."""

from __future__ import annotations

import os
import select
import subprocess
import time
from pathlib import Path


class LossError(Exception):
    """Something that must not happen in any run: what, and whatever tells why."""


class Application:
    """A running application, which says on standard output how far it has come."""

    def __init__(self, command: list[str], environ: dict[str, str], errors: Path) -> None:
        self._errors = errors
        self._said = b''
        with open(errors, 'ab') as file:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
                                             env=environ, start_new_session=True)
        self.pid = self._process.pid

    def expect(self, word: str, deadline: float) -> None:
        """Return when the application has said this word."""
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        while word.encode() not in self._said.split():
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise LossError(f'hang: the application did not say {word!r} in time; its errors: {self._last_words()}')
            data = os.read(self._process.stdout.fileno(), 65536)
            if not data:
                raise LossError(f'the application ended with exit code {self._process.wait()} before it said {word!r}; '
                                f'its errors: {self._last_words()}')
            self._said += data

    def tell(self, order: str) -> None:
        """Give it something to do."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f'{order}\n'.encode())
            self._process.stdin.flush()
        except BrokenPipeError:   # it has ended, and what is expected of it next will tell why
            return

    def wait(self, deadline: float) -> None:
        """Return when it has ended as it should."""
        try:
            code = self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise LossError('hang: the application does not end') from None
        if code:
            raise LossError(f'the application ended with exit code {code}; its errors: {self._last_words()}')

    def kill(self) -> None:
        """End it with SIGKILL, and forget it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _last_words(self) -> str:
        return self._errors.read_text(errors='replace')[-2000:] or 'none'
