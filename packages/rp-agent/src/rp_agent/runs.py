"""The runs of a pilot whose job the batch system may start again: which tasks were started, and what was not delivered.

A task is noted before it starts, in a file that survives the loss of the node. The agent of the next run gets all tasks
again that are not final; those that are noted may have run, and do not run twice unless they are `restartable`.
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
from rp_api.coordination import spool_file
from rp_api.coordination.contract import Update
from rp_api.system import private

_log = logging.getLogger('radical.pilot.agent')


class Runs:
    """The tasks that this run and those before it have started; `earlier` tells of the last run before, if any."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.earlier: Mapping[str, Any] | None = config.get('earlier')
        self._pilot: str = config['pilot']
        self._path = path = f'{config["pilot_sandbox"]}/{config["agent_uid"]}.started'
        if self.earlier is None:   # of a pilot of the same name, in another session of the same name
            with suppress(FileNotFoundError):
                os.unlink(path)
        self._before = _read(path)
        self._now: set[str] = set()
        self._fd = private.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.results = _undelivered(config) if self.earlier is not None else []
        """Results of earlier runs that the coordinator may not have."""

    def note(self, tasks: Sequence[AgentTask]) -> None:
        """Tasks are about to start."""
        uids = [task.uid for task in tasks]
        self._now.update(uids)
        try:
            os.write(self._fd, b'\n' + json.dumps(uids).encode() + b'\n')   # the one before may not be whole
            os.fdatasync(self._fd)
        except OSError as error:
            _log.error('%d tasks start that would run again with the job, as %s cannot be written: %s', len(uids),
                       self._path, error.strerror)

    def goes_on(self, task: AgentTask) -> bool:
        """Whether a task that ends with this run is for the next one."""
        return task.uid not in self._now or bool(task.description['restartable'])

    def refuse(self, task: AgentTask) -> None:
        """Make a task fail that may not run again."""
        if task.uid in self._before and not task.description['restartable']:
            task.fail(repr(RuntimeError(f'the job of {self._pilot} was started again after {task.uid} had started: '
                                        f'it is not restartable')), f'{self.told}; its earlier run may have been '
                      f'complete, and its files are in {task.sandbox}')

    @property
    def told(self) -> str:
        """What the user is told of it."""
        assert self.earlier is not None
        return (f'the batch system has started the job of {self._pilot} again; its agent was on {self.earlier["host"]} '
                f'before')

    def close(self) -> None:
        """Free the file."""
        os.close(self._fd)


def _read(path: str) -> frozenset[str]:
    """The tasks that are noted in a file. A line that is not whole is of tasks that were not started."""
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
