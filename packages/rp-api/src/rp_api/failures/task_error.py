"""Failures of tasks as exceptions: `Task.error`, from the records that `rp_api.failures.kinds` describes."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import CancelledError
from typing import Any

from rp_api import states
from rp_api.errors import PilotError
from rp_api.failures import kinds as k
from rp_api.failures.kinds import KINDS
from rp_api.system.signals import name_of


class TaskError(PilotError, RuntimeError):
    """The failure of a task; see `Task.error`.

    `str(error)` is the explanation, the path of the file that tells more, and the last lines of this file.

    Attributes:
        uid: The task.
        kind: The kind of failure, one of `rp_api.failures.kinds.KINDS`.
        sentence: The explanation.
        exit_code: The exit code of the program, -N if signal N ended it; None without one.
        signal: The name of the signal that ended the program, such as 'SIGSEGV'; None without one.
        signal_number: The number of this signal; None without one.
        path: The file on the platform that tells more, such as that of the standard error; None without one.
        last_lines: The last lines of this file, or the traceback of a function; may be empty.
    """

    def __init__(self, uid: str, kind: str, sentence: str, *, exit_code: int | None = None,
                 signal_number: int | None = None, path: str | None = None, last_lines: str = '') -> None:
        super().__init__(uid, kind, sentence)
        self.uid = uid
        self.kind = kind
        self.sentence = sentence
        self.exit_code = exit_code
        self.signal_number = signal_number
        self.path = path
        self.last_lines = last_lines

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended the program, such as 'SIGSEGV'; None without one."""
        return None if self.signal_number is None else name_of(self.signal_number)

    def __str__(self) -> str:
        text = f'{self.uid}: {self.sentence}'
        if self.path:
            text += f'\nsee {self.path}' + (', which ends with:' if self.last_lines else '')
        return f'{text}\n{self.last_lines}' if self.last_lines else text

    def __repr__(self) -> str:
        return f'{type(self).__name__}({self.uid!r}, {self.kind!r}, {self.sentence!r})'

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), self.args, {
            'exit_code': self.exit_code, 'signal_number': self.signal_number, 'path': self.path,
            'last_lines': self.last_lines})


class TaskCanceledError(TaskError, CancelledError):
    """The task was cancelled; also a `concurrent.futures.CancelledError`."""


class TaskTimeoutError(TaskError):
    """The task has exceeded its own time limit; no `TimeoutError`, which means that a wait was too short."""


class TaskLostError(TaskError):
    """The task was lost with its node, its pilot or another process (kinds `node`, `pilot` and `lost`)."""


class TaskMemoryError(TaskError):
    """The program has needed more memory than it may have."""


_CLASSES: Mapping[str, type[TaskError]] = {
    k.CANCELED: TaskCanceledError, k.TIMEOUT: TaskTimeoutError, k.MEMORY: TaskMemoryError,
    k.NODE: TaskLostError, k.PILOT: TaskLostError, k.LOST: TaskLostError}


def task_error(uid: str, state: str, info: Mapping[str, Any], outputs: Mapping[str, str]) -> TaskError | None:
    """Return the failure of a task.

    Args:
        uid: The task.
        state: Its state.
        info: The information of its updates.
        outputs: The paths of its files `stdout` and `stderr` on the platform; empty if it has none.

    Returns:
        The failure; None if the state is neither FAILED nor CANCELED.
    """
    if state not in (states.FAILED, states.CANCELED):
        return None
    record = info.get('error') or {}
    code = info.get('exit_code')
    kind = _kind(state, code, record)
    number = record.get('signal', -code if code and code < 0 and kind != k.CANCELED else None)
    path, lines = _explanation(kind, info, outputs)
    return _CLASSES.get(kind, TaskError)(
        uid, kind, record.get('sentence') or _sentence(kind, info), exit_code=code, signal_number=number,
        path=path, last_lines=lines)


def _kind(state: str, code: int | None, record: Mapping[str, Any]) -> str:
    """Return the kind of a failure."""
    kind = str(record.get('kind'))
    if kind in KINDS:
        return kind
    if state == states.CANCELED:
        return k.CANCELED
    return k.INTERNAL if not code else k.SIGNAL if code < 0 else k.EXIT


def _explanation(kind: str, info: Mapping[str, Any], outputs: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the path of the file that explains a failure, and its last lines.

    It is the standard error of the task, or its standard output if that is empty, or the file that the record names.
    """
    record = info.get('error') or {}
    for name in ('stderr', 'stdout'):
        if isinstance(text := info.get(name), str) and text.strip():
            return outputs.get(name), text.rstrip()
    traceback = info.get('exception_detail') if kind == k.EXCEPTION else None
    return record.get('path'), str(record.get('lines') or traceback or '').rstrip()


def _sentence(kind: str, info: Mapping[str, Any]) -> str:
    """Return the explanation of a failure whose record has none."""
    if kind in (k.EXIT, k.SIGNAL) and info.get('exception_detail'):
        return str(info['exception_detail']).partition('\n')[0]
    return str(info.get('exception') or KINDS[kind])


def _remake(kind: type[TaskError], args: tuple[str, str, str], others: Mapping[str, Any]) -> TaskError:
    return kind(*args, **others)
