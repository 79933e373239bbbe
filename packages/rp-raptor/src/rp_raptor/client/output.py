"""The output of functions in the application: lines in its terminal, with the name of the function, or a file.

A thread writes, as a terminal may be stopped, and results must not wait for it. It lasts while there is output.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from typing import Any, NamedTuple

from rp_api.system.terminal import FILE, FUTURE, TERMINAL, is_place, is_read

_log = logging.getLogger('radical.pilot.raptor')

LINES_PER_S = 20.0
"""Lines of functions that the terminal gets in the long run."""

BURST_LINES = 100
"""Lines that it gets at once."""

MAX_LINE_CHARS = 500
"""Characters of a line in the terminal."""

_MAX_WAITING = 10_000   # outputs, while the terminal is stopped
_IDLE_S = 0.5
_FLUSH_S = 2.0


class Said(NamedTuple):
    """The output of one call, and the file for it; empty for the terminal."""

    name: str
    out: str
    err: str
    path: str


class Output:
    """Passes the output of an executor's calls on to the place that was chosen.

    Args:
        place: `terminal`, `future` or `file`, or the path of a file, to which outputs are appended.

    Raises:
        ValueError: The place is none of these.
    """

    def __init__(self, place: str | os.PathLike[str]) -> None:
        if not is_place(place):
            raise ValueError(f"stdout is {place!r}, it must be 'terminal', 'future', 'file', or a path with a /")
        self.wanted = place != FILE
        """True if results bring output."""
        self._shown = place == TERMINAL
        self._path = '' if place in (TERMINAL, FUTURE, FILE) else os.path.abspath(place)

    def take(self, name: str, out: str, err: str) -> None:
        """Pass on the output of a call; never blocks."""
        if self._path or self._shown:
            _writer.put(Said(name, out, err, self._path))

    def flush(self) -> None:
        """Wait until everything is written, unless the terminal is stopped."""
        if self._path or self._shown:
            _writer.flush()


class _Writer:
    """The thread that writes the output of all calls of this process."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._waiting: deque[Said] = deque()
        self._thread: threading.Thread | None = None
        self._left_out = 0   # lines
        self._room, self._then = float(BURST_LINES), time.monotonic()   # for more lines, at that time

    def put(self, said: Said) -> None:
        with self._news:
            if len(self._waiting) == _MAX_WAITING:
                self._left_out += 1
                self._waiting.popleft()
            self._waiting.append(said)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name='rp.output', daemon=True)
                self._thread.start()
            self._news.notify_all()

    def flush(self) -> None:
        with self._news:
            self._news.wait_for(lambda: self._thread is None, _FLUSH_S)

    def _run(self) -> None:
        while (said := self._next()) is not None:
            try:
                _append(said) if said.path else self._show(said)
            except (OSError, ValueError) as error:   # the terminal or the disk is gone
                _log.warning('the output of %s is not written: %s', said.name, error)

    def _next(self) -> Said | None:
        with self._news:
            if not self._news.wait_for(lambda: self._waiting, _IDLE_S):
                self._tell_left_out()
                self._thread = None
                self._news.notify_all()
                return None
            return self._waiting.popleft()

    def _show(self, said: Said) -> None:
        for text, stream in ((said.out, sys.stdout), (said.err, sys.stderr)):
            if text and is_read(stream):
                _write(stream, ''.join(f'{said.name}: {line[:MAX_LINE_CHARS]}\n' for line in self._last_of(text)))

    def _tell_left_out(self) -> None:
        count, self._left_out = self._left_out, 0
        if count and is_read(sys.stderr):
            _write(sys.stderr, f'{count:,} more lines of functions: see future.stdout, or the output of the worker\n')

    def _last_of(self, text: str) -> list[str]:
        """Return the last lines of a text that there is room for."""
        now = time.monotonic()
        self._room = min(float(BURST_LINES), self._room + (now - self._then) * LINES_PER_S)
        self._then = now
        count = text.count('\n') + (not text.endswith('\n'))
        shown = min(count, int(self._room))
        self._room -= shown
        self._left_out += count - shown
        return text.removesuffix('\n').rsplit('\n', shown)[-shown:] if shown else []


def _write(stream: Any, text: str) -> None:
    if text:
        stream.write(text)
        stream.flush()


def _append(said: Said) -> None:
    with open(said.path, 'a', encoding='utf-8') as file:
        file.write(said.out + said.err)


_writer = _Writer()
