"""A pseudo-terminal for tests of what is shown to people."""

from __future__ import annotations

import os
import pty
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Terminal:
    """A terminal in the place of standard error; what is written is read by a thread, as a person would."""

    def __init__(self) -> None:
        self._far, near = pty.openpty()
        self._chunks: list[bytes] = []
        self.stream = open(near, 'w', encoding='utf-8')   # noqa: SIM115
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def text(self) -> str:
        """All that was written, without what moves the cursor; the terminal is closed then."""
        self.close()
        return re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', self.raw())

    def raw(self) -> str:
        """All that was written, after the terminal was closed."""
        return b''.join(self._chunks).decode()

    def close(self) -> None:
        if not self.stream.closed:
            self.stream.close()
            self._thread.join(30)
            assert not self._thread.is_alive()
            os.close(self._far)

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._far, 65536)
            except OSError:   # nobody has the other end any more
                return
            self._chunks.append(chunk)


def lines_on_screen(raw: str) -> list[str]:
    """What a terminal shows after it has got this, which erases lines, but does not move between them."""
    return [re.split(r'\r\x1b\[K', line)[-1].rstrip('\r') for line in raw.split('\n') if line.strip('\r')]


@contextmanager
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal that is closed in the end, in an environment in which programs use it as one."""
    made = Terminal()
    monkeypatch.setenv('TERM', 'xterm')
    monkeypatch.setenv('COLUMNS', '100')
    for name in ('NO_COLOR', 'TTY_COMPATIBLE', 'TTY_INTERACTIVE'):
        monkeypatch.delenv(name, raising=False)
    try:
        yield made
    finally:
        made.close()


def assert_ended(threads: set[threading.Thread]) -> None:
    """Fail if one of these threads does not end by itself."""
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
