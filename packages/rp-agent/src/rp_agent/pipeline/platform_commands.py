"""Commands that a platform definition adds to those of every task that the agent runs.

The commands in `task_pre_launch`, `task_pre_exec`, `task_post_exec` and `task_post_launch` run after those of the task
itself. Calls of RAPTOR, which workers run, do not get them, but masters and workers do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rp_agent.task import AgentTask

Put = Callable[[list[AgentTask]], None]

_HAS_COMMANDS = 'platform_commands'

_STAGES = ('pre_launch', 'pre_exec', 'post_exec', 'post_launch')


def with_commands(platform: Mapping[str, Any], put: Put) -> Put:
    """Return a function that adds the commands of the platform to tasks before `put`; `put` itself if there are none.

    Tasks that the agent runs again get them only once.
    """
    added = {stage: platform[f'task_{stage}'] for stage in _STAGES if platform.get(f'task_{stage}')}
    if not added:
        return put

    def put_with_commands(tasks: list[AgentTask]) -> None:
        for task in tasks:
            if _HAS_COMMANDS not in task.extra:
                task.extra[_HAS_COMMANDS] = True
                for stage, commands in added.items():
                    task.description[stage] = [*task.description[stage], *commands]
        put(tasks)

    return put_with_commands
