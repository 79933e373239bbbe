"""What the end of a launcher means for its task.

Ranks note how they end (see `rank_script`), so it is known which of them failed, whatever the launcher makes of that.
The others of an MPI program are killed then: the code of the first one that was not is that of the task.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rp_agent.executor.launching.outcome import explain_code, fail, last_words, of_their_own, was_killed
from rp_agent.executor.launching.plan import LAUNCH, LaunchPlan
from rp_agent.task import AgentTask
from rp_api import states

if TYPE_CHECKING:
    from rp_agent.executor.launching.launched import Launch



ATTEMPTS = 'launches'
"""Where in a task's `extra` the number of its launches stands, if there were several."""


def has_started(task: AgentTask) -> bool:
    """Whether the launcher of a task has started its first rank."""
    return _notes(task)[0]


def conclude(task: AgentTask, plan: LaunchPlan) -> None:
    """Make the task, whose exit code is that of its launcher, one that is done or has failed, and say why."""
    task.exit_code, complaint = _judge(task, plan, task.exit_code or 0)
    if complaint:
        fail(task, complaint)
    else:
        task.target_state = states.DONE


def _judge(task: AgentTask, plan: LaunchPlan, code: int) -> tuple[int | None, str]:
    """The exit code of a task whose launcher ended with `code`, and why it has failed; empty if it has not."""
    launch = plan.launch
    assert launch is not None
    started, failed = _notes(task)
    if failed:
        rank, result = _first(failed)
        return result, f'{explain_code(result, True)}{_of(rank, failed, launch)}{_told(launch, plan)}'
    if code != 0:
        whose = 'launch script' if plan.kind == LAUNCH else f'launcher {launch.method}'
        often = f' (started {task.extra[ATTEMPTS]} times)' if ATTEMPTS in task.extra else ''
        return code, f'{explain_code(code, plan.kind == LAUNCH)} of the {whose}{often}{_told(launch, plan)}'
    if not started:
        return None, f'launcher {launch.method} ended with exit code 0, but has started no rank{_told(launch, plan)}'
    return 0, ''


def _notes(task: AgentTask) -> tuple[bool, Mapping[int, int]]:
    """Whether a rank has started, and the exit codes of those that have failed."""
    from rp_agent.executor.launching.rank_script import read_notes  # most tasks have no launcher

    return read_notes(task.sandbox, task.uid)


def _first(failed: Mapping[int, int]) -> tuple[int, int]:
    return next(iter(of_their_own(failed).items()))


def _of(rank: int, failed: Mapping[int, int], launch: Launch) -> str:
    if launch.ranks == 1:
        return ''
    others = sum(not was_killed(code) for code in failed.values()) - 1
    return f' of rank {rank}' + (f' (so did {others} more of {launch.ranks} ranks)' if others > 0 else '')


def _told(launch: Launch, plan: LaunchPlan) -> str:
    """The command line, and the end of the file that probably says more."""
    stdout, stderr = plan.output
    try:
        path = stderr if os.path.getsize(stderr) else stdout
    except OSError:   # the task has removed it
        path = stderr
    return f'; launched by `{launch.line}`, {last_words(path)}'
