"""The journal of started tasks, for pilots whose job the batch system may start again.

A task is recorded before it starts, in a file that survives the loss of the node. The agent of the next run receives
all tasks again that are not final; a recorded task may have run, and runs again only if it is `restartable` or a
service. The file has a line for each bulk of tasks, which is a list; a run begins with the line `"run"`, and has the
line `"end"` if its agent learnt that its job ends.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rp_agent import sandbox
from rp_agent.pipeline.retry import fail_suspect, history_of, restarts
from rp_agent.task import HISTORY, AgentTask
from rp_api import states
from rp_api.constants import AGENT_SERVICE, TASK_SERVICE
from rp_api.coordination import spool_file
from rp_api.coordination.contract import LEFT_AGENT, Update
from rp_api.failures.kinds import PILOT
from rp_api.failures.losses import DEATH, END, LOST, is_suspect
from rp_api.system import private

_RUN, _END = 'run', 'end'

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
        self._fd = private.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._write(_RUN, 'deaths of this pilot may be counted wrongly')
        undelivered = _undelivered(config) if self.earlier is not None else []
        self.results = [update for update in undelivered if states.TASK.value(update.state) >= LEFT_AGENT]
        """Results of earlier runs that the coordinator has not acknowledged."""
        self.histories: dict[str, list[dict[str, Any]]] = {
            uid: info['history'] for uid, _, info in undelivered if info and 'history' in info}
        """Attempts of earlier runs of other tasks."""

    def note(self, tasks: Sequence[AgentTask]) -> None:
        """Record tasks that are about to start."""
        self._write([task.uid for task in tasks], f'if the job is started again, it runs {len(tasks)} tasks again')

    def note_end(self) -> None:
        """Record that the job ends, so that its end is not the death of the agent."""
        self._write(_END, 'if the job is started again, its end counts as the death of its agent')

    def _write(self, value: Any, otherwise: str) -> None:
        try:
            os.write(self._fd, b'\n' + json.dumps(value).encode() + b'\n')   # the line before may be incomplete
            os.fdatasync(self._fd)
        except OSError as error:
            _log.error('%s cannot be written: %s; %s', self._path, error.strerror, otherwise)

    def take(self, task: AgentTask) -> None:
        """Add the lost attempts of earlier runs to a task; make it fail if it cannot run again."""
        lost = [how for uids, how in self._before if task.uid in uids]
        if not lost:
            return
        if not is_restartable(task):
            task.fail(repr(RuntimeError(f'the job of {self._pilot} was started again after {task.uid} had started: '
                                        f'it is not restartable')), f'{self.told}; its earlier run may have been '
                      f'complete, and its files are in {task.sandbox}', PILOT,
                      sentence=f'{self.told} after the task had started, and it is not restartable')
            return
        history = list(history_of(task))
        for how in lost:
            if how == DEATH and is_suspect(history):
                task.extra[HISTORY] = history
                fail_suspect(task, PILOT, self.told)
                break
            history.append({'attempt': len(history) + 1, 'kind': PILOT, 'reason': self.told, 'pilot': self._pilot,
                            LOST: how})
        task.extra[HISTORY] = history

    @property
    def told(self) -> str:
        """The notice for the user: the job was started again."""
        assert self.earlier is not None
        return (f'the batch system has started the job of {self._pilot} again; its agent was on {self.earlier["host"]} '
                f'before')

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def is_restartable(task: AgentTask) -> bool:
    """Return whether a task that has started may start again; the tasks that need a service need it in each run."""
    return restarts(task) or task.description['mode'] in (TASK_SERVICE, AGENT_SERVICE)


def _read(path: str) -> list[tuple[set[str], str]]:
    """Return the tasks that a file records, by run, and how that has ended; an incomplete line records none."""
    found: list[tuple[set[str], str]] = []
    try:
        lines = private.read_file(path).split(b'\n')
    except FileNotFoundError:
        return found
    for line in lines:
        with suppress(ValueError):
            value = json.loads(line)
            if value == _RUN or not found:
                found.append((set(), DEATH))
            if value == _END:
                found[-1] = found[-1][0], END
            elif value != _RUN:
                found[-1][0].update(value)
    return found


def _undelivered(config: Mapping[str, Any]) -> list[Update]:
    try:
        return spool_file.read(sandbox.updates(config)).tasks
    except FileNotFoundError:
        return []
