"""The journal of started tasks, for pilots whose job the batch system may start again.

A task is recorded before it starts, in a file that survives the loss of the node. The agent of the next run receives
all tasks again that are not final; a recorded task may have run, and runs again only if it is `restartable` or a
service.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rp_agent import sandbox
from rp_agent.task import AgentTask
from rp_api.constants import AGENT_SERVICE, TASK_SERVICE
from rp_api.coordination import spool_file
from rp_api.coordination.contract import Update
from rp_api.failures.kinds import PILOT
from rp_api.failures.retry_rules import RetryRules
from rp_api.system import private

_log = logging.getLogger('radical.pilot.agent')


class Runs:
    """The tasks that this run and earlier ones have started; `earlier` describes the previous run, if there was one."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.earlier: Mapping[str, Any] | None = config.get('earlier')
        self._pilot: str = config['pilot']
        self._path = path = f'{config["pilot_sandbox"]}/{config["agent_uid"]}.started'
        if self.earlier is None:   # a file is left by a pilot of the same name, in another session of the same name
            with suppress(FileNotFoundError):
                os.unlink(path)
        self._before = _read(path)
        self._now: set[str] = set()
        self._fd = private.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.results = _undelivered(config) if self.earlier is not None else []
        """Results of earlier runs that the coordinator has not acknowledged."""

    def note(self, tasks: Sequence[AgentTask]) -> None:
        """Record tasks that are about to start."""
        uids = [task.uid for task in tasks]
        self._now.update(uids)
        try:
            os.write(self._fd, b'\n' + json.dumps(uids).encode() + b'\n')   # the line before may be incomplete
            os.fdatasync(self._fd)
        except OSError as error:
            _log.error('%s cannot be written: %s; if the job is started again, it runs %d tasks again', self._path,
                       error.strerror, len(uids))

    def goes_on(self, task: AgentTask) -> bool:
        """Return whether a task that ends with this run runs again in the next one."""
        return task.uid not in self._now or _is_restartable(task)

    def refuse(self, task: AgentTask) -> None:
        """Make a task fail if an earlier run has started it and it is not restartable."""
        if task.uid in self._before and not _is_restartable(task):
            task.fail(repr(RuntimeError(f'the job of {self._pilot} was started again after {task.uid} had started: '
                                        f'it is not restartable')), f'{self.told}; its earlier run may have been '
                      f'complete, and its files are in {task.sandbox}', PILOT,
                      sentence=f'{self.told} after the task had started, and it is not restartable')

    @property
    def told(self) -> str:
        """The notice for the user: the job was started again."""
        assert self.earlier is not None
        return (f'the batch system has started the job of {self._pilot} again; its agent was on {self.earlier["host"]} '
                f'before')

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _is_restartable(task: AgentTask) -> bool:
    """Return whether a task that has started may start again; the tasks that need a service need it in each run."""
    again = RetryRules(task.description).covers({'kind': PILOT}, None, str)
    return again or task.description['mode'] in (TASK_SERVICE, AGENT_SERVICE)


def _read(path: str) -> frozenset[str]:
    """Return the tasks that a file records. Tasks of an incomplete line were not started."""
    found: set[str] = set()
    try:
        lines = private.read_file(path).split(b'\n')
    except FileNotFoundError:
        return frozenset()
    for line in lines:
        with suppress(ValueError):
            found.update(json.loads(line))
    return frozenset(found)


def _undelivered(config: Mapping[str, Any]) -> list[Update]:
    try:
        return spool_file.read(sandbox.updates(config)).tasks
    except FileNotFoundError:
        return []
