"""The process of the application, as the driver of the matrix sees it."""

from __future__ import annotations

import os
import select
import subprocess
import time
from pathlib import Path


class LossError(Exception):
    """Something that must not happen in any run: what, and whatever tells why."""


class HangError(LossError):
    """Something that should have happened by then."""


class Application:
    """A running application, which says on standard output how far it has come."""

    def __init__(self, command: list[str], environ: dict[str, str], errors: Path) -> None:
        self._errors = errors
        self._said = b''
        self.silent = False
        """Whether it has said everything."""
        with open(errors, 'ab') as file:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
                                             env=environ, cwd=errors.parent, start_new_session=True)
        self.pid = self._process.pid

    def expect(self, word: str, deadline: float) -> None:
        """Return when the application has said this word."""
        while not self.has_said(word):
            if not self.listens(deadline):
                raise HangError(f'hang: the application did not say {word!r} in time; its errors: {self.last_words()}')
            if self.silent and not self.has_said(word):
                raise LossError(f'the application ended with exit code {self._process.wait()} before it said {word!r}; '
                                f'its errors: {self.last_words()}')

    def has_said(self, word: str) -> bool:
        """Whether this word has been heard."""
        return word.encode() in self._said.split()

    def listens(self, deadline: float) -> bool:
        """Hear what it says next, or that it will say nothing more; false if neither comes in time."""
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        if self.silent or not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return self.silent
        data = os.read(self._process.stdout.fileno(), 65536)
        self._said += data
        self.silent = not data
        return True

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
            raise HangError('hang: the application does not end') from None
        if code:
            raise LossError(f'the application ended with exit code {code}; its errors: {self.last_words()}')

    def kill(self) -> None:
        """End it with SIGKILL, hear its last words, and forget it."""
        self._process.kill()
        self._process.wait()
        while not self.silent and self.listens(0):
            pass
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def last_words(self) -> str:
        """The end of what it, or the one before it, has written to its standard error."""
        return self._errors.read_text(errors='replace')[-2000:] or 'none'
