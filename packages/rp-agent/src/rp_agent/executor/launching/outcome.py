"""What the end of a task's processes means: exit codes and the sentences that explain them."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rp_api.system.disk import no_room

if TYPE_CHECKING:
    from rp_agent.task import AgentTask

from rp_api.system.readable import end_of

_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
_SIGNALLED = 128
_KILLS = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP)

# bytes of a script's output that a message shows
_SHOWN = 1024


def fail(task: AgentTask, complaint: str, sentence: str = 'task failed') -> None:
    """Make a task that was started one that has failed; that its sandbox is full by now may be why, and is told."""
    reason = no_room(task.sandbox)
    task.fail(repr(RuntimeError(f'{sentence}, and nothing can be written to {reason}' if reason else sentence)),
              complaint)


def named(error: BaseException) -> str:
    """An exception as the application is told; that of a file with its path, other than `repr`."""
    if isinstance(error, OSError) and error.filename is not None:
        return f'{type(error).__name__}({error.errno}, {error.strerror!r}, {error.filename!r})'
    return repr(error)


def exit_code_of_task(codes: Mapping[int, int]) -> int:
    """The exit code of a task whose ranks ended with these codes: that of the first rank that failed, or 0."""
    if not any(codes.values()):
        return 0
    return next(code for _, code in sorted(codes.items()) if code != 0)


def of_their_own(codes: Mapping[int, int]) -> Mapping[int, int]:
    """Of ranks that failed with these codes, those that were not killed, as the others of an MPI program are when one
    fails; all of them if all were.
    """
    return {rank: code for rank, code in codes.items() if not was_killed(code)} or codes


def explain(codes: Mapping[int, int], shell: bool) -> str:
    """Why a task failed whose ranks ended with these codes; `shell` tells that they are those of a shell."""
    failed = sorted((rank, code) for rank, code in codes.items() if code != 0)
    rank, code = failed[0]
    text = explain_code(code, shell)
    if len(codes) == 1:
        return text
    others = f' (so did {len(failed) - 1} more of {len(codes)} ranks)' if len(failed) > 1 else ''
    return f'{text} of rank {rank}{others}'


def explain_code(code: int, shell: bool) -> str:
    """What an exit code means; a negative one is the number of the signal that ended the process."""
    if code < 0:
        return f'killed by signal {-code} ({_signal_name(-code)})'
    if shell and code == _NOT_FOUND:
        return f'exit code: {code} (that of a shell that did not find a command)'
    if shell and code == _NOT_EXECUTABLE:
        return f'exit code: {code} (that of a shell that could not execute a command)'
    if shell and _SIGNALLED < code <= _SIGNALLED + signal.NSIG:
        return f'exit code: {code} (that of a shell whose command was killed by {_signal_name(code - _SIGNALLED)})'
    return f'exit code: {code}'


def was_killed(code: int) -> bool:
    """Whether somebody has ended the process with this exit code, or the command of the shell that it is of."""
    return -code in _KILLS or code - _SIGNALLED in _KILLS


def last_words(path: str) -> str:
    """For a message: where a script has written its output, and the end of it."""
    text = end_of(path, _SHOWN).decode(errors='replace')   # none if the task has removed it
    return f'see {path}' + (f', which ends with:\n{text}' if text else '')


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f'SIGRTMIN+{number - signal.SIGRTMIN}'
