"""Outcome of a task whose launcher has ended.

Ranks note their exit codes (see `rank_script`), so the agent knows which of them failed, whatever the launcher reports.
When a rank of an MPI program fails, the others are killed: the task's exit code is that of the first rank that failed
by itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rp_agent.executor.launching.outcome import code_of, explain_code, fail, not_killed, of_codes, of_script, was_killed
from rp_agent.executor.launching.plan import LAUNCH, LaunchPlan
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.failures import kinds

if TYPE_CHECKING:
    from rp_agent.executor.launching.launched import TaskLaunch


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
        script = of_script(plan.output[0]) if plan.kind == LAUNCH else {}
        fail(task, reason, {**record, **script}, more=f'; launched by `{launch.line}`', output=_output(plan))
    else:
        task.target_state = states.DONE


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
        whose = 'launch script' if plan.kind == LAUNCH else f'launcher {launch.method}'
        often = f' (started {task.extra[ATTEMPTS]} times)' if ATTEMPTS in task.extra else ''
        code, shell = code_of(code, shell=True), plan.kind == LAUNCH   # launchers report killed ranks as shells do
        return code, f'{explain_code(code, shell)} of the {whose}{often}', of_codes({0: code}, shell=shell)
    if not started:
        reason = f'launcher {launch.method} ended with exit code 0, but has started no rank'
        return None, reason, {'kind': kinds.LAUNCH}
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
