"""The line of progress: drawn at the end of a terminal, shown in a notebook, or written now and then."""

from __future__ import annotations

import html
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from rp_api.system.terminal import is_terminal

_BAR_CHARS = 20
_ERASE = '\r\x1b[K'   # the line in which the cursor is
_DEFAULT_COLUMNS = 80

Write = Callable[[str], Any]


class Line(Protocol):
    """A line that shows how far something is."""

    def draw(self, what: str, fraction: float, text: str) -> None:
        """Show the line anew."""

    def close(self, *, keep: bool) -> None:
        """Remove the line, or leave it."""


def can_draw(stream: Any) -> bool:
    """Return whether a line can be drawn again and again on a stream, and nothing is typed there."""
    return is_terminal(stream) and os.environ.get('TERM') != 'dumb' and not hasattr(sys, 'ps1')


class PlainLine:
    """A new line each time."""

    def draw(self, what: str, fraction: float, text: str) -> None:
        """Write a line."""
        if sys.stderr is not None:
            print(f'{what}: {text}', file=sys.stderr, flush=True)

    def close(self, *, keep: bool) -> None:
        """Leave the lines."""


class NotebookLine:
    """An output of a notebook's cell, which changes."""

    def __init__(self) -> None:
        self._handle: Any = None

    def draw(self, what: str, fraction: float, text: str) -> None:
        """Show a bar and the text."""
        show: Any = sys.modules['IPython'].display
        content = show.HTML(f'{html.escape(what)} <progress value="{fraction:.3f}" max="1"></progress> '
                            f'{html.escape(text)}')
        if self._handle is None:
            self._handle = show.display(content, display_id=True)
        else:
            self._handle.update(content)

    def close(self, *, keep: bool) -> None:
        """Leave the last text, as the output of a cell has its place."""


class TerminalLine:
    """The line in which the cursor is, on a terminal.

    What the program writes to the terminal comes in its place, and it is drawn again below: standard output and error
    are told to erase it first. Their contents are not touched. While the program has written a part of a line, nothing
    is drawn.
    """

    def __init__(self, stream: Any) -> None:
        self._lock = threading.RLock()
        self._stream = stream
        self._write = stream.write
        self._text = ''
        self._partial = False   # whether the program has not ended its line
        self._process = os.getpid()
        self._bar = '\u2501\u2500' if _can_encode(stream, '\u2501\u2500') else '#-'
        self._hooks = [Hook(each, self._giving_way) for each in dict.fromkeys((sys.stdout, sys.stderr))
                       if is_terminal(each)]

    def draw(self, what: str, fraction: float, text: str) -> None:
        """Draw the line, unless the program has written a part of one."""
        full = round(min(1.0, fraction) * _BAR_CHARS)
        bar = self._bar[0] * full + self._bar[1] * (_BAR_CHARS - full)
        line = f'{what} {bar} {text}'[:_columns(self._stream) - 1]
        with self._lock:
            if not self._partial and line != self._text:
                self._put(_ERASE + line)
                self._text = line

    def close(self, *, keep: bool) -> None:
        """Erase the line, or begin a new one after it."""
        with self._lock:
            for hook in self._hooks:
                hook.remove()
            if self._text:
                self._put('\n' if keep else _ERASE)
            self._text = ''

    def _giving_way(self, write: Write) -> Write:
        """Return a function that erases the line before it writes."""
        def written(text: str) -> Any:
            if os.getpid() != self._process:   # a fork, in which another thread may have had the lock
                return write(text)
            with self._lock:
                if self._text:
                    self._put(_ERASE)
                    self._text = ''
                if text:
                    self._partial = not text.endswith('\n')
                return write(text)
        return written

    def _put(self, text: str) -> None:
        self._write(text)
        self._stream.flush()


class Hook:
    """Replaces the `write` of a stream, whoever has a reference to it, by what `wrap` makes of it.

    `sys.stdout` and `sys.stderr` stay the same objects: handlers of logging, and programs that redirect their output
    meanwhile, have theirs.
    """

    def __init__(self, stream: Any, wrap: Callable[[Write], Write]) -> None:
        self._own = getattr(stream, '__dict__', {})   # streams of an application may have none: these write as ever
        self._before = self._own.get('write')
        self._hooked = self._own['write'] = wrap(stream.write)

    def remove(self) -> None:
        """Leave the stream as it was, unless the application has put something in place of the hook."""
        if self._own.get('write') is self._hooked:
            del self._own['write']
            if self._before is not None:
                self._own['write'] = self._before


def _columns(stream: Any) -> int:
    with suppress(OSError, ValueError):
        return int(os.environ.get('COLUMNS') or 0) or os.get_terminal_size(stream.fileno()).columns or _DEFAULT_COLUMNS
    return _DEFAULT_COLUMNS


def _can_encode(stream: Any, text: str) -> bool:
    try:
        text.encode(getattr(stream, 'encoding', None) or 'ascii')
    except (LookupError, UnicodeError):
        return False
    return True
