"""The output, the outcome and the environment of calls: streams, environment variables, working directory.

The streams of the process are replaced once by streams that find the call that writes, as asynchronous calls share one
thread. What other threads write belongs to the call that the main thread runs. Output of other processes, and of C code
that bypasses Python, is not captured.

The result of a described call has its output. Calls of functions write to the streams of the process, and their results
have the end of that, if the caller wants it.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TextIO

from rp_api.pickles import missing_module
from rp_raptor.errors import CallCanceled, CallTimeout, represented
from rp_raptor.rank.process_end import end_if_forked
from rp_raptor.wire import payload
from rp_raptor.wire.carried_results import with_content
from rp_raptor.wire.output import MAX_OUTPUT_CHARS, with_output

MAX_STREAM_CHARS = 64 << 10
"""Characters of each stream that a result keeps, from its end. During the call all are kept."""

_new = tuple.__new__   # makes a named tuple in half the time of a call of its class

_Texts = list[io.StringIO | None]
"""The texts that a call has written to each stream; None for no text, as with most calls."""

_SILENT: _Texts = [None, None]
_NOTHING_SAID, _NO_EXCEPTION = ('', ''), (None, None)

_VALUES = frozenset({type(None), bool, int, float, str, bytes, list, tuple, dict})   # the values of most functions

class Spoken:
    """The output of a call of a function: the end of each stream."""

    __slots__ = ('_texts',)

    def __init__(self) -> None:
        self._texts: _Texts = [None, None]

    def add(self, which: int, text: str) -> None:
        """Add text to a stream."""
        own = _text_of(self._texts, which)
        own.write(text)
        if own.tell() > 2 * MAX_OUTPUT_CHARS:
            kept = self._texts[which] = io.StringIO()
            kept.write(own.getvalue()[-MAX_OUTPUT_CHARS:])

    def attached(self, result: bytes) -> bytes:
        """Return the result of the call with its output, if there is some."""
        return result if self._texts == _SILENT else with_output(with_content(result), *_said(self._texts))


_texts: ContextVar[_Texts | Spoken | None] = ContextVar('texts', default=None)


class Runs(Protocol):
    """What runs calls in the main thread; `spoken` is the output of the running one."""

    spoken: Spoken | None

    @property
    def running(self) -> int:
        """The position of the running call, negative for none."""


class _MainThread:
    """The call that the main thread runs."""

    def __init__(self) -> None:
        self.texts: _Texts | None = None   # of a described call
        self.runner: Runs | None = None

    @property
    def output(self) -> _Texts | Spoken | None:
        """Where the output of the call goes; None without a call."""
        runner = self.runner
        if self.texts is not None or runner is None or runner.running < 0:
            return self.texts
        spoken = runner.spoken
        if spoken is None:
            spoken = runner.spoken = Spoken()
        return spoken


_main = _MainThread()


def follow(runner: Runs) -> None:
    """Capture the output of the calls that run here."""
    _main.runner = runner


class Outcome(NamedTuple):
    """The outcome that a dispatcher returns: output, exit code (0 for success), value, exception with traceback.

    It can also be awaited, for dispatchers that expect those of the base class to be coroutines.
    """

    stdout: str | None
    stderr: str | None
    exit_code: int
    value: Any
    exception: tuple[str | None, str | None]

    def __await__(self) -> Generator[None, None, Outcome]:
        yield from ()
        return self


def goes_on(value: object) -> bool:
    """Return whether a value is the coroutine of an asynchronous function; other awaitables are plain values."""
    kind = type(value)
    return kind not in _VALUES and hasattr(kind, '__await__') and isinstance(value, Coroutine)


def captured(func: Callable[..., Any], args: Sequence[Any],
             kwargs: Mapping[str, Any]) -> Outcome | Coroutine[Any, Any, Outcome]:
    """Return the outcome of a call of the function; for an asynchronous function, a coroutine that returns it."""
    texts: _Texts = [None, None]
    token = _texts.set(texts)
    before, _main.texts = _main.texts, texts
    try:
        value = func(*args, **kwargs)
    except (CallTimeout, CallCanceled):
        raise
    except BaseException as error:   # includes SystemExit, which ends the call and not the rank
        end_if_forked(error)
        return failure(error, texts)
    finally:
        _main.texts = before
        _texts.reset(token)
    if goes_on(value):
        return _captured_later(value, texts)
    return _outcome(texts, value)


def _outcome(texts: _Texts, value: Any) -> Outcome:
    out, err = _said(texts) if texts != _SILENT else _NOTHING_SAID
    return _new(Outcome, (out, err, 0, value, _NO_EXCEPTION))


async def _captured_later(call: Awaitable[Any], texts: _Texts) -> Outcome:
    from asyncio import CancelledError

    token = _texts.set(texts)
    try:
        value = await call
    except CancelledError:
        raise
    except BaseException as error:
        end_if_forked(error)
        return failure(error, texts)
    finally:
        _texts.reset(token)
    return _outcome(texts, value)


@contextmanager
def speaking(wanted: bool) -> Generator[Spoken, None, None]:
    """Capture the output of the asynchronous function that runs in this context, if it is wanted."""
    spoken = Spoken()
    token = _texts.set(spoken if wanted else None)
    try:
        yield spoken
    finally:
        _texts.reset(token)


def failure(error: BaseException, texts: _Texts | None = None) -> Outcome:
    """Return the outcome of a call that has raised an exception; the traceback starts in the user's function."""
    out, err = _said(texts) if texts else ('', '')
    code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code else 1
    return Outcome(out, err, code, None, (represented(error), traceback_of(error)))


def _said(texts: _Texts) -> tuple[str, str]:
    out, err = texts
    return out.getvalue() if out else '', err.getvalue() if err else ''


def traceback_of(error: BaseException) -> str:
    """Return the text of the traceback, without the leading frames of this distribution."""
    start = error.__traceback__
    while start is not None and _is_own(start.tb_frame.f_globals.get('__package__')):
        start = start.tb_next
    text = ''.join(traceback.format_exception(type(error), error, start))
    advice = missing_module(error)
    return f'{text}\n{advice}\n' if advice else text


def _is_own(package: object) -> bool:
    """Return whether a module belongs to this distribution."""
    return isinstance(package, str) and package.partition('.')[0] == __name__.partition('.')[0]


def tail(text: str) -> str:
    """Return the end of a text, at most as long as a result keeps."""
    return text if len(text) <= MAX_STREAM_CHARS else text[-MAX_STREAM_CHARS:]


@contextmanager
def task_environment(variables: Mapping[str, str], directory: str) -> Generator[None, None, None]:
    """Set environment variables and the working directory (if given) for a call, and restore both at its end."""
    before = {name: os.environ.get(name) for name in variables}
    place = os.getcwd() if directory else ''
    try:
        os.environ.update(variables)
        if directory:
            os.makedirs(directory, exist_ok=True)
            os.chdir(directory)
        yield
    finally:
        if place:
            os.chdir(place)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def replace_streams() -> None:
    """Capture `sys.stdout` and `sys.stderr` separately for each call from now on."""
    if not isinstance(sys.stdout, _Stream):
        sys.stdout = _Stream(0, sys.stdout)
        sys.stderr = _Stream(1, sys.stderr)


def _text_of(texts: _Texts, which: int) -> io.StringIO:
    """Return the text of a stream."""
    own = texts[which]
    if own is None:
        own = texts[which] = io.StringIO()
    return own


class _Stream(io.TextIOBase):
    """A stream that writes to the text of the current call, and to the original stream unless the call is described."""

    def __init__(self, which: int, original: TextIO) -> None:
        self._which = which
        self._original = original

    def write(self, text: str) -> int:
        texts = _texts.get()
        if texts is None:
            texts = _main.output
        if isinstance(texts, Spoken):
            texts.add(self._which, text)
        elif texts is not None:
            return _text_of(texts, self._which).write(text)
        return self._original.write(text)

    def flush(self) -> None:
        if not self._original.closed:
            self._original.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._original.fileno()

    @property
    def buffer(self) -> Any:
        return self._original.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._original.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self._original.errors


def encode_error(error: BaseException) -> bytes:
    """Return the result of a call with this exception; interruptions become the standard library's exceptions."""
    text = traceback_of(error)
    if isinstance(error, CallTimeout):
        error = TimeoutError(str(error))
    elif isinstance(error, CallCanceled):
        error = CancelledError(str(error))
    return payload.encode_error(error, text)
