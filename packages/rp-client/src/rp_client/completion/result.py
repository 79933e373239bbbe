"""The results of tasks that run programs."""

from __future__ import annotations

from typing import NamedTuple

from rp_api import constants as c

RETURNING = frozenset({c.TASK_FUNCTION, c.TASK_METHOD, c.TASK_EVAL, c.TASK_EXEC})
"""Modes of tasks whose result is the value that they return, and not a `TaskResult`."""

OUTPUT_CHARS = 1024
"""Characters of a standard stream that agents report at most."""


class TaskResult(NamedTuple):
    """The result of a task that runs a program.

    Attributes:
        returncode: The exit code of the program.
        stdout: The end of its standard output, see `Task.stdout`.
        stderr: The end of its standard error, see `Task.stderr`.
        sandbox: The working directory of the task on the platform; None with `cache`, as a cached result has none.
    """

    returncode: int | None
    stdout: str
    stderr: str
    sandbox: str | None
