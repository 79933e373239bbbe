"""What starts plain tasks, without an executor."""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import Any

from executor_support import a_context, a_task

from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.executor.popen.plain import PlainTasks
from rp_agent.executor.processes.launchloop import LaunchLoop, Process
from rp_agent.task import DEFAULTS, AgentTask


class Site:
    """What starts plain tasks below a directory, for a pilot with some context."""

    def __init__(self, path: Path, **context: Any) -> None:
        self.path = path
        self.launched = LaunchLoop()
        self.environment = TaskEnvironment(a_context(path, **context))
        self.null = os.open('/dev/null', os.O_RDWR | os.O_CLOEXEC)
        self.plain = PlainTasks(self.launched, self.environment.shared, DEFAULTS, self.environment.programs,
                                self.environment.search_path, self.environment.context.detail.on, self.null)

    def task(self, uid: str = 'task.000000', **description: Any) -> AgentTask:
        """A task whose program was looked for before, as compiled code does not look."""
        task = a_task(self.path / uid, uid, **description)
        self.environment.programs.find(task.description['executable'], self.environment.search_path, task.sandbox)
        return task

    def end(self) -> Process:
        assert select.select([self.launched.fd], [], [], 20)[0], 'no process ended'
        (process,) = self.launched.ended()
        return process

    def close(self) -> None:
        self.launched.close()
        os.close(self.null)
