"""Outcome of a task's processes: exit codes, and sentences that explain them."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rp_api.system.disk import no_room
from rp_api.system.readable import end_of
from rp_api.system.signals import name_of

if TYPE_CHECKING:
    from rp_agent.task import AgentTask

_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
_SIGNALLED = 128
_KILLS = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP)

_SHOWN = 1024
"""Bytes of a script's output that a message quotes."""


def fail(task: AgentTask, complaint: str, sentence: str = 'task failed') -> None:
    """Set the outcome of a task that has failed; the exception mentions a full sandbox as a possible cause."""
    reason = no_room(task.sandbox)
    task.fail(repr(RuntimeError(f'{sentence}, and nothing can be written to {reason}' if reason else sentence)),
              complaint)


def named(error: BaseException) -> str:
    """Return the text of an exception for the application; unlike `repr`, with the path of an OSError."""
    if isinstance(error, OSError) and error.filename is not None:
        return f'{type(error).__name__}({error.errno}, {error.strerror!r}, {error.filename!r})'
    return repr(error)


def exit_code_of_task(codes: Mapping[int, int]) -> int:
    """Return the exit code of a task with these exit codes by rank: that of the first rank that failed, or 0."""
    if not any(codes.values()):
        return 0
    return next(code for _, code in sorted(codes.items()) if code != 0)


def not_killed(codes: Mapping[int, int]) -> Mapping[int, int]:
    """Return the failed ranks that were not killed; all of them if all were.

    When a rank of an MPI program fails, the others are killed.
    """
    return {rank: code for rank, code in codes.items() if not was_killed(code)} or codes


def explain(codes: Mapping[int, int], shell: bool) -> str:
    """Return why a task with these exit codes by rank failed; `shell` means that they are those of a shell."""
    failed = sorted((rank, code) for rank, code in codes.items() if code != 0)
    rank, code = failed[0]
    text = explain_code(code, shell)
    if len(codes) == 1:
        return text
    others = f' (so did {len(failed) - 1} more of {len(codes)} ranks)' if len(failed) > 1 else ''
    return f'{text} of rank {rank}{others}'


def explain_code(code: int, shell: bool) -> str:
    """Return the meaning of an exit code; a negative code is the number of the signal that ended the process."""
    if code < 0:
        return f'killed by signal {-code} ({name_of(-code)})'
    if shell and code == _NOT_FOUND:
        return f'exit code: {code} (the shell did not find a command)'
    if shell and code == _NOT_EXECUTABLE:
        return f'exit code: {code} (the shell could not execute a command)'
    if shell and _SIGNALLED < code <= _SIGNALLED + signal.NSIG:
        return f'exit code: {code} (the command of the shell was killed by {name_of(code - _SIGNALLED)})'
    return f'exit code: {code}'


def was_killed(code: int) -> bool:
    """Return whether an exit code means that a process, or the command of a shell, was ended by a signal."""
    return -code in _KILLS or code - _SIGNALLED in _KILLS


def end_of_output(path: str) -> str:
    """Return the path of a script's output and the end of it, for a message."""
    text = end_of(path, _SHOWN).decode(errors='replace')   # empty if the task has removed the file
    return f'see {path}' + (f', which ends with:\n{text}' if text else '')
