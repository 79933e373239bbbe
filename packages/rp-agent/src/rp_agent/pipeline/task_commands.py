"""Commands that the agent adds to those of tasks: of the platform definition, and for `nice`.

The commands in `task_pre_launch`, `task_pre_exec`, `task_post_exec` and `task_post_launch` of a platform run after
those of the task itself. Calls of RAPTOR, which workers run, do not get them, but masters and workers do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rp_agent.task import AgentTask

Put = Callable[[list[AgentTask]], None]

_HAS_COMMANDS = 'added_commands'

_STAGES = ('pre_launch', 'pre_exec', 'post_exec', 'post_launch')

_NICE = 'test "$(nice)" -ge {0} || renice -n {0} -p $$ >/dev/null'
"""A command by which each rank gets this niceness, before all others; an agent may have a higher one."""


def with_commands(platform: Mapping[str, Any], put: Put) -> Put:
    """Return a function that adds commands to tasks, once to each, before `put`."""
    added = {stage: platform[f'task_{stage}'] for stage in _STAGES if platform.get(f'task_{stage}')}

    def put_with_commands(tasks: list[AgentTask]) -> None:
        for task in tasks:
            if (added or 'nice' in task.description) and _HAS_COMMANDS not in task.extra:
                task.extra[_HAS_COMMANDS] = True
                _add(task, added)
        put(tasks)

    return put_with_commands


def _add(task: AgentTask, added: Mapping[str, list[Any]]) -> None:
    description = task.description
    for stage, commands in added.items():
        description[stage] = [*description[stage], *commands]
    if 'nice' in description:
        description['pre_exec'] = [_NICE.format(int(description['nice'])), *description['pre_exec']]
