"""What has failed in a session: counts by cause, with an example of each."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from rp_api.coordination.contract import PackedInfo
from rp_api.failures.kinds import EXIT
from rp_api.failures.task_error import task_error

MAX_CAUSES = 8
"""Causes that are told apart; others are counted together."""

_MAX_CHARS = 160   # of an example

Cause = tuple[Any, ...]


@dataclass
class _Kind:
    """Failures of one cause, with a task as an example, or the name of a function."""

    function: str
    count: int = 0
    uid: str = ''
    text: str = ''


class FailureCounts:
    """Counts failed tasks and calls by cause. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._kinds: dict[Cause, _Kind] = {}
        self._lock = threading.Lock()

    def add_task(self, record: Any, uid: str, number: int = 1) -> None:
        """Count a task that has failed, or as many as the record stands for."""
        if number:
            self._count(_cause(record), uid, record, number)

    def drop_task(self, record: Any) -> None:
        """Count a failed task no more, as its application expects that."""
        self._drop(_cause(record))

    def add_call(self, name: str, error: BaseException) -> None:
        """Count a call of a function that has failed."""
        self._count((name, type(error)), '', error)

    def drop_call(self, name: str, error: BaseException) -> None:
        """Count a failed call no more, as it is repeated."""
        self._drop((name, type(error)))

    def text(self, session: str, *, tasks_kept: bool = True) -> str:
        """Return lines about what has failed; empty if nothing has."""
        with self._lock:
            found = sorted((kind for kind in self._kinds.values() if kind.count > 0), key=lambda kind: -kind.count)
        if not found:
            return ''
        lines = [f'{session}: {sum(kind.count for kind in found):,} failed']
        for kind in found:
            where = f', such as {kind.uid}' if kind.uid else f' of {kind.function}' if kind.function else ''
            what = 'task' if kind.uid else 'call'
            lines.append(f'  {kind.count:,} {what}{"s" if kind.count > 1 else ""}{where}: {kind.text}')
        example = next((kind.uid for kind in found if kind.uid), '')
        if example and tasks_kept:
            lines.append(f'see: rp task list --failed --session {session}; rp why {example}')
        return '\n'.join(lines) + '\n'

    def _count(self, cause: Cause, uid: str, failed: Any, number: int = 1) -> None:
        with self._lock:
            kind = self._kind(cause)
            kind.count += number
            if not kind.text:
                kind.uid, kind.text = uid, _sentence(failed)

    def _drop(self, cause: Cause) -> None:
        with self._lock:   # it may not have been counted yet
            self._kind(cause).count -= 1

    def _kind(self, cause: Cause) -> _Kind:
        if cause not in self._kinds and len(self._kinds) >= MAX_CAUSES:
            return self._kinds.setdefault((), _Kind('', text='other causes'))
        return self._kinds.setdefault(cause, _Kind(cause[0] if len(cause) == 2 else ''))


def _cause(record: Any) -> Cause:
    """Return what failures of a kind have in common: the kind, the exit code or signal, the type of an exception."""
    info = PackedInfo(record.known).as_dict() if record.known else {}
    error = info.get('error') or {}
    raised, call, _ = str(info.get('exception') or '').partition('(')
    return (error.get('kind') or EXIT, info.get('exit_code'), error.get('signal'),
            raised if call and raised.isidentifier() else '')


def _sentence(failed: Any) -> str:
    """Return why a task or a call has failed, in one line."""
    if isinstance(failed, BaseException):
        text = f'{type(failed).__name__}: {failed}' if str(failed) else type(failed).__name__
    else:
        error = task_error(failed.uid, failed.state, failed.info.as_dict() if failed.info else {}, {})
        last = error.last_lines.strip().rpartition('\n')[2] if error is not None else ''
        text = '' if error is None else f'{error.sentence}: {last}' if last else error.sentence
    text = ' '.join(text.split())
    return text if len(text) <= _MAX_CHARS else f'{text[:_MAX_CHARS]}...'
