"""Functions for both stagers of the agent: select and execute the agent's directives."""

from __future__ import annotations

import os

from rp_agent.task import AgentTask
from rp_api.staging.directive import Directive
from rp_api.staging.location import Sandboxes, acts_on_client
from rp_api.staging.run import run
from rp_profiling.write.tracer import Tracer


def names(task: AgentTask) -> list[str]:
    """Return the names of the files in the task's sandbox; none if the sandbox cannot be read."""
    try:
        return os.listdir(task.sandbox)
    except (OSError, ValueError):   # the executor reports the error
        return []


def stage(task: AgentTask, directives: list[Directive], sandboxes: Sandboxes, tracer: Tracer, name: str) -> None:
    """Execute the agent's directives, and record the client's as skipped. Relative paths start at the task's sandbox.

    Raises `StagingError` for the first directive that fails.
    """
    mine = []
    for directive in directives:
        if acts_on_client(directive['action']):
            tracer.record(f'{name}_skip', task.uid, msg=directive['uid'])
        else:
            mine.append(directive)
    run(task.uid, mine, ('task', 'task'), sandboxes, tracer, name)
