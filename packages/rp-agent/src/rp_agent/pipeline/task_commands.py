"""Commands that the agent adds to those of tasks: of the platform definition, and for `nice`.

The commands in `task_pre_launch`, `task_pre_exec`, `task_post_exec` and `task_post_launch` of a platform run after
those of the task itself. Calls of RAPTOR, which workers run, do not get them, but masters and workers do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_agent.task import AgentTask

_HAS_COMMANDS = 'added_commands'

_STAGES = ('pre_launch', 'pre_exec', 'post_exec', 'post_launch')

_NICE = 'test "$(nice)" -ge {0} || renice -n {0} -p $$ >/dev/null'
"""A command by which each rank gets this niceness, before all others; an agent may have a higher one."""


class TaskCommands:
    """The commands of a platform, `added` to those of tasks by stage."""

    def __init__(self, platform: Mapping[str, Any]) -> None:
        self.added = {stage: platform[f'task_{stage}'] for stage in _STAGES if platform.get(f'task_{stage}')}

    def add(self, task: AgentTask) -> None:
        """Add the commands to a task, once."""
        if _HAS_COMMANDS in task.extra:
            return
        task.extra[_HAS_COMMANDS] = True
        description = task.description
        for stage, commands in self.added.items():
            description[stage] = [*description[stage], *commands]
        if 'nice' in description:
            description['pre_exec'] = [_NICE.format(int(description['nice'])), *description['pre_exec']]
