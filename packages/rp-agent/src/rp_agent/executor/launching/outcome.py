"""Outcome of a task's processes: exit codes, and sentences that explain them.

Ranks that a launcher starts note their exit codes (see `rank_script`), so the agent knows which of them failed,
whatever the launcher reports. When a rank of an MPI program fails, the others are killed: the task's exit code is that
of the first rank that failed by itself.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rp_agent.lookup import not_in_sandbox
from rp_agent.task import KILLED, AgentTask
from rp_api.failures.kinds import EXIT, LAUNCH, SIGNAL
from rp_api.states import DONE
from rp_api.system.disk import no_room
from rp_api.system.readable import end_of
from rp_api.system.shell_text import advice
from rp_api.system.signals import name_of

if TYPE_CHECKING:
    from rp_agent.executor.launching.launched import TaskLaunch
    from rp_agent.executor.launching.plan import LaunchPlan

_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
_SIGNALLED = 128
_KILLS = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP)

_QUOTED_BYTES = 1024
"""Bytes of a script's output that a message quotes."""


def fail(task: AgentTask, reason: str, record: Mapping[str, Any], *, more: str = '', output: str = '',
         exception: str = 'task failed') -> None:
    """Set the outcome of a task that has failed; the exception mentions a full sandbox as a possible cause.

    Args:
        task: The task.
        reason: The reason of the failure, as a part of a sentence.
        record: The record of the failure, without the reason.
        more: A supplement to the reason, for `exception_detail`.
        output: The output file of the launch script or launcher, whose end explains the failure; empty without one.
        exception: The text of the `exception`.
    """
    if record['kind'] == LAUNCH:   # the shell has reported a file that is not there
        reason += not_in_sandbox(task.description['executable'], task.sandbox)
    if not task.description['literal_arguments']:
        reason += advice(task.exit_code, task.description['arguments'])
    full = no_room(task.sandbox)
    also = f', and nothing can be written to {full}' if full else ''
    detail = f'{reason}{more}, {end_of_output(output)}' if output else f'{reason}{more}'
    task.fail(repr(RuntimeError(f'{exception}{also}')), detail, sentence=f'{reason}{also}', **record)


def fail_by_codes(task: AgentTask, codes: Mapping[int, int], *, shell: bool, script: str = '',
                  reason: str = '') -> None:
    """Set the outcome of a task of which ranks have failed.

    Args:
        task: The task.
        codes: Exit codes by rank.
        shell: Whether the exit codes are those of shells.
        script: The output file of the launch script; empty without one.
        reason: Why the task failed; default: what the exit codes mean.
    """
    if any(map(was_killed, codes.values())):   # the ranks of a program often answer a kill with other exit codes
        task.extra[KILLED] = True
    record = of_codes(codes, shell=shell) | (of_script(script) if script else {})
    fail(task, reason or explain(codes, shell), record, output=script)


def of_codes(codes: Mapping[int, int], *, shell: bool) -> dict[str, Any]:
    """Return the record of the failure of processes with these exit codes by rank; `shell`: those of a shell."""
    code = code_of(exit_code_of_task(codes), shell=shell)
    if code < 0:
        return {'kind': SIGNAL, 'signal': -code}
    return {'kind': LAUNCH if shell and code in (_NOT_FOUND, _NOT_EXECUTABLE) else EXIT}


def of_script(output: str) -> dict[str, Any]:
    """Return the part of a record that the output of a launch script adds: its path and its end, unless it is empty."""
    text = end_of(output, _QUOTED_BYTES).decode(errors='replace')
    return {'path': output, 'lines': text} if text else {}


def named(error: BaseException) -> str:
    """Return the text of an exception for the application; unlike `repr`, with the path of an OSError."""
    if isinstance(error, OSError) and error.filename is not None:
        return f'{type(error).__name__}({error.errno}, {error.strerror!r}, {error.filename!r})'
    return repr(error)


def code_of(code: int, *, shell: bool) -> int:
    """Return the exit code that a task reports, in all executors: -n if signal n ended its program.

    A `shell`, and `rp-rank`, report the end of a program by a signal as 128 + n.
    """
    return _SIGNALLED - code if shell and _SIGNALLED < code < _SIGNALLED + signal.NSIG else code


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
    code = code_of(code, shell=shell)
    if code < 0:
        return f'killed by signal {-code} ({name_of(-code)})'
    if shell and code == _NOT_FOUND:
        return f'exit code: {code} (the shell did not find a command)'
    if shell and code == _NOT_EXECUTABLE:
        return f'exit code: {code} (the shell could not execute a command)'
    return f'exit code: {code}'


def was_killed(code: int) -> bool:
    """Return whether an exit code means that a process, or the command of a shell, was ended by a signal."""
    return -code in _KILLS or code - _SIGNALLED in _KILLS


def end_of_output(path: str) -> str:
    """Return the path of a script's output and the end of it, for a message."""
    text = end_of(path, _QUOTED_BYTES).decode(errors='replace')   # empty if the task has removed the file
    return f'see {path}' + (f', which ends with:\n{text}' if text else '')


ATTEMPTS = 'launches'
"""Key in a task's `extra` for the number of its launches, if there were several."""


def has_started(task: AgentTask) -> bool:
    """Return whether the launcher of a task has started its first rank."""
    return _notes(task)[0]


def conclude(task: AgentTask, plan: LaunchPlan) -> None:
    """Set the outcome of a task, whose exit code so far is that of its launcher."""
    launch = plan.launch
    assert launch is not None
    task.exit_code, reason, record = _judge(task, plan, task.exit_code or 0)
    if reason:
        script = of_script(plan.script) if plan.script else {}
        fail(task, reason, {**record, **script}, more=f'; launched by `{launch.line}`', output=_output(plan))
    else:
        task.target_state = DONE


def usage_by_notes(task: AgentTask, ranks: int) -> tuple[float, float, float, dict[str, Any]]:
    """Return CPU time, switches and the rest of the usage of ranks, as in `AgentTask.ran`.

    They are NaN and {} if not all ranks have noted theirs.
    """
    from rp_agent.executor.launching.rank_script import read_usage  # most tasks have no launcher

    found = read_usage(task.sandbox, task.uid)
    if len(found) != ranks:
        return math.nan, math.nan, math.nan, {}
    user, system, switches, *more = map(sum, zip(*found, strict=True))
    return user, system, switches, dict(zip(('memory', 'read', 'written'), map(int, more), strict=True))


def _judge(task: AgentTask, plan: LaunchPlan, code: int) -> tuple[int | None, str, dict[str, Any]]:
    """Return a task's exit code, and why it failed (empty if it did not), with a record, given that of its launcher."""
    launch = plan.launch
    assert launch is not None
    started, failed = _notes(task)
    if failed:
        rank, result = next(iter(not_killed(failed).items()))
        record = of_codes({0: result}, shell=True)
        return code_of(result, shell=True), f'{explain_code(result, True)}{_of(rank, failed, launch)}', record
    if code != 0:
        whose = 'launch script' if plan.script else f'launcher {launch.method}'
        often = f' (started {task.extra[ATTEMPTS]} times)' if ATTEMPTS in task.extra else ''
        code, shell = code_of(code, shell=True), bool(plan.script)   # launchers report killed ranks as shells do
        return code, f'{explain_code(code, shell)} of the {whose}{often}', of_codes({0: code}, shell=shell)
    if not started:
        reason = f'launcher {launch.method} ended with exit code 0, but has started no rank'
        return None, reason, {'kind': LAUNCH}
    return 0, '', {}


def _notes(task: AgentTask) -> tuple[bool, Mapping[int, int]]:
    """Return whether a rank has started, and the exit codes of ranks that have failed."""
    from rp_agent.executor.launching.rank_script import read_notes  # most tasks have no launcher

    return read_notes(task.sandbox, task.uid)


def _of(rank: int, failed: Mapping[int, int], launch: TaskLaunch) -> str:
    if launch.ranks == 1:
        return ''
    others = sum(not was_killed(code) for code in failed.values()) - 1
    return f' of rank {rank}' + (f' (so did {others} more of {launch.ranks} ranks)' if others > 0 else '')


def _output(plan: LaunchPlan) -> str:
    """Return the output file that probably explains a failure."""
    stdout, stderr = plan.output
    try:
        return stderr if os.path.getsize(stderr) else stdout
    except OSError:   # the task has removed it
        return stderr
