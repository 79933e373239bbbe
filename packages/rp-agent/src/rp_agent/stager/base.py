"""What both stagers of the agent share: which directives are theirs, and how they are carried out."""

from __future__ import annotations

import os

from rp_agent.task import AgentTask
from rp_api.staging.directive import Directive
from rp_api.staging.location import Sandboxes, acts_on_client
from rp_api.staging.run import run
from rp_profiling.write.tracer import Tracer


def names(task: AgentTask) -> list[str]:
    """Names of the files in the task's sandbox; none if there is no sandbox, and there can be none."""
    try:
        return os.listdir(task.sandbox)
    except (OSError, ValueError):   # of which the executor says what is wrong
        return []


def stage(task: AgentTask, directives: list[Directive], sandboxes: Sandboxes, tracer: Tracer, name: str) -> None:
    """Carry out the agent's directives, and record those that are the client's; relative paths are the task's.

    Raises `StagingError` for the first that fails.
    """
    mine = []
    for directive in directives:
        if acts_on_client(directive['action']):
            tracer.record(f'{name}_skip', task.uid, msg=directive['uid'])
        else:
            mine.append(directive)
    run(task.uid, mine, ('task', 'task'), sandboxes, tracer, name)
